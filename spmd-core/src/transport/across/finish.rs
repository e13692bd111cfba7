//! The end of a block: whether the ranks of all processes have made the same calls, and all that was
//! sent has come.

use std::sync::atomic::{AtomicU64, Ordering::*};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::now::Rounds;
use super::{Across, leaving};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::fault::{Fault, by_call};
use crate::transport::fabric::{Extents, Parts, Step};
use crate::transport::shared::World;
use crate::transport::shared::contexts::board_of;
use crate::transport::shared::layout::SLOTS;

impl Across {
    /// Waits until the ranks of all processes have left the block, as those of this one have, and all
    /// packets that were sent have been taken. Complains if the ranks of different processes made
    /// different calls.
    pub(crate) fn finish(&self, world: &World, block: u32, call: &Call<'_>) -> Result<()> {
        self.ended.store(true, Release);
        let outcome = match self.survives {
            false => self.compare(world, block),
            true if self.all_have_left(world)? => {
                self.unless_lost(world, self.compare(world, block))
            }
            true => Ok(None),
        };
        self.shut_ledger();
        if outcome.is_ok() {
            leaving::leave();
            self.watch.iter().for_each(|watch| watch.leave());
        }
        let differ = outcome?;
        self.leave_it_to_first();
        differ.map_or(Ok(()), |fault| Err(Error::stopped(fault, call)))
    }

    /// Takes all packets that were sent, and gives what differs in the calls of different processes.
    /// All call it together.
    fn compare(&self, world: &World, block: u32) -> Result<Option<Fault>> {
        self.close_ledger(world);
        let processes = self.fabric.processes();
        let sent: Vec<u64> = self.sent.iter().map(|it| it.load(Relaxed)).collect();
        let mut expected = vec![0u64; processes];
        let parts = |memory: *mut u8| Parts { memory, extents: Extents::Equal(8) };
        let send = parts(sent.as_ptr().cast_mut().cast());
        let recv = parts(expected.as_mut_ptr().cast());
        // SAFETY: both have eight bytes for each process, and `send` is only read.
        unsafe { self.make_with_all(Step::Alltoall { send, recv })? };
        let complete = |(taken, expected): (&AtomicU64, &u64)| taken.load(Acquire) >= *expected;
        while !self.taken.iter().zip(&expected).all(complete) && !self.has_lost_any() {
            world.take_packet()?;
            std::thread::yield_now();
        }
        let first = self.local().start;
        let last = world.memory.board(first, board_of(block)).done.0.load(Acquire);
        let rounds = Rounds::of(world, first, board_of(block), last, SLOTS);
        // SAFETY: memory that the step names is held while it is made.
        let all = tell_all(processes, &rounds, |step| unsafe { self.make_with_all(step) })?;
        let leads = (0..processes).map(|process| process * self.each);
        let differ = differences(leads.zip(all), true);
        let mut found = self.found_in_ledger();
        found.iter_mut().for_each(cut_fault);
        // SAFETY: as above.
        let all = exchange(processes, &found, |step| unsafe { self.make_with_all(step) })?;
        Ok(differ.or_else(|| all.into_iter().flatten().next()))
    }
}

/// What a process tells all others at once, at most.
const BYTES: usize = 1024;

/// Tells the leads of other processes the calls of this one, and hears theirs.
pub(super) fn tell_all(
    processes: usize,
    rounds: &Rounds,
    step: impl FnOnce(Step<'_>) -> Result<()>,
) -> Result<Vec<Rounds>> {
    let mut told = rounds.clone();
    cut_calls(&mut told);
    exchange(processes, &told, step)
}

/// Tells the other processes something, and hears what they tell; what is too long is not heard.
fn exchange<T: Serialize + DeserializeOwned + Default>(
    processes: usize,
    told: &T,
    step: impl FnOnce(Step<'_>) -> Result<()>,
) -> Result<Vec<T>> {
    let mut said = [0u8; BYTES];
    let _ = postcard::to_slice(told, &mut said);
    let mut heard = vec![0u8; BYTES * processes];
    let recv = Parts { memory: heard.as_mut_ptr(), extents: Extents::Equal(BYTES) };
    step(Step::Allgather { send: (said.as_ptr(), BYTES), recv })?;
    let read = |bytes| postcard::take_from_bytes(bytes).map_or(T::default(), |it| it.0);
    Ok(heard.chunks(BYTES).map(read).collect())
}

/// Cuts the calls to what can be told.
pub(super) fn cut_calls(rounds: &mut Rounds) {
    rounds.calls.iter_mut().for_each(|call| cut(call, BYTES / SLOTS - 32));
}

/// The same of two calls that differ.
fn cut_fault(fault: &mut Fault) {
    if let Fault::Mismatch { calls, .. } = fault {
        calls.truncate(2);
        calls.iter_mut().for_each(|call| cut(call, BYTES / 2 - 64));
    }
}

/// In what the calls of ranks of different processes differ; with `to_the_end`, they have made all.
pub(super) fn differences(
    ranks: impl Iterator<Item = (usize, Rounds)>,
    to_the_end: bool,
) -> Option<Fault> {
    let all: Vec<(usize, Rounds)> = ranks.collect();
    let (_, first) = all.first()?;
    let different = all.iter().find_map(|(_, other)| first.first_difference(other));
    let shorter = || {
        let least = all.iter().map(|(_, rounds)| rounds.last).min()?;
        (to_the_end && all.iter().any(|(_, rounds)| rounds.last != least))
            .then_some(least.saturating_add(1))
    };
    let (round, what) = match different {
        Some(round) => (round, "different calls"),
        None => (shorter()?, "one rank made more calls than another"),
    };
    let calls = all.iter().filter_map(|(rank, rounds)| Some((*rank, rounds.call(round)?)));
    Some(Fault::Mismatch { calls: by_call(calls), what: what.into() })
}

/// Cuts a text to so many bytes.
fn cut(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}
