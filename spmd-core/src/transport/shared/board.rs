//! What collectives over the arena are made of: every rank of a communicator shows the call it
//! is in on its own board, and reads those of the others.
//!
//! A *round* is one collective call; its number is the same on all ranks. The owner fills its
//! slot (`round % SLOTS`), then writes the stamp `round, stage`; peers that see the stamp may
//! read what the slot says, after comparing fingerprints. Stages order the steps within a round;
//! in stage 0 the rank has entered the round, and its slot shows the call and no more.
//!
//! A fingerprint covers all calls of the communicator so far: not all calls make all ranks meet
//! (a broadcast and a reduce may pass by each other), and what differs in one of these is found
//! when the ranks do meet.
//!
//! A slot is used again only when every peer has left the round that used it last
//! ([`Round::begin`]). A rank that gives up takes its exposed buffers back and waits until no peer
//! can be reading them ([`Round`]'s `Drop`): a peer announces itself (its own stamp, then a
//! fence) before it looks whether the buffers were withdrawn, and the owner withdraws, then a
//! fence, before it looks whether the peer is there, so one of the two sees the other.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::*;

use super::agents::{Noted, Waiter};
use super::heap::Block;
use super::layout::*;
use super::{Endpoint, Mode};
use crate::call::{Call, mix};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault};
use crate::group::Scope;
use crate::wait::publish;

const STAGE_BITS: u32 = 20;
/// The last stage of a round.
pub const LAST_STAGE: u32 = (1 << STAGE_BITS) - 1;
/// Above this size ranks meet over a tree.
pub const FLAT: usize = 16;
/// Children of a tree node. Virtual ranks, whose children have mostly arrived before them, look
/// at many at once.
const RADIX: usize = 4;
const VIRTUAL_RADIX: usize = 32;

/// A communicator's place on the boards of its members, and how far this rank is.
pub(crate) struct Board {
    pub(crate) index: usize,
    round: Cell<u64>,
    /// Every peer is known to have left this round.
    settled: Cell<u64>,
    /// The fingerprint of all calls so far.
    history: Cell<u64>,
    staging: RefCell<Option<Block>>,
}

impl Board {
    pub(crate) fn new(index: usize) -> Board {
        let (round, settled, history) = Default::default();
        Board { index, round, settled, history, staging: RefCell::new(None) }
    }

    /// How many rounds this rank has begun.
    pub(super) fn rounds(&self) -> u64 {
        self.round.get()
    }
}

/// One collective call under way on the shared arena.
pub struct Round<'a> {
    endpoint: &'a Endpoint,
    scope: &'a Scope,
    board: &'a Board,
    me: usize,
    round: u64,
    fingerprint: u64,
    exposed: Cell<bool>,
    /// All ranks are known to have entered this round.
    met: Cell<bool>,
    over: Cell<bool>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
    waiter: Waiter<'a>,
}

fn stamp(round: u64, stage: u32) -> u64 {
    round << STAGE_BITS | u64::from(stage)
}

impl<'a> Round<'a> {
    /// Runs this rank's next collective: `body` between the beginning and the end of a round.
    /// The caller is the `me`-th of the scope's group.
    #[inline]
    pub(crate) fn run<R>(
        endpoint: &'a Endpoint,
        scope: &'a Scope,
        board: &'a Board,
        me: usize,
        call: &'a Call<'a>,
        noted: Noted,
        body: impl FnOnce(&Round<'a>) -> Result<R>,
    ) -> Result<R> {
        let round = Round::begin(endpoint, scope, board, me, call, noted)?;
        match body(&round) {
            Ok(value) => {
                round.finish();
                Ok(value)
            }
            Err(error) => {
                let panic = round.panic.take();
                drop(round);
                panic.map_or(Err(error), |payload| resume_unwind(payload))
            }
        }
    }

    #[inline]
    fn begin(
        endpoint: &'a Endpoint,
        scope: &'a Scope,
        board: &'a Board,
        me: usize,
        call: &'a Call<'a>,
        noted: Noted,
    ) -> Result<Round<'a>> {
        let round = board.round.get() + 1;
        board.round.set(round);
        let fingerprint = mix(board.history.get() ^ call.fingerprint());
        board.history.set(fingerprint);
        let this = Round {
            endpoint,
            scope,
            board,
            me,
            round,
            fingerprint,
            exposed: Cell::new(false),
            met: Cell::new(false),
            over: Cell::new(false),
            panic: Cell::new(None),
            waiter: Waiter::new(endpoint, scope, call, noted),
        };
        if let Some(error) = this.waiter.stopped() {
            return Err(error);
        }
        let reused = round.saturating_sub(SLOTS as u64);
        if reused > board.settled.get() {
            this.settle(reused)?;
        }
        let slot = this.slot(me);
        slot.fingerprint.store(this.fingerprint, Relaxed);
        slot.call.write(call, noted);
        slot.stamp.store(stamp(round, 0), Release);
        Ok(this)
    }

    /// This rank in the communicator.
    pub fn rank(&self) -> usize {
        self.me
    }

    /// The communicator's size.
    pub fn size(&self) -> usize {
        self.scope.group.len()
    }

    /// Whether ranks share an address space, so that every buffer can be reached.
    pub fn one_address_space(&self) -> bool {
        self.endpoint.world.one_address_space()
    }

    #[inline]
    fn page(&self, rank: usize) -> &BoardPage {
        self.endpoint.world.memory.board(self.scope.group.world(rank), self.board.index)
    }

    #[inline]
    fn slot(&self, rank: usize) -> &Slot {
        self.slot_of(rank, self.round)
    }

    #[inline]
    fn slot_of(&self, rank: usize, round: u64) -> &Slot {
        &self.page(rank).slots[(round % SLOTS as u64) as usize]
    }

    /// Waits until every peer has left `round`, so that its slot can be used again.
    #[cold]
    fn settle(&self, round: u64) -> Result<()> {
        let mut peer = 0;
        let mut least = u64::MAX;
        self.waiter.until(|| {
            while peer < self.size() {
                if peer != self.me {
                    let done = self.page(peer).done.0.load(Acquire);
                    if done < round {
                        self.waiter.waits_on(Some(self.scope.group.world(peer)));
                        return None;
                    }
                    least = least.min(done);
                }
                peer += 1;
            }
            Some(())
        })?;
        self.board.settled.set(least.min(self.round - 1));
        Ok(())
    }

    /// Room for `bytes` (at most [`PAYLOAD`]) in this rank's slot, to be filled before the first
    /// [`Round::publish`].
    #[inline]
    pub fn room(&self, bytes: usize) -> *mut u8 {
        self.place(self.me, bytes).cast_mut()
    }

    /// What `peer` has put into its room of `bytes`, once it has published.
    #[inline]
    pub fn room_of(&self, peer: usize, bytes: usize) -> *const u8 {
        self.place(peer, bytes)
    }

    #[inline]
    fn place(&self, rank: usize, bytes: usize) -> *const u8 {
        assert!(bytes <= PAYLOAD);
        let page = self.page(rank);
        let index = (self.round % SLOTS as u64) as usize;
        if bytes <= INLINE {
            page.slots[index].inline.as_ptr().cast()
        } else {
            page.payload[index].0.as_ptr().cast()
        }
    }

    /// Says a number to all peers, to be read with [`Round::number_of`]; 8 fit.
    pub fn set_number(&self, index: usize, value: u64) {
        self.slot(self.me).lengths[index].store(value, Relaxed);
    }

    /// A number that `peer` said before the stage that was last waited for.
    pub fn number_of(&self, peer: usize, index: usize) -> u64 {
        self.slot(peer).lengths[index].load(Relaxed)
    }

    /// Lets peers read this memory, as number `which`, from the next publish to the end of the
    /// round. Whether they can reach it: always in one address space, else if it lies in this
    /// rank's arena.
    ///
    /// # Safety
    /// The memory stays allocated until this round is dropped or finished, and nobody writes it
    /// while a peer may read it, as the stages of the algorithm arrange it.
    pub unsafe fn expose(&self, which: usize, ptr: *const u8, bytes: usize) -> bool {
        let world = &self.endpoint.world;
        let place = if self.one_address_space() || bytes == 0 {
            Some(ptr as u64)
        } else {
            world.memory.offset_in_heap(self.endpoint.rank, ptr, bytes)
        };
        let slot = self.slot(self.me);
        slot.exposed[which].place.store(place.unwrap_or(0), Relaxed);
        slot.exposed[which].bytes.store(bytes as u64, Relaxed);
        slot.withdrawn.store(0, Relaxed);
        self.exposed.set(true);
        place.is_some()
    }

    /// The memory that `peer` exposes as `which`, of exactly `bytes`: readable until this rank
    /// finishes or drops its round. `None` if it cannot be reached from here.
    #[inline]
    pub fn reach(&self, peer: usize, which: usize, bytes: usize) -> Result<Option<*const u8>> {
        if bytes == 0 {
            return Ok(Some(std::ptr::NonNull::dangling().as_ptr()));
        }
        let slot = self.slot(peer);
        let place = slot.exposed[which].place.load(Relaxed);
        let len = slot.exposed[which].bytes.load(Relaxed);
        // Between this rank's own stamp of a stage and this look there was a fence (`publish`).
        assert!(self.slot(self.me).stamp.load(Relaxed) > stamp(self.round, 0));
        if slot.withdrawn.load(SeqCst) != 0 {
            return Err(self.withdrawn(peer));
        }
        if place == 0 {
            return Ok(None);
        }
        if len != bytes as u64 {
            return Err(self.corrupt(peer, "it exposes a buffer of another length than it must"));
        }
        if self.one_address_space() {
            return Ok(Some(place as *const u8));
        }
        let world = self.scope.group.world(peer);
        match self.endpoint.world.memory.heap(world, place, bytes) {
            Some(ptr) => Ok(Some(ptr)),
            None => Err(self.corrupt(peer, "it exposes a buffer outside its arena")),
        }
    }

    /// How many bytes `peer` exposes as `which`.
    pub fn exposed_bytes(&self, peer: usize, which: usize) -> usize {
        self.slot(peer).exposed[which].bytes.load(Relaxed) as usize
    }

    /// Says that this rank has reached `stage` (1 and up) of the round; wakes nobody.
    #[inline]
    fn reach_stage(&self, stage: u32) {
        debug_assert!(stage <= LAST_STAGE);
        self.slot(self.me).stamp.store(stamp(self.round, stage), Release);
        publish();
    }

    /// Says that this rank has reached `stage` (1 and up) of the round, to all peers.
    #[inline]
    pub fn publish(&self, stage: u32) {
        self.reach_stage(stage);
        self.ring_peers();
    }

    /// Says that this rank has reached `stage`, to `peer`, who alone may wait for it.
    #[inline]
    pub fn publish_to(&self, stage: u32, peer: usize) {
        self.reach_stage(stage);
        self.ring(peer);
    }

    /// Wakes `peer` after a publish.
    #[inline]
    fn ring(&self, peer: usize) {
        self.endpoint.world.bell(self.scope.group.world(peer)).ring_after_fence();
    }

    fn ring_peers(&self) {
        (0..self.size()).filter(|peer| *peer != self.me).for_each(|peer| self.ring(peer));
    }

    /// Looks whether `peer` has reached `stage`, and that it makes the same call.
    #[inline]
    fn arrived(&self, peer: usize, stage: u32) -> Option<Result<()>> {
        let slot = self.slot(peer);
        let seen = slot.stamp.load(Acquire);
        if seen < stamp(self.round, stage) {
            // A peer that is in this round, if only in an earlier stage, must be in the same call.
            if seen >> STAGE_BITS == self.round
                && slot.fingerprint.load(Relaxed) != self.fingerprint
            {
                return Some(Err(self.mismatch(peer)));
            }
            return None;
        }
        if seen >> STAGE_BITS != self.round {
            return Some(Err(self.corrupt(peer, "its round number is ahead of what it can be")));
        }
        if slot.fingerprint.load(Relaxed) != self.fingerprint {
            return Some(Err(self.mismatch(peer)));
        }
        Some(Ok(()))
    }

    /// Says that this rank has reached `stage`, to these peers, who alone may wait for it.
    pub fn publish_to_each(&self, stage: u32, peers: impl Iterator<Item = usize>) {
        self.reach_stage(stage);
        peers.for_each(|peer| self.ring(peer));
    }

    /// Says that the algorithm has shown that every rank has entered this round.
    pub fn all_met(&self) {
        self.met.set(true);
    }

    /// Memory of this rank's own, of at least `bytes`, that all peers can reach once it is
    /// exposed. The same memory for all rounds of a communicator: an algorithm that uses it
    /// ends when all peers have read what they need.
    pub fn staging(&self, bytes: usize) -> Result<*mut u8> {
        let mut staging = self.board.staging.borrow_mut();
        if staging.as_ref().is_none_or(|block| block.bytes() < bytes) {
            *staging = None;
            *staging = Some(self.endpoint.heap.allocate(bytes).map_err(|error| self.fail(error))?);
        }
        Ok(staging.as_ref().expect("made just now").pointer())
    }

    /// Whether data of this type that come from a peer must be looked at before they are used:
    /// another process may have written anything.
    pub fn must_check(&self, dtype: DType) -> bool {
        self.endpoint.must_check(dtype)
    }

    /// A peer that must have exposed memory has not.
    #[cold]
    pub fn lied(&self, peer: usize) -> Error {
        self.corrupt(peer, "it does not expose what it must")
    }

    /// A peer's data are no values of their type.
    #[cold]
    pub fn invalid(&self, peer: usize) -> Error {
        self.corrupt(peer, "it sent bytes that are no values of their type")
    }

    /// Waits until `peer` has reached `stage`.
    #[inline]
    pub fn wait_for(&self, peer: usize, stage: u32) -> Result<()> {
        let on = self.scope.group.world(peer);
        self.waiter.until_by(Some(on), || self.arrived(peer, stage))?
    }

    /// Waits until every other rank has reached `stage`.
    #[inline]
    pub fn wait_for_all(&self, stage: u32) -> Result<()> {
        (0..self.size()).filter(|p| *p != self.me).try_for_each(|peer| self.wait_for(peer, stage))
    }

    /// Publishes `stage` and waits until all have. Flat, up to 16 ranks: n loads a rank. Over a
    /// tree above that, and for virtual ranks: about 2 log₄ n (log₃₂ n) steps.
    #[inline]
    pub fn arrive(&self, stage: u32) -> Result<()> {
        if self.endpoint.world.mode == Mode::Virtual {
            self.arrive_over_tree(stage, VIRTUAL_RADIX)?;
        } else if self.size() <= FLAT {
            self.arrive_flat(stage)?;
        } else {
            self.arrive_over_tree(stage, RADIX)?;
        }
        self.met.set(true);
        Ok(())
    }

    fn arrive_flat(&self, stage: u32) -> Result<()> {
        self.reach_stage(stage);
        let mut peer = 0;
        let mut looked = false;
        self.waiter.until(|| {
            while peer < self.size() {
                if peer != self.me {
                    match self.arrived(peer, stage) {
                        None => {
                            self.waiter.waits_on(Some(self.scope.group.world(peer)));
                            looked = true;
                            return None;
                        }
                        Some(Err(error)) => return Some(Err(error)),
                        Some(Ok(())) => {}
                    }
                }
                peer += 1;
            }
            Some(Ok(()))
        })??;
        // Of all that arrive at once, the last by the order of their fences sees everybody at
        // its first look. Only that one has somebody to wake.
        if !looked {
            self.ring_peers();
        }
        Ok(())
    }

    fn arrive_over_tree(&self, stage: u32, radix: usize) -> Result<()> {
        // Node v is rank n-1-v: where ranks share a thread and run in order, children then come
        // before their parent, which finds them arrived.
        let (n, v) = (self.size(), self.size() - 1 - self.me);
        let want = stamp(self.round, stage);
        let rank = |v: usize| n - 1 - v;
        let children = (radix * v + 1..n.min(radix * v + 1 + radix)).map(rank);
        self.slot(self.me).stamp.store(want, Release);
        for child in children.clone() {
            let on = self.scope.group.world(child);
            let page = self.page(child);
            self.waiter.until_by(Some(on), || {
                if page.arrive.0.load(Acquire) >= want {
                    return self.arrived(child, stage);
                }
                // A child that makes another call never comes to this stage.
                self.arrived(child, stage)?.err().map(Err)
            })??;
        }
        let page = self.page(self.me);
        page.arrive.0.store(want, Release);
        if v > 0 {
            let parent = rank((v - 1) / radix);
            publish();
            self.ring(parent);
            let above = self.page(parent);
            let on = self.scope.group.world(parent);
            self.waiter.until_by(Some(on), || {
                if above.release.0.load(Acquire) >= want {
                    return Some(Ok(()));
                }
                self.arrived(parent, stage)?.err().map(Err)
            })??;
        }
        page.release.0.store(want, Release);
        publish();
        children.for_each(|child| self.ring(child));
        Ok(())
    }

    /// The round is over for this rank. Peers wait for that only if not all ranks have met in it:
    /// to use a slot again.
    #[inline]
    fn finish(&self) {
        self.over.set(true);
        self.page(self.me).done.0.store(self.round, Release);
        if self.met.get() {
            self.board.settled.set(self.round - 1);
        } else {
            publish();
            self.ring_peers();
        }
    }

    /// Runs a part of a reduction, which may be the program's own code. If that panics, the
    /// others are stopped at once, and the panic goes on when this rank's buffers are safe.
    pub fn operate(&self, operation: impl FnOnce()) -> Result<()> {
        let outcome = crate::wait::in_operation(|| catch_unwind(AssertUnwindSafe(operation)));
        let Err(payload) = outcome else { return Ok(()) };
        let cause = Cause::Panicked(crate::fault::panic_text(&*payload));
        self.waiter.stop(&Fault::Rank { rank: self.endpoint.rank, cause });
        self.panic.set(Some(payload));
        Err(Error::from("the operation panicked"))
    }

    /// Gives up with this error: the others are stopped by it as well. For errors that only this
    /// rank can know of.
    pub fn fail(&self, error: Error) -> Error {
        self.waiter.give_up(&error);
        error
    }

    /// The ranks do not agree in `what`; all are stopped, and the report shows their calls.
    #[cold]
    pub fn disagree(&self, what: &str) -> Error {
        self.disagreed(self.round, what)
    }

    #[cold]
    fn disagreed(&self, round: u64, what: &str) -> Error {
        let here = (0..self.size()).filter(|peer| self.shows(*peer, round));
        let calls = here.map(|peer| {
            let world = self.scope.group.world(peer);
            let call = &self.slot_of(peer, round).call;
            (world, self.endpoint.world.describe(world, call))
        });
        let calls = crate::fault::by_call(calls);
        self.waiter.stop(&Fault::Mismatch { calls, what: what.into() })
    }

    /// Whether the slots of `rank` show its call of `round`.
    fn shows(&self, rank: usize, round: u64) -> bool {
        self.slot_of(rank, round).stamp.load(Acquire) >> STAGE_BITS == round
    }

    /// The fingerprints differ: reports the first round that is still on show in which they do.
    #[cold]
    fn mismatch(&self, peer: usize) -> Error {
        let first = self.round.saturating_sub(SLOTS as u64 - 1).max(1);
        let differs = |round: &u64| {
            let fingerprint = |rank| self.slot_of(rank, *round).fingerprint.load(Relaxed);
            let both = self.shows(self.me, *round) && self.shows(peer, *round);
            both && fingerprint(self.me) != fingerprint(peer)
        };
        let round = (first..self.round).find(differs).unwrap_or(self.round);
        let mine = &self.slot_of(self.me, round).call;
        let theirs = &self.slot_of(peer, round).call;
        let names = [
            (mine.kind.load(Relaxed) == theirs.kind.load(Relaxed), "calls"),
            (mine.root.load(Relaxed) == theirs.root.load(Relaxed), "roots"),
            (mine.count.load(Relaxed) == theirs.count.load(Relaxed), "counts"),
        ];
        let what = names.iter().find(|(same, _)| !same);
        let what = what.map_or("element types or operations, here or earlier", |n| n.1);
        self.disagreed(round, &format!("different {what}"))
    }

    #[cold]
    fn corrupt(&self, peer: usize, what: &'static str) -> Error {
        self.fail(Error::Corrupt { rank: self.scope.group.world(peer), what })
    }

    #[cold]
    fn withdrawn(&self, peer: usize) -> Error {
        let rank = self.scope.group.world(peer);
        let waiter = &self.waiter;
        waiter.stopped().unwrap_or_else(|| {
            self.fail(Error::Corrupt { rank, what: "it took a buffer back without a reason" })
        })
    }
}

impl Drop for Round<'_> {
    /// A round that was given up: this rank reads no peer's memory any more, and says so before
    /// it waits until none reads its own, as two ranks may give up at once.
    fn drop(&mut self) {
        if self.over.get() {
            return;
        }
        if self.exposed.get() && self.waiter.stopped().is_none() {
            self.fail(Error::from("it gave up in the middle of a call"));
        }
        self.page(self.me).done.0.store(self.round, Release);
        publish();
        self.ring_peers();
        if self.exposed.get() {
            self.take_back();
        }
    }
}

impl Round<'_> {
    #[cold]
    fn take_back(&self) {
        let slot = self.slot(self.me);
        slot.withdrawn.store(1, SeqCst);
        publish();
        let world = &self.endpoint.world;
        for peer in (0..self.size()).filter(|peer| *peer != self.me) {
            let (page, theirs) = (self.page(peer), self.slot(peer));
            self.waiter.until_gone(|| {
                let inside = theirs.stamp.load(Acquire) >> STAGE_BITS == self.round
                    && page.done.0.load(Acquire) < self.round;
                !inside || world.is_dead(self.scope.group.world(peer))
            });
        }
    }
}
