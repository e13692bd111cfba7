//! Rounds in two steps, between which their rank does something else: of calls in which all ranks
//! show something, meet once, and take what the others have shown.

use super::place::CollectiveArea;
use super::round::Round;
use super::stage::stamp;
use crate::call::Call;
use crate::copy::copy_bytes;
use crate::error::Result;
use crate::group::Scope;
use crate::transport::shared::Endpoint;
use crate::transport::shared::record::Noted;

/// Where a rank makes such rounds.
#[derive(Clone, Copy)]
pub(crate) struct Seat<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) scope: &'a Scope,
    pub(crate) area: &'a CollectiveArea,
    pub(crate) me: usize,
    pub(crate) call: &'a Call<'a>,
    pub(crate) noted: Noted,
}

/// A round between its steps: its number and fingerprint, and the bytes of its payload outside of
/// the slot.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    at: (u64, u64),
    payloads: usize,
}

/// The stage in which the ranks meet.
const MET: u32 = 1;

impl<'a> Seat<'a> {
    #[inline(always)]
    fn open(self, at: (u64, u64)) -> Round<'a> {
        Round::open(self.endpoint, self.scope, self.area, self.me, self.call, self.noted, at)
    }

    /// The first step of the rank's next round, which shows these bytes, at most
    /// [`PAYLOAD`](crate::transport::shared::layout::PAYLOAD). Waits for nobody, if the rounds
    /// before were such and are over.
    ///
    /// Errors: the fault that stops the communicator.
    #[inline]
    pub(crate) fn begin(self, shown: &[u8]) -> Result<Begun> {
        let at = self.area.next(self.call);
        let round = self.open(at);
        if let Err(error) = round.enter() {
            return round.give_up(Err(error), None);
        }
        let payload = round.payload(shown.len());
        // SAFETY: the payload has that many bytes, and is this rank's own until it shows them.
        unsafe { copy_bytes(shown.as_ptr(), payload, shown.len()) };
        round.reach_stage(MET);
        round.ring_peers();
        round.ask_for_next();
        let payloads = round.payloads.get();
        // It goes on in the second step.
        std::mem::forget(round);
        Ok(Begun { at, payloads })
    }

    #[inline(always)]
    fn open_again(self, begun: Begun) -> Round<'a> {
        let round = self.open(begun.at);
        round.shown.set(stamp(begun.at.0, MET));
        round.payloads.set(begun.payloads);
        round
    }

    /// Whether the second step waits for nobody any more.
    #[inline]
    pub(crate) fn has_met(self, begun: Begun) -> bool {
        let round = self.open_again(begun);
        let mut peers = (0..round.size()).filter(|peer| *peer != self.me);
        let met = peers.all(|peer| round.arrived(peer, round.slot_of(peer), MET).is_some());
        let stopped = round.waiter.stopped().is_some();
        std::mem::forget(round);
        met || stopped
    }

    /// The second step: waits until all have made their first, and has `take` read their payloads.
    ///
    /// Errors: as those of a round.
    #[inline]
    pub(crate) fn end(
        self,
        begun: Begun,
        take: impl FnOnce(&Round<'a>) -> Result<()>,
    ) -> Result<()> {
        self.open_again(begun).through(|round| {
            // As in a meeting: a look at a line that its owner is about to write makes it ask once
            // more.
            std::hint::spin_loop();
            round.await_arrivals(MET)?;
            round.met.set(true);
            take(round)
        })
    }

    /// Leaves a round without its second step: peers have what they need of this rank.
    pub(crate) fn leave(self, begun: Begun) {
        let round = self.open_again(begun);
        round.finish();
        std::mem::forget(round);
    }
}
