//! Reduce-scatter (MPI 5.0 section 6.10).

use std::panic::Location;

use spmd_core::algorithm::{Call, ErasedOp, Kind, PAYLOAD, Round};
use spmd_core::{Buffer, BufferMut, Comm, Operation, Result};

use crate::alone::alone;
use crate::blocks::Blocks;
use crate::check;
use crate::data::{Input, Output};
use crate::large::{Large, Way, two_segments};
use crate::reducing::Reduction;
use crate::select::{Algorithm::*, choose};

/// Reductions of which every rank gets a block (MPI 5.0 section 6.10).
///
/// ```
/// # use spmd_collectives::ReduceScatter;
/// # use spmd_core::{Sum, spmd};
/// let sums = spmd(2, |ctx| {
///     let mut sum = [0];
///     ctx.reduce_scatter(&[1, 10], &mut sum, Sum).map(|()| sum[0])
/// })?;
/// assert_eq!(sums, [2, 20]);
/// # Ok::<(), spmd_core::Error>(())
/// ```
pub trait ReduceScatter {
    /// Folds the ranks' `send` element by element with `op`; rank i gets the i-th block of the
    /// result in `recv`. `send` holds as many blocks of the length of `recv` as there are ranks.
    /// All ranks call it, with equal lengths.
    ///
    /// The fold is in the canonical order of [`spmd_core::op`]: the same bits in every placement,
    /// and those that an allreduce gives.
    ///
    /// Errors: `send` is not as many times as long as `recv`; a rank has failed, left, or makes
    /// another call.
    ///
    /// ```
    /// # use spmd_collectives::ReduceScatter;
    /// # use spmd_core::{spmd, Result, Sum};
    /// spmd(3, |ctx| {
    ///     let mut sum = [0];
    ///     ctx.reduce_scatter(&[1, 10, 100], &mut sum, Sum)?;
    ///     assert_eq!(sum, [[3], [30], [300]][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter<S, R, O>(&self, send: &S, recv: &mut R, op: O) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>;

    /// [`ReduceScatter::reduce_scatter`] with blocks of any lengths: `counts` gives the elements
    /// of each rank's, the same on all ranks.
    ///
    /// Errors: the counts are not one a rank, don't add up to the length of `send`, or differ
    /// between ranks (an error on every rank); `recv` has another length than this rank's count;
    /// a rank has failed, left, or makes another call.
    ///
    /// ```
    /// # use spmd_collectives::ReduceScatter;
    /// # use spmd_core::{spmd, Result, Sum};
    /// spmd(2, |ctx| {
    ///     let counts = [1, 2];
    ///     let mut sums = vec![0; counts[ctx.rank()]];
    ///     ctx.reduce_scatterv(&[1, 10, 100], &mut sums, &counts, Sum)?;
    ///     assert_eq!(sums, [vec![2], vec![20, 200]][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatterv<S, R, O>(
        &self,
        send: &S,
        recv: &mut R,
        counts: &[usize],
        op: O,
    ) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>;

    /// [`ReduceScatter::reduce_scatter`] of `buf` into its own first block, whichever rank this
    /// is. The rest of `buf` stays as it was.
    ///
    /// Errors: as [`ReduceScatter::reduce_scatter`].
    ///
    /// ```
    /// # use spmd_collectives::ReduceScatter;
    /// # use spmd_core::{spmd, Result, Sum};
    /// spmd(2, |ctx| {
    ///     let mut buf = [1, 10];
    ///     ctx.reduce_scatter_in_place(&mut buf, Sum)?;
    ///     assert_eq!(buf, [[2, 10], [20, 10]][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_in_place<R, O>(&self, buf: &mut R, op: O) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>;
}

impl ReduceScatter for Comm {
    fn reduce_scatter<S, R, O>(&self, send: &S, recv: &mut R, op: O) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>,
    {
        let input = Input::new(send.view());
        let mut output = Output::new(recv.view_mut());
        let op = ErasedOp::new::<S::Elem, O>(&op);
        let (dtype, count) = (input.dtype(), input.len());
        let call = Call::new(Kind::ReduceScatter, Location::caller()).data(dtype, count).op(op);
        let expected = output.len().saturating_mul(self.size());
        check::length(&call, "send buffer", count, expected)?;
        let blocks = Blocks::Equal(output.len());
        let reduction = Reduction { dtype, op, count };
        // SAFETY: the buffers hold that many elements, and are held here.
        unsafe { reduce_scatter(self, &call, reduction, &blocks, input.ptr(), output.ptr())? };
        output.commit();
        Ok(())
    }

    fn reduce_scatterv<S, R, O>(
        &self,
        send: &S,
        recv: &mut R,
        counts: &[usize],
        op: O,
    ) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>,
    {
        let input = Input::new(send.view());
        let mut output = Output::new(recv.view_mut());
        let op = ErasedOp::new::<S::Elem, O>(&op);
        let (dtype, count) = (input.dtype(), input.len());
        let call = Call::new(Kind::ReduceScatterv, Location::caller()).data(dtype, count).op(op);
        let blocks = Blocks::varying(&call, counts, self.size(), "send buffer", count)?;
        check::length(&call, "receive buffer", output.len(), counts[self.rank()])?;
        let reduction = Reduction { dtype, op, count };
        // SAFETY: the buffers hold that many elements, and are held here.
        unsafe { reduce_scatter(self, &call, reduction, &blocks, input.ptr(), output.ptr())? };
        output.commit();
        Ok(())
    }

    fn reduce_scatter_in_place<R, O>(&self, buf: &mut R, op: O) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>,
    {
        let mut output = Output::new(buf.view_mut());
        let op = ErasedOp::new::<R::Elem, O>(&op);
        let (dtype, count) = (output.dtype(), output.len());
        let call = Call::new(Kind::ReduceScatter, Location::caller()).data(dtype, count).op(op);
        check::length(&call, "buffer", count, count.next_multiple_of(self.size()))?;
        let into = output.ptr();
        if self.size() == 1 {
            // SAFETY: nothing is copied.
            return unsafe { alone(self, &call, into, into, 0) };
        }
        let blocks = Blocks::Equal(count / self.size());
        let reduction = Reduction { dtype, op, count };
        let mut result = vec![0u8; reduction.bytes() / self.size()];
        // SAFETY: the buffer holds that many elements, and the vector a block of them; peers have
        // read the buffer when the result goes there.
        unsafe {
            reduce_scatter(self, &call, reduction, &blocks, into, result.as_mut_ptr())?;
            std::ptr::copy_nonoverlapping(result.as_ptr(), into, result.len());
        }
        output.commit();
        Ok(())
    }
}

/// The number under which a rank says the digest of its blocks.
const DIGEST: usize = 1;

/// After the first meeting: the same error on all ranks, if their blocks differ.
fn check_agreed(round: &Round<'_>, blocks: &Blocks) -> Result<()> {
    let Blocks::Varying(_) = blocks else { return Ok(()) };
    let digest = blocks.digest();
    if (0..round.size()).any(|peer| round.number_of(peer, DIGEST) != digest) {
        return Err(round.disagree("different counts"));
    }
    Ok(())
}

/// # Safety
/// `send` holds the reduction's elements, all blocks among them; `recv` has room for this rank's,
/// apart from `send`.
unsafe fn reduce_scatter(
    comm: &Comm,
    call: &Call<'_>,
    reduction: Reduction<'_>,
    blocks: &Blocks,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    if comm.size() == 1 {
        // SAFETY: as the caller promises; this rank's block is the only one.
        return unsafe { alone(comm, call, send, recv, reduction.bytes()) };
    }
    let fits = reduction.bytes() <= PAYLOAD;
    let default = if fits { Flat } else { Chunked };
    let bytes = reduction.bytes();
    let choice = choose(comm, call.kind, bytes, default, |it| fits || it == Chunked);
    comm.collective(call, |round| {
        round.set_number(DIGEST, blocks.digest());
        // SAFETY: as the caller promises.
        unsafe {
            match choice {
                Flat => flat(round, reduction, blocks, send, recv),
                _ => chunked(round, comm.segment(), reduction, blocks, send, recv),
            }
        }
    })
}

/// Everybody shows its input, meets, and folds its block of all of them. One step; n reads of a
/// block a rank.
///
/// # Safety
/// As [`reduce_scatter`].
unsafe fn flat(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    blocks: &Blocks,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let bytes = reduction.bytes();
    // SAFETY: the room has that many bytes, and so has `send`.
    unsafe { std::ptr::copy_nonoverlapping(send, round.room(bytes), bytes) };
    round.arrive(1)?;
    check_agreed(round, blocks)?;
    let me = round.rank();
    let (start, count) = blocks.of(me);
    // SAFETY: all have published rooms of all elements, the block among them, as it is in `send`;
    // `recv` has room.
    unsafe {
        let all = |peer| if peer == me { send } else { round.room_of(peer, bytes) };
        let input = |peer| all(peer).add(start * reduction.size());
        reduction.fold(round, count, round.size(), recv, input)
    }
}

/// Everybody folds its block of all inputs where they are, or, a piece of every block at a time,
/// in the staging areas. Two meetings, or one a segment; n reads of a block a rank.
///
/// # Safety
/// As [`reduce_scatter`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    reduction: Reduction<'_>,
    blocks: &Blocks,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (n, me, size) = (round.size(), round.rank(), reduction.size());
    let longest = (0..n).map(|rank| blocks.of(rank).1).max().unwrap_or(0);
    let step = match n {
        2 => two_segments(segment / n, longest * size, size),
        _ => (segment / (n * size)).max(1),
    };
    let input = (send, reduction.bytes());
    let nothing = (std::ptr::null(), 0);
    let piece = |turn: usize, count: usize| count.saturating_sub(turn * step).min(step);
    let fill = |large: &Large<'_, '_>, turn: usize| {
        for rank in (0..n).filter(|rank| *rank != me) {
            let (first, count) = blocks.of(rank);
            // SAFETY: a place has room for a piece of each block; the piece lies in `send`.
            unsafe {
                let from = send.wrapping_add((first + turn * step) * size);
                let into = large.next_for(rank, turn);
                std::ptr::copy_nonoverlapping(from, into, piece(turn, count) * size);
            }
        }
    };
    // SAFETY: the buffer is the caller's, and nobody writes it during the call; the last meeting
    // is after the last read.
    let large = unsafe {
        let way = Way::Pieces(step * size);
        Large::meet(round, reduction.dtype, input, nothing, way, |large| fill(large, 0))?
    };
    check_agreed(round, blocks)?;
    if large.direct {
        // SAFETY: the block lies within the inputs, and `recv` has room for it.
        unsafe { reduction.fold_direct(&large, reduction.count, blocks.of(me), recv, &[])? };
        return large.arrive();
    }
    let mut inputs = Vec::with_capacity(n);
    for turn in 0..longest.div_ceil(step) {
        let (first, all) = blocks.of(me);
        let (start, count) = (turn * step, piece(turn, all));
        if count > 0 {
            let offset = (first + start) * size;
            inputs.clear();
            // SAFETY: peers' places, whose length is checked, hold a piece of this rank's block,
            // which lies within all inputs, and for which `recv` has room; meetings order writing
            // and reading.
            unsafe {
                for peer in 0..n {
                    inputs.push(if peer == me {
                        send.add(offset)
                    } else {
                        let staged = || large.next_from(peer, turn);
                        large.source(peer, (offset, reduction.bytes()), staged)?
                    });
                }
                reduction.fold(round, count, n, recv.add(start * size), |peer| inputs[peer])?;
            }
        }
        if large.staged {
            fill(&large, turn + 1);
        }
        large.arrive()?;
    }
    Ok(())
}
