//! Small collectives of ranks that have a combining barrier. Nothing of the rank's own page in the
//! arena takes part in them: with thousands of ranks, what a call touches decides what it takes.

use std::time::Duration;

use super::communicator::Comm;
use super::internals::Internals;
use crate::call::Call;
use crate::copy::copy_bytes;
use crate::element::DType;
use crate::error::{Error, Result};
use crate::op::{ErasedOp, fold_ranks};
use crate::transport::shared::collective::stamp;
use crate::transport::shared::waiter::{Waiter, WaiterHooks};
use crate::transport::shared::{Arrival, CombiningBarrier, FEW, RankSlot, RoundStart};
use crate::wait::{self, Bell, WaitHooks};

/// One small collective call under way in the combining barrier.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct CombiningCall<'a> {
    comm: &'a Comm,
    combining: &'a CombiningBarrier,
    rank_slot: RankSlot<'a>,
    call: &'a Call<'a>,
    round: u64,
    fingerprint: u64,
}

impl<'a> Internals<'a> {
    /// Whether so many bytes a rank, of a type of which any bytes are a value, can go through the
    /// combining barrier ([`Internals::collective_combined`]).
    #[inline]
    pub fn fits_combining(self, bytes: usize, dtype: &DType) -> bool {
        bytes <= FEW && self.has_combining() && !self.0.endpoint.must_check(dtype)
    }

    /// Whether the combining barrier folds such a reduction ([`CombiningCall::reduce`]).
    #[inline]
    pub fn folds_combining(self, bytes: usize, dtype: &DType) -> bool {
        self.fits_combining(bytes, dtype)
            && self.0.endpoint.combining(&self.0.scope).is_some_and(CombiningBarrier::has_trees)
    }

    /// Whether all ranks can read each other's buffers where they are, as they share an address
    /// space.
    pub fn one_address_space(self) -> bool {
        self.0.endpoint.world.one_address_space()
    }

    /// Whether ranks of one address space write into nobody's results of this type, as such data
    /// are checked by who gets them.
    pub fn closes(self, dtype: &DType) -> bool {
        self.one_address_space() && self.0.endpoint.must_check(dtype)
    }

    /// [`Internals::collective`] in the combining barrier. Panics where the ranks have none
    /// ([`Internals::has_combining`]).
    #[inline]
    pub fn collective_combined<R>(
        self,
        call: &'a Call<'a>,
        body: impl FnOnce(&CombiningCall<'a>) -> Result<R>,
    ) -> Result<R> {
        let combining =
            self.0.endpoint.combining(&self.0.scope).expect("the ranks have a combining barrier");
        self.0.carried(call, || {
            let (round, fingerprint) = self.0.area.next(call);
            let rank_slot = combining.rank_slot(self.0.me);
            let it = CombiningCall { comm: self.0, combining, rank_slot, call, round, fingerprint };
            it.begin().and_then(|()| body(&it)).map_err(|error| it.give_up(error))
        })
    }
}

impl CombiningCall<'_> {
    /// Compares this rank's call with those of the ranks that were here before.
    #[inline]
    fn begin(&self) -> Result<()> {
        if let Some(error) = self.stopped() {
            return Err(error);
        }
        match self.rank_slot.begin(self.round, self.fingerprint, self.call.site) {
            RoundStart::Same => Ok(()),
            RoundStart::First => self.write_down(),
            RoundStart::Mismatch(peer) => Err(self.mismatch(peer)),
        }
    }

    /// The fault that stops this communicator, if there is one.
    #[inline]
    fn stopped(&self) -> Option<Error> {
        #[cold]
        #[inline(never)]
        fn look(call: &CombiningCall<'_>) -> Option<Error> {
            call.waiter().stopped()
        }
        let comm = self.comm;
        let seen = comm.endpoint.world.faults_seen() == comm.scope.faults_seen.get();
        if seen { None } else { look(self) }
    }

    /// Peers in this call may wait for what never comes.
    #[cold]
    #[inline(never)]
    fn give_up(&self, error: Error) -> Error {
        self.waiter().give_up(&error);
        error
    }

    /// This rank is the first of its worker. While it waits for the payload, another one may be.
    #[inline(never)]
    fn write_down(&self) -> Result<()> {
        let (combining, rank_slot, round) = (self.combining, self.rank_slot, self.round);
        if !combining.has_room(round) {
            let late = LazyHooks::of(self, combining.oldest(round));
            self.wait(late, false, || combining.has_room(round).then_some(()))?;
            match rank_slot.begin(round, self.fingerprint, self.call.site) {
                RoundStart::Same => return Ok(()),
                RoundStart::First => {}
                RoundStart::Mismatch(peer) => return Err(self.mismatch(peer)),
            }
        }
        let noted = self.comm.note(self.call);
        rank_slot.write_down(round, self.fingerprint, self.call, noted);
        Ok(())
    }

    /// Waits until all ranks have come here.
    #[inline]
    pub fn meet(&self) -> Result<()> {
        self.meet_with(|| Ok(()), || Ok(()))
    }

    /// The last rank of each worker to come runs `at_worker`, the last of all then `at_last`,
    /// before all go on.
    #[inline]
    fn meet_with(
        &self,
        at_worker: impl FnOnce() -> Result<()>,
        at_last: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (combining, world) = (self.combining, &self.comm.endpoint.world);
        let meeting = stamp(self.round, 1);
        let (here, wake) = ((meeting, self.fingerprint), |rank| world.wake_worker_of(rank));
        match combining.meet(self.rank_slot, here, at_worker, at_last, wake)? {
            Arrival::Early => {}
            Arrival::Last => return Ok(()),
            Arrival::Mismatch(peer) => return Err(self.mismatch(peer)),
        }
        self.wait(LazyHooks::of(self, self.round), true, || {
            combining.is_over(meeting).then_some(())
        })
    }

    /// Copies the root's `bytes` at `buf` to everybody's. The root goes on at once, the others when
    /// it has come.
    ///
    /// # Safety
    /// `buf` has room for `bytes`, and holds as many on the root.
    #[inline]
    pub unsafe fn broadcast(&self, root: usize, buf: *mut u8, bytes: usize) -> Result<()> {
        assert!(bytes <= FEW);
        let (combining, me, round) = (self.combining, self.comm.me, self.round);
        let world = &self.comm.endpoint.world;
        if me == root {
            // SAFETY: the payload has `FEW` bytes, and so many has `buf`; nobody reads it before it
            // is shown, as all have left the round that used it last.
            unsafe { copy_bytes(buf, self.rank_slot.to_show(round), bytes) };
            self.rank_slot.show(round, self.fingerprint);
            world.ring_combining(combining);
        } else {
            let late = LazyHooks { on: Some(root), ..LazyHooks::of(self, round) };
            let shown = self.wait(late, false, || combining.shown_by(root, round));
            let (fingerprint, from) = shown?;
            if fingerprint != self.fingerprint {
                return Err(self.mismatch(root));
            }
            // SAFETY: the root has shown its payload, and does not write it before this rank has
            // left the round.
            unsafe { copy_bytes(from, buf, bytes) };
        }
        if self.rank_slot.leave(round) {
            world.ring_combining(combining);
        }
        Ok(())
    }

    /// Folds `count` elements of `size` bytes at each rank's `send` into `recv`, where that is not
    /// null. All ranks meet.
    ///
    /// # Safety
    /// [`Internals::folds_combining`] so many bytes. `send` holds `count` values of the operation's
    /// type, any bytes of which are one; `recv` has room for as many, or is null.
    #[inline]
    pub unsafe fn reduce(
        &self,
        op: &ErasedOp<'_>,
        size: usize,
        count: usize,
        send: *const u8,
        recv: *mut u8,
    ) -> Result<()> {
        let (combining, rank_slot, bytes) = (self.combining, self.rank_slot, count * size);
        assert!(bytes <= FEW);
        // SAFETY: the payload has `FEW` bytes, and is read by those who fold alone, before the
        // ranks part.
        unsafe { copy_bytes(send, rank_slot.payload(bytes), bytes) };
        let at_worker = || {
            // SAFETY: all ranks of this worker have filled their payloads, and wait.
            self.operate(op, || unsafe { rank_slot.fold_tree(op, size, count) })
        };
        let at_last = || {
            let mut input = |worker| combining.folded_by(worker);
            let (out, workers) = (combining.outcome().cast_mut(), combining.workers());
            // SAFETY: each worker's fold lies in the payload of its first rank; all ranks wait, and
            // have read the outcome of the meeting before.
            self.operate(op, || unsafe {
                fold_ranks(op, size, out, count, workers, &mut input, &mut Vec::new());
            })
        };
        self.meet_with(at_worker, at_last)?;
        if !recv.is_null() {
            // SAFETY: the last rank has left the result there, and it stays until this rank comes
            // to the next meeting.
            unsafe { copy_bytes(combining.outcome(), recv, bytes) };
        }
        Ok(())
    }

    /// Runs a part of a reduction, which may be the program's own code unless `op` is trusted. If
    /// that panics, the others are stopped, and the panic goes on: no peer uses memory of this
    /// rank.
    #[inline]
    fn operate(&self, op: &ErasedOp<'_>, operation: impl FnOnce()) -> Result<()> {
        if op.trusted() {
            operation();
        } else if let Some(payload) = self.waiter().guard(operation) {
            std::panic::resume_unwind(payload);
        }
        Ok(())
    }

    /// Waits for `poll`. `woken`: whoever makes it true wakes this rank in any case.
    #[inline(always)]
    fn wait<T>(
        &self,
        mut late: LazyHooks<'_, '_>,
        woken: bool,
        poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let unasked = woken || self.combining.has_one_worker();
        let bell = || Bell::common(self.rank_slot.bell(), None).unasked(unasked);
        wait::until_woken(bell, &mut late, poll)
    }

    #[cold]
    #[inline(never)]
    fn waiter(&self) -> Waiter<'_> {
        let comm = self.comm;
        Waiter::new(&comm.endpoint, &comm.scope, self.call, comm.note(self.call))
    }

    #[cold]
    #[inline(never)]
    fn mismatch(&self, peer: usize) -> Error {
        let comm = self.comm;
        let me = (comm.me, self.round, self.call);
        self.waiter().stop(&comm.endpoint.world.combining_mismatch(self.combining, me, peer))
    }
}

/// The hooks of a wait in the combining barrier: it makes what it needs when the wait lasts.
struct LazyHooks<'c, 'a> {
    call: &'c CombiningCall<'a>,
    /// Whom the wait is for: this rank, or whoever has not come to the round.
    on: Option<usize>,
    round: u64,
    waiter: Option<Box<Waiter<'c>>>,
}

impl<'c, 'a> LazyHooks<'c, 'a> {
    #[inline]
    fn of(call: &'c CombiningCall<'a>, round: u64) -> LazyHooks<'c, 'a> {
        LazyHooks { call, on: None, round, waiter: None }
    }
}

impl WaitHooks for LazyHooks<'_, '_> {
    #[inline]
    fn interrupted(&self) -> Option<Error> {
        self.call.stopped()
    }

    #[cold]
    #[inline(never)]
    fn awake(&mut self) {
        if let Some(waiter) = &self.waiter {
            WaiterHooks { waiter, late: || Ok(()) }.awake();
        }
    }

    #[cold]
    #[inline(never)]
    fn overdue(&mut self, waited: Duration, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        let (call, on, round) = (self.call, self.on, self.round);
        let waiter = self.waiter.get_or_insert_with(|| Box::new(call.waiter()));
        let waiter = &**waiter;
        let late = || {
            if let Some(peer) = call.combining.other_call(call.comm.me) {
                return Err(call.mismatch(peer));
            }
            waiter.waits_on(on.or_else(|| call.combining.behind(round)));
            Ok(())
        };
        WaiterHooks { waiter, late }.overdue(waited, ready)
    }
}
