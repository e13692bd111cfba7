//! One collective call on the arena: its beginning, and its end.

use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::*;

use super::place::CollectiveArea;
use super::stage::*;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::Scope;
use crate::mode::Mode;
use crate::op::ErasedOp;
use crate::transport::shared::combining::CombiningBarrier;
use crate::transport::shared::common::Common;
use crate::transport::shared::endpoint::Endpoint;
use crate::transport::shared::layout::*;
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::world::World;

/// Where the number of a track lies beside that of a round, which is a stamp's.
const TRACK_SHIFT: u32 = 64 - STAGE_BITS;

/// One collective call under way on the shared arena.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Round<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) scope: &'a Scope,
    pub(super) area: &'a CollectiveArea,
    pub(super) me: usize,
    pub(super) round: u64,
    pub(super) fingerprint: u64,
    /// Where this communicator's ranks meet, if they are virtual and it is the block's own.
    pub(super) combining: Option<&'a CombiningBarrier>,
    /// This rank's page, and its slot of this round.
    pub(super) page: &'a CollectivePage,
    pub(super) slot: &'a Slot,
    pub(super) exposed: Cell<bool>,
    /// Bytes of the payloads outside of slots.
    pub(super) payloads: Cell<usize>,
    /// The stamp in this rank's slot, 0 before it shows this round.
    pub(super) shown: Cell<u64>,
    /// All ranks are known to have entered this round.
    pub(super) heard: Cell<bool>,
    /// All ranks know that.
    pub(super) met: Cell<bool>,
    pub(super) panic: Cell<Option<Box<dyn Any + Send>>>,
    pub(super) waiter: Waiter<'a>,
}

impl<'a> Round<'a> {
    /// Runs this rank's next collective: `body` between the beginning and the end of a round.
    /// The caller is the `me`-th of the scope's group.
    #[inline]
    pub(crate) fn run<R>(
        endpoint: &'a Endpoint,
        scope: &'a Scope,
        area: &'a CollectiveArea,
        me: usize,
        call: &'a Call<'a>,
        noted: Noted,
        body: impl FnOnce(&Round<'a>) -> Result<R>,
    ) -> Result<R> {
        let at = area.next(call);
        Round::open(endpoint, scope, area, me, call, noted, at).through(|round| {
            round.enter()?;
            body(round)
        })
    }

    /// A round of this number and fingerprint, of which nothing is said yet.
    #[inline(always)]
    pub(super) fn open(
        endpoint: &'a Endpoint,
        scope: &'a Scope,
        area: &'a CollectiveArea,
        me: usize,
        call: &'a Call<'a>,
        noted: Noted,
        (number, fingerprint): (u64, u64),
    ) -> Round<'a> {
        let page = endpoint.world.memory.area(endpoint.rank, area.index);
        Round {
            endpoint,
            scope,
            area,
            me,
            round: number,
            fingerprint,
            combining: endpoint.combining(scope),
            page,
            slot: slot_of(page, number),
            exposed: Cell::new(false),
            payloads: Cell::new(0),
            shown: Cell::new(0),
            heard: Cell::new(false),
            met: Cell::new(false),
            panic: Cell::new(None),
            waiter: Waiter::new(endpoint, scope, call, noted),
        }
    }

    /// Has `body` take part in it, and ends it. It is not moved once it was lent: a copy of what was
    /// just written in pieces stands still until these are in the cache.
    #[inline(always)]
    pub(super) fn through<R>(self, body: impl FnOnce(&Round<'a>) -> Result<R>) -> Result<R> {
        let result = body(&self);
        let panic = self.panic.take();
        if panic.is_some() {
            return self.give_up(result, panic);
        }
        // Each arm makes its own result: to hand one over costs as much as an error is long.
        match result {
            Ok(value) => {
                self.finish();
                // It was not given up, and of what it owns nothing is left.
                std::mem::forget(self);
                Ok(value)
            }
            Err(error) => self.give_up(Err(error), None),
        }
    }

    /// Notes the call in this rank's slot, once no peer needs what was there before.
    #[inline(always)]
    pub(super) fn enter(&self) -> Result<()> {
        if let Some(error) = self.waiter.stopped() {
            return Err(error);
        }
        if let Some(combining) = self.combining {
            self.begin_in(combining)?;
        }
        let reused = self.round.saturating_sub(SLOTS as u64);
        if reused > self.area.settled.get() {
            self.wait_until_left(reused)?;
        }
        prefetch_to_write((&raw const *self.slot).cast(), 1);
        self.slot.call.write(self.waiter.call, self.waiter.noted);
        Ok(())
    }

    /// Ends a call that has failed, or in which an operation panicked.
    #[cold]
    pub(super) fn give_up<R>(
        self,
        result: Result<R>,
        panic: Option<Box<dyn Any + Send>>,
    ) -> Result<R> {
        if let Err(error) = &result {
            // Peers in this round may wait for a stage that never comes.
            self.waiter.give_up(error);
        }
        drop(self);
        panic.map_or(result, |payload| resume_unwind(payload))
    }

    /// This rank in the communicator.
    pub fn rank(&self) -> usize {
        self.me
    }

    /// The communicator's size.
    pub fn size(&self) -> usize {
        self.scope.here.len()
    }

    /// How many collectives the communicator has begun, this one among them.
    pub fn number(&self) -> u64 {
        self.round
    }

    /// What all ranks would make alike of what they have said in this round: made by the first of
    /// this process that asks for it. It stays until the last who has it drops it; who keeps it
    /// until all have come to a later round lets nobody make it again.
    pub fn common<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Common<T> {
        Common::of(&self.endpoint.world, (self.scope.context, self.key()), make)
    }

    /// The number of the round, and of its track.
    pub(super) fn key(&self) -> u64 {
        self.round | (self.scope.track as u64) << TRACK_SHIFT
    }

    /// The fingerprint of all calls of the communicator so far.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn world(&self) -> &World {
        &self.endpoint.world
    }

    /// Whether ranks share an address space, so that every buffer can be reached.
    pub fn one_address_space(&self) -> bool {
        self.endpoint.world.one_address_space()
    }

    #[inline]
    pub(super) fn page_of(&self, rank: usize) -> &CollectivePage {
        self.endpoint.world.memory.area(self.scope.here.world(rank), self.area.index)
    }

    /// The slot of `rank` for this round.
    #[inline]
    pub(super) fn slot_of(&self, rank: usize) -> &Slot {
        slot_of(self.page_of(rank), self.round)
    }

    /// Waits until every peer has left `round`, so that its slot can be used again.
    #[cold]
    pub(super) fn wait_until_left(&self, round: u64) -> Result<()> {
        if let Some(combining) = self.combining {
            self.wait_in(combining, round + 1, || combining.all_left(round).then_some(()))?;
            self.area.settled.set(round);
            return Ok(());
        }
        let mut peer = 0;
        let mut least = u64::MAX;
        self.waiter.until(|| {
            while peer < self.size() {
                if peer != self.me {
                    let done = self.page_of(peer).done.0.load(Acquire);
                    if done < round {
                        self.waiter.waits_on(Some(self.scope.here.world(peer)));
                        return None;
                    }
                    least = least.min(done);
                }
                peer += 1;
            }
            Some(())
        })?;
        self.area.settled.set(least.min(self.round - 1));
        Ok(())
    }

    /// The last round that `peer` is known to have left.
    pub(super) fn left_by(&self, peer: usize) -> u64 {
        match self.combining {
            Some(combining) => combining.left_by(peer),
            None => self.page_of(peer).done.0.load(Acquire),
        }
    }

    /// Shows no buffers any more, so that no peer takes these for those of a later round.
    #[inline]
    pub(super) fn hide(&self) {
        if self.exposed.get() {
            self.slot.exposed.iter().for_each(|shown| shown.place.store(0, Relaxed));
        }
    }

    /// The round is over for this rank. If not all ranks are known to have met in it, peers may
    /// sleep until they can use a slot again. If they have, a peer can get to such a sleep only
    /// three rounds later, before this rank has come from its last meeting to here: it looks up
    /// by itself then, or is woken by this rank's next call.
    #[inline(always)]
    pub(super) fn finish(&self) {
        self.show();
        self.hide();
        if self.met.get() || self.heard.get() {
            self.area.settled.set(self.round - 1);
        }
        if let Some(combining) = self.combining {
            self.leave(combining);
            return;
        }
        self.page.done.0.store(self.round, Release);
        if !self.met.get() {
            self.endpoint.world.publish();
            self.ring_peers();
        }
        // Where ranks meet flat, this one has asked while it waited.
        let asked = self.met.get() && self.size() <= FLAT;
        if !asked && self.endpoint.world.mode != Mode::Virtual {
            self.ask_for_next();
        }
    }

    /// Peers have read what the next round will write, four rounds ago: asks for its lines, as
    /// many as in this round, so that they come while this rank waits or does something else.
    #[inline]
    pub(super) fn ask_for_next(&self) {
        let index = index_of(self.round + 1);
        prefetch_to_write((&raw const self.page.slots[index]).cast(), 1);
        prefetch_to_write(self.page.payload[index].0.as_ptr().cast(), self.payloads.get());
    }

    /// Runs a part of a reduction, which may be the program's own code unless `op` is trusted. If
    /// that panics, the others are stopped at once, and the panic goes on when this rank's buffers
    /// are safe.
    #[inline]
    pub fn operate(&self, op: &ErasedOp<'_>, operation: impl FnOnce()) -> Result<()> {
        if op.trusted() {
            operation();
            return Ok(());
        }
        self.guard(operation)
    }

    pub(super) fn guard(&self, operation: impl FnOnce()) -> Result<()> {
        let Some(payload) = self.waiter.guard(operation) else { return Ok(()) };
        self.panic.set(Some(payload));
        Err(Error::from("the operation panicked"))
    }
}
