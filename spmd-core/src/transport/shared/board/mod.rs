//! What collectives over the arena are made of: every rank of a communicator shows the call it
//! is in on its own board, and reads those of the others.
//!
//! A *round* is one collective call; its number is the same on all ranks. The owner fills its
//! slot (`round % SLOTS`), then writes the stamp `round, stage`; peers that see the stamp may
//! read what the slot says, after comparing fingerprints. Stages order the steps within a round;
//! in stage 0 the rank has entered the round, and its slot shows the call and no more. A rank that
//! does not wait before stage 1 leaves stage 0 out: peers poll the line that it would write twice.
//!
//! A fingerprint covers all calls of the communicator so far: not all calls make all ranks meet
//! (a broadcast and a reduce may pass by each other), and what differs in one of these is found
//! when the ranks do meet.
//!
//! A slot is used again only when every peer has left the round that used it last
//! ([`Round::run`]). A rank that gives up takes its exposed buffers back and waits until no peer
//! can be reading them ([`Round`]'s `Drop`): a peer announces itself (its own stamp, then a
//! fence) before it looks whether the buffers were withdrawn, and the owner withdraws, then a
//! fence, before it looks whether the peer is there, so one of the two sees the other.

pub(crate) mod agreement;
mod exposure;
mod grace;
mod in_hub;
mod meeting;
mod report;
mod single_copy;

use single_copy::Reading;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::*;

use crate::call::{Call, mix};
use crate::error::{Error, Result};
use crate::group::Scope;
use crate::op::ErasedOp;
use crate::transport::shared::agents::Waiter;
use crate::transport::shared::heap::Block;
use crate::transport::shared::layout::*;
use crate::transport::shared::record::Noted;
use crate::transport::shared::{Common, Endpoint, Hub, Mode, World};

pub(crate) const STAGE_BITS: u32 = 20;
/// The last stage of a round.
pub const LAST_STAGE: u32 = (1 << STAGE_BITS) - 1;
/// Above this size ranks meet over a tree.
pub const FLAT: usize = 16;

/// A communicator's place on the boards of its members, and how far this rank is.
pub(crate) struct Board {
    pub(crate) index: usize,
    round: Cell<u64>,
    /// Every peer is known to have left this round.
    settled: Cell<u64>,
    /// The fingerprint of all calls so far.
    history: Cell<u64>,
    /// How many agreements this rank has begun; `None` once it has left one before its end.
    agreements: Cell<Option<u64>>,
    staging: RefCell<Option<Block>>,
    reading: Cell<Reading>,
}

impl Board {
    /// A place for the communicator of this number, which is part of all its fingerprints: a
    /// peer that still holds the communicator that was here before must not take one for the
    /// other.
    pub(crate) fn new(index: usize, context: u64) -> Board {
        let (round, settled, staging) = Default::default();
        let reading = Cell::new(Reading::Unknown);
        let (history, agreements) = (Cell::new(context), Cell::new(Some(0)));
        Board { index, round, settled, history, agreements, staging, reading }
    }

    /// Whether all ranks know that all may read each other's private memory.
    pub(crate) fn reads_private(&self) -> bool {
        self.reading.get() == Reading::Agreed(true)
    }

    /// The number of this rank's next round, and the fingerprint of all calls with this one.
    #[inline]
    pub(crate) fn next(&self, call: &Call<'_>) -> (u64, u64) {
        let round = self.round.get() + 1;
        self.round.set(round);
        let fingerprint = mix(self.history.get() ^ call.fingerprint());
        self.history.set(fingerprint);
        (round, fingerprint)
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
    /// Where this communicator's ranks meet, if they are virtual and it is the block's own.
    hub: Option<&'a Hub>,
    /// This rank's page, and its slot of this round.
    page: &'a BoardPage,
    slot: &'a Slot,
    exposed: Cell<bool>,
    /// Bytes of the rooms outside of slots.
    rooms: Cell<usize>,
    /// The stamp in this rank's slot, 0 before it shows this round.
    shown: Cell<u64>,
    /// All ranks are known to have entered this round.
    heard: Cell<bool>,
    /// All ranks know that.
    met: Cell<bool>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
    waiter: Waiter<'a>,
}

pub(crate) fn stamp(round: u64, stage: u32) -> u64 {
    round << STAGE_BITS | u64::from(stage)
}

/// Which slot of a page is that of `round`.
#[inline]
fn index_of(round: u64) -> usize {
    (round % SLOTS as u64) as usize
}

#[inline]
fn slot_of(page: &BoardPage, round: u64) -> &Slot {
    &page.slots[index_of(round)]
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
        let (number, fingerprint) = board.next(call);
        let page = endpoint.world.memory.board(endpoint.rank, board.index);
        let round = Round {
            endpoint,
            scope,
            board,
            me,
            round: number,
            fingerprint,
            hub: endpoint.hub(scope),
            page,
            slot: slot_of(page, number),
            exposed: Cell::new(false),
            rooms: Cell::new(0),
            shown: Cell::new(0),
            heard: Cell::new(false),
            met: Cell::new(false),
            panic: Cell::new(None),
            waiter: Waiter::new(endpoint, scope, call, noted),
        };
        let result = round.enter().and_then(|()| body(&round));
        let panic = round.panic.take();
        if panic.is_some() {
            return round.give_up(result, panic);
        }
        // Each arm makes its own result: to hand one over costs as much as an error is long.
        match result {
            Ok(value) => {
                round.finish();
                // It was not given up, and of what it owns nothing is left.
                std::mem::forget(round);
                Ok(value)
            }
            Err(error) => round.give_up(Err(error), None),
        }
    }

    /// Notes the call in this rank's slot, once no peer needs what was there before.
    #[inline(always)]
    fn enter(&self) -> Result<()> {
        if let Some(error) = self.waiter.stopped() {
            return Err(error);
        }
        if let Some(hub) = self.hub {
            self.begin_in(hub)?;
        }
        let reused = self.round.saturating_sub(SLOTS as u64);
        if reused > self.board.settled.get() {
            self.settle(reused)?;
        }
        prefetch_to_write((&raw const *self.slot).cast(), 1);
        self.slot.call.write(self.waiter.call, self.waiter.noted);
        Ok(())
    }

    /// Ends a call that has failed, or in which an operation panicked.
    #[cold]
    fn give_up<R>(self, result: Result<R>, panic: Option<Box<dyn Any + Send>>) -> Result<R> {
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
    /// this process that asks for it. It stays until the last who has it drops it; who keeps it until
    /// all have come to a later round lets nobody make it again.
    pub fn common<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Common<T> {
        Common::of(&self.endpoint.world, (self.scope.context, self.round), make)
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
    fn page_of(&self, rank: usize) -> &BoardPage {
        self.endpoint.world.memory.board(self.scope.here.world(rank), self.board.index)
    }

    /// The slot of `rank` for this round.
    #[inline]
    fn slot_of(&self, rank: usize) -> &Slot {
        slot_of(self.page_of(rank), self.round)
    }

    /// Waits until every peer has left `round`, so that its slot can be used again.
    #[cold]
    fn settle(&self, round: u64) -> Result<()> {
        if let Some(hub) = self.hub {
            self.wait_in(hub, round + 1, || hub.all_left(round).then_some(()))?;
            self.board.settled.set(round);
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
        self.board.settled.set(least.min(self.round - 1));
        Ok(())
    }

    /// The last round that `peer` is known to have left.
    fn left_by(&self, peer: usize) -> u64 {
        match self.hub {
            Some(hub) => hub.left_by(peer),
            None => self.page_of(peer).done.0.load(Acquire),
        }
    }

    /// Shows no buffers any more, so that no peer takes these for those of a later round.
    #[inline]
    fn hide(&self) {
        if self.exposed.get() {
            self.slot.exposed.iter().for_each(|shown| shown.place.store(0, Relaxed));
        }
    }

    /// The round is over for this rank. If not all ranks are known to have met in it, peers may
    /// sleep until they can use a slot again. If they have, a peer can get to such a sleep only
    /// three rounds later, before this rank has come from its last meeting to here: it looks up
    /// by itself then, or is woken by this rank's next call.
    #[inline(always)]
    fn finish(&self) {
        self.show();
        self.hide();
        if self.met.get() || self.heard.get() {
            self.board.settled.set(self.round - 1);
        }
        if let Some(hub) = self.hub {
            self.leave(hub);
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
    fn ask_for_next(&self) {
        let index = index_of(self.round + 1);
        prefetch_to_write((&raw const self.page.slots[index]).cast(), 1);
        prefetch_to_write(self.page.payload[index].0.as_ptr().cast(), self.rooms.get());
    }

    /// Runs a part of a reduction, which may be the program's own code unless `op` is trusted. If
    /// that panics, the others are stopped at once, and the panic goes on when this rank's buffers
    /// are safe.
    #[inline]
    pub fn operate(&self, op: ErasedOp<'_>, operation: impl FnOnce()) -> Result<()> {
        if op.trusted() {
            operation();
            return Ok(());
        }
        self.guard(operation)
    }

    fn guard(&self, operation: impl FnOnce()) -> Result<()> {
        let Some(payload) = self.waiter.guard(operation) else { return Ok(()) };
        self.panic.set(Some(payload));
        Err(Error::from("the operation panicked"))
    }
}

/// Asks for the lines of `place`, which peers have read, before they are written.
#[inline]
fn prefetch_to_write(place: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which changes no memory and does not fault, whatever the address.
        unsafe {
            let line = place.wrapping_add(line);
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(readonly, nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (place, line);
    }
}
