//! Allreduce (MPI 5.0 section 6.9.6).

use std::panic::Location;

use spmd_core::algorithm::{Call, ErasedOp, Kind, PAYLOAD, Round};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Result};

use crate::alone::alone;
use crate::check;
use crate::data::{Input, Output};
use crate::large::{Large, RECV, part};
use crate::reducing::{Reduction, tell_down_tree};
use crate::select::{Algorithm::*, choose};

/// Reductions whose result goes to everybody (MPI 5.0 section 6.9.6).
///
/// ```
/// # use spmd_collectives::Allreduce;
/// # use spmd_core::{Max, spmd};
/// let last = spmd(3, |ctx| ctx.allreduce_value(ctx.rank(), Max))?;
/// assert_eq!(last, [2; 3]);
/// # Ok::<(), spmd_core::Error>(())
/// ```
pub trait Allreduce {
    /// Folds the ranks' `send` element by element with `op`; all get the result in `recv`. All
    /// ranks call it, with equal lengths.
    ///
    /// The fold is in the canonical order of [`spmd_core::op`]: the result is the same to the last
    /// bit on every rank, in every placement.
    ///
    /// Errors: `recv` is not as long as `send`; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// # use spmd_collectives::Allreduce;
    /// # use spmd_core::{spmd, Result, Sum};
    /// spmd(3, |ctx| {
    ///     let mut sums = [0; 2];
    ///     ctx.allreduce(&[ctx.rank(), 1], &mut sums, Sum)?;
    ///     assert_eq!(sums, [3, 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn allreduce<S, R, O>(&self, send: &S, recv: &mut R, op: O) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>;

    /// [`Allreduce::allreduce`] of `buf` into itself.
    ///
    /// Errors: as [`Allreduce::allreduce`].
    ///
    /// ```
    /// # use spmd_collectives::Allreduce;
    /// # use spmd_core::{spmd, Max, Result};
    /// spmd(3, |ctx| {
    ///     let mut most = [ctx.rank() as f64];
    ///     ctx.allreduce_in_place(&mut most, Max)?;
    ///     assert_eq!(most, [2.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn allreduce_in_place<R, O>(&self, buf: &mut R, op: O) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>;

    /// [`Allreduce::allreduce`] of one element.
    ///
    /// Errors: as [`Allreduce::allreduce`].
    ///
    /// ```
    /// # use spmd_collectives::Allreduce;
    /// # use spmd_core::{spmd, Result, Sum};
    /// let sums = spmd(4, |ctx| ctx.allreduce_value(ctx.rank(), Sum))?;
    /// assert_eq!(sums, [6; 4]);
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn allreduce_value<T: Element, O: Operation<T>>(&self, value: T, op: O) -> Result<T>;
}

impl Allreduce for Comm {
    fn allreduce<S, R, O>(&self, send: &S, recv: &mut R, op: O) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>,
    {
        let input = Input::new(send.view());
        let mut output = Output::new(recv.view_mut());
        let op = ErasedOp::new::<S::Elem, O>(&op);
        let call = call(&input, op, Location::caller());
        check::length(&call, "receive buffer", output.len(), input.len())?;
        let (from, into) = (input.ptr(), output.ptr());
        let reduction = Reduction { dtype: input.dtype(), op, count: input.len() };
        // SAFETY: both buffers hold that many elements, and are held here.
        unsafe { allreduce(self, &call, reduction, from, into)? };
        output.commit();
        Ok(())
    }

    fn allreduce_in_place<R, O>(&self, buf: &mut R, op: O) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>,
    {
        let mut output = Output::new(buf.view_mut());
        let op = ErasedOp::new::<R::Elem, O>(&op);
        let (dtype, count) = (output.dtype(), output.len());
        let call = Call::new(Kind::Allreduce, Location::caller()).data(dtype, count).op(op);
        let into = output.ptr();
        // SAFETY: the buffer holds that many elements, and is held here.
        unsafe { allreduce(self, &call, Reduction { dtype, op, count }, into, into)? };
        output.commit();
        Ok(())
    }

    fn allreduce_value<T: Element, O: Operation<T>>(&self, value: T, op: O) -> Result<T> {
        let mut result = value;
        let op = ErasedOp::new::<T, O>(&op);
        let call = Call::new(Kind::Allreduce, Location::caller()).data(T::DTYPE, 1).op(op);
        let into = (&raw mut result).cast();
        // SAFETY: the value is one element, and is held here.
        unsafe {
            allreduce(self, &call, Reduction { dtype: T::DTYPE, op, count: 1 }, into, into)?;
        }
        Ok(result)
    }
}

#[inline]
fn call<'a>(input: &Input<'_>, op: ErasedOp<'a>, site: &'static Location<'static>) -> Call<'a> {
    Call::new(Kind::Allreduce, site).data(input.dtype(), input.len()).op(op)
}

/// Bytes of all ranks up to which one of them folds alone: the others may have workers of their
/// own.
const CENTRAL: usize = 32 << 10;

/// # Safety
/// `send` holds the reduction's elements, `recv` has room for them; they are the same or apart.
pub(crate) unsafe fn allreduce(
    comm: &Comm,
    call: &Call<'_>,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    if comm.size() == 1 {
        // SAFETY: as the caller promises.
        return unsafe { alone(comm, call, send, recv, reduction.bytes()) };
    }
    let fits = reduction.bytes() <= PAYLOAD;
    let central = fits && comm.has_hub();
    let hub = central && comm.folds_in_hub(reduction.bytes(), reduction.dtype);
    let default = if hub {
        Hub
    } else if !fits {
        Chunked
    } else if central && reduction.bytes() * comm.size() <= CENTRAL {
        Central
    } else if comm.size() <= comm.flat_limit() {
        Flat
    } else {
        Tree
    };
    let choice = choose(comm, call.kind, reduction.bytes(), default, |it| match it {
        Central => central,
        Hub => hub,
        _ => fits || it == Chunked,
    });
    if choice == Hub {
        // SAFETY: as the caller promises.
        return unsafe { reduction.in_hub(comm, call, send, recv) };
    }
    comm.collective(call, |round| {
        // SAFETY: as the caller promises.
        unsafe {
            match choice {
                Flat => flat(round, reduction, send, recv),
                Tree => tree(round, reduction, send, recv),
                Central => central_fold(round, reduction, send, recv),
                _ => chunked(round, comm.segment(), reduction, send, recv),
            }
        }
    })
}

/// Everybody shows its input, meets, and folds all of them. One step; n − 1 reads of the data a
/// rank.
///
/// # Safety
/// As [`allreduce`].
unsafe fn flat(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let bytes = reduction.bytes();
    // SAFETY: the room has that many bytes, and so has `send`.
    unsafe { std::ptr::copy_nonoverlapping(send, round.room(bytes), bytes) };
    round.arrive(1)?;
    // SAFETY: all have published; `recv` has room.
    unsafe { reduction.fold_rooms(round, round.size(), send, recv) }
}

/// Everybody shows its input; the last to arrive folds all of them before the others go on. One
/// step; n reads of the data on one rank, one on the others.
///
/// # Safety
/// As [`allreduce`], where the ranks have a hub.
unsafe fn central_fold(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let bytes = reduction.bytes();
    let room = round.room(bytes);
    // SAFETY: the room has that many bytes, and so has `send`; `recv` has room. While one rank
    // works, the others wait in the meeting. Its room is the result after that, which it does not
    // write again before all have left this round.
    unsafe {
        std::ptr::copy_nonoverlapping(send, room, bytes);
        let last = round.arrive_and(1, || reduction.fold_rooms(round, round.size(), send, room))?;
        crate::large::take(
            round,
            reduction.dtype,
            last,
            round.room_of(last, bytes),
            recv,
            reduction.count,
        )
    }
}

/// Folds up a binomial tree, then tells the result down it. 2 log₂ n steps; two reads of the data
/// a rank.
///
/// # Safety
/// As [`allreduce`].
unsafe fn tree(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (bytes, last) = (reduction.bytes(), round.size() - 1);
    // SAFETY: the room has that many bytes, and so has `send`; the fold is over when everybody
    // has been told, and the last rank's room is written no more.
    unsafe {
        std::ptr::copy_nonoverlapping(send, round.room(bytes), bytes);
        reduction.fold_up_tree(round)?;
        tell_down_tree(round)?;
        let from = round.room_of(last, bytes);
        crate::large::take(round, reduction.dtype, last, from, recv, reduction.count)
    }
}

/// Every rank folds one part of all inputs, and writes it into all results, or where that cannot
/// be, reads the parts of the others (Rabenseifner's reduce-scatter and allgather, over shared
/// memory). Two meetings, or one a segment and three more where data go through staging;
/// 2 (n − 1)/n reads or writes of the data a rank.
///
/// # Safety
/// As [`allreduce`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (n, me, size) = (round.size(), round.rank(), reduction.size());
    let total = reduction.bytes();
    let step = reduction.step(segment);
    // SAFETY: the buffers are the caller's; the algorithm reads as it meets.
    let large = unsafe {
        let first = |large: &Large<'_, '_>| reduction.fill(large, step, 0, send);
        let (send, recv) = ((send, total), (recv.cast_const(), total));
        Large::meet(round, reduction.dtype, send, recv, reduction.pieces(step, n), first)?
    };
    let mine = part(reduction.count, n, me);
    if large.pushes() {
        let mut others = Vec::with_capacity(n);
        for peer in (1..n).map(|step| (me + step) % n) {
            // SAFETY: the part lies within the peer's buffer, whose length `reach` has checked.
            others.push(unsafe { large.reach(peer, RECV, total)?.cast_mut().add(mine.0 * size) });
        }
        // SAFETY: the peers hold their `recv` for writing until all ranks have met again, or have
        // left the round if they give up. Only this rank writes this part of them, and reads this
        // part of any `send` if that is the same memory: an element of it before the fold is
        // copied on.
        unsafe {
            let into = recv.add(mine.0 * size);
            reduction.fold_direct(&large, reduction.count, mine, into, &others)?;
        }
        return large.arrive();
    }
    if large.direct {
        // SAFETY: nobody else writes this part of `recv`, or reads this part of its `send` if
        // that is the same memory; all parts lie within the buffers.
        unsafe {
            let into = recv.add(mine.0 * size);
            reduction.fold_direct(&large, reduction.count, mine, into, &[])?;
            large.arrive()?;
            for peer in (1..n).map(|step| (me + step) % n) {
                let (start, count) = part(reduction.count, n, peer);
                let from = large.reach(peer, RECV, total)?.add(start * size);
                large.take(peer, from, recv.add(start * size), count)?;
            }
        }
        return large.arrive();
    }
    // SAFETY: as the caller promises, and as just met.
    unsafe { reduction.fold_staged(&large, step, None, send, recv) }
}
