//! What ranks of a combining barrier say of each other's calls when these differ.

use super::CombiningBarrier;
use crate::call::Call;
use crate::fault::{Fault, by_call};
use crate::transport::shared::record::{CallRecord, Noted};
use crate::transport::shared::world::World;

impl World {
    /// The calls of all ranks in `round`, in words. The asking rank, its round and its call may not
    /// be on record.
    pub(crate) fn combining_calls(
        &self,
        combining: &CombiningBarrier,
        me: (usize, u64, &Call<'_>),
        round: u64,
    ) -> Vec<String> {
        let described = |rank: usize| {
            if (rank, round) == (me.0, me.1) {
                return Some((rank, me.2.to_string()));
            }
            (combining.begun_by(rank) >= round)
                .then(|| self.combining_call(combining, rank, round))
                .flatten()
        };
        by_call((0..self.size()).filter_map(described))
    }

    /// The call of a rank in a round that it has begun, in words, if it is still on record.
    pub(crate) fn combining_call(
        &self,
        combining: &CombiningBarrier,
        rank: usize,
        round: u64,
    ) -> Option<(usize, String)> {
        let (by, record) = combining.call_of(rank, round)?;
        Some((rank, self.describe_at(by, record, combining.site_of(rank, round))))
    }

    /// The fault that `me` and `peer` make calls that differ.
    pub(crate) fn combining_mismatch(
        &self,
        combining: &CombiningBarrier,
        me: (usize, u64, &Call<'_>),
        peer: usize,
    ) -> Fault {
        let (rank, current, call) = me;
        let earlier = combining.first_difference(rank, peer).filter(|round| *round < current);
        let round = earlier.unwrap_or(current);
        let mine = CallRecord::default();
        mine.write(call, Noted::default());
        let mine =
            earlier.and_then(|round| combining.call_of(rank, round)).map_or(&mine, |it| it.1);
        let theirs = combining.call_of(peer, round).map(|it| it.1);
        let what = theirs.and_then(|theirs| mine.difference(theirs));
        let what = what.unwrap_or("element types, operations or places of memory, here or earlier");
        let calls = self.combining_calls(combining, me, round);
        Fault::Mismatch { calls, what: format!("different {what}") }
    }
}
