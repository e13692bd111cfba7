//! Reduce-scatter (MPI 5.0 section 6.10).

mod algorithms;
pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use algorithms::{REDUCE_SCATTER, REDUCE_SCATTERV};
use spmd_core::internal::{Args, Blocks, Call, ErasedOp, Form, Kind, Memory, dispatch};
use spmd_core::{Buffer, BufferMut, Comm, DType, Operation, Result};

use crate::blocks::displacements;
use crate::check;
use crate::data::{Input, Output};
use crate::sealed::Sealed;

/// Reductions of which every rank gets a block (MPI 5.0 section 6.10).
///
/// ```
/// use spmd::prelude::*;
///
/// let sums = spmd(2, |ctx| {
///     let mut sum = [0];
///     ctx.reduce_scatter(&[1, 10], &mut sum, Sum).map(|()| sum[0])
/// })?;
/// assert_eq!(sums, [2, 20]);
/// # Ok::<(), Error>(())
/// ```
pub trait ReduceScatter: Sealed {
    /// Folds the ranks' `send` element by element with `op`; rank i gets the i-th block of the
    /// result in `recv`. `send` holds as many blocks of the length of `recv` as there are ranks.
    /// All ranks call it, with equal lengths.
    ///
    /// The fold is in the canonical order of [`op`](spmd_core::op): the same bits in every placement,
    /// and those that an allreduce gives.
    ///
    /// Errors: `send` is not as many times as long as `recv`; a rank has failed, left, or makes
    /// another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut sum = [0];
    ///     ctx.reduce_scatter(&[1, 10, 100], &mut sum, Sum)?;
    ///     assert_eq!(sum, [[3], [30], [300]][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
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
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let counts = [1, 2];
    ///     let mut sums = vec![0; counts[ctx.rank()]];
    ///     ctx.reduce_scatterv(&[1, 10, 100], &mut sums, &counts, Sum)?;
    ///     assert_eq!(sums, [vec![2], vec![20, 200]][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
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
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let mut buf = [1, 10];
    ///     ctx.reduce_scatter_in_place(&mut buf, Sum)?;
    ///     assert_eq!(buf, [[2, 10], [20, 10]][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
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
        reduce_scatter(self, send, recv, op, Location::caller())
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
        reduce_scatterv(self, send, recv, counts, op, Location::caller())
    }

    fn reduce_scatter_in_place<R, O>(&self, buf: &mut R, op: O) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>,
    {
        reduce_scatter_in_place(self, buf, op, Location::caller())
    }
}

#[inline(always)]
fn reduce_scatter<S, R, O>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    op: O,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
    O: Operation<S::Elem>,
{
    let input = Input::new(send.erased())?;
    let mut output = Output::new(recv.erased_mut())?;
    let op = &ErasedOp::new::<S::Elem, O>(&op);
    let (dtype, count) = (input.dtype(), input.len());
    let call = Call::new(Kind::ReduceScatter, site).data(dtype, count).op(op);
    let expected = output.len().saturating_mul(comm.size());
    check::length(&call, "send buffer", count, expected)?;
    let block = output.len();
    let (send, recv) = (input.memory(Blocks::Equal(block)), output.memory(Blocks::One(block)));
    // SAFETY: the buffers hold that many elements, and are held here.
    unsafe { dispatch(comm, &call, &args(dtype, op, send, recv))? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn reduce_scatterv<S, R, O>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    counts: &[usize],
    op: O,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
    O: Operation<S::Elem>,
{
    let input = Input::new(send.erased())?;
    let mut output = Output::new(recv.erased_mut())?;
    let op = &ErasedOp::new::<S::Elem, O>(&op);
    let (dtype, count) = (input.dtype(), input.len());
    let call = Call::new(Kind::ReduceScatterv, site).data(dtype, count).op(op);
    let displacements = displacements(&call, counts, comm.size(), "send buffer", count)?;
    check::length(&call, "receive buffer", output.len(), counts[comm.rank()])?;
    let own = Blocks::One(output.len());
    let (send, recv) = (input.memory(Blocks::Varying(&displacements)), output.memory(own));
    // SAFETY: the buffers hold that many elements, and are held here.
    unsafe { dispatch(comm, &call, &args(dtype, op, send, recv))? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn reduce_scatter_in_place<R, O>(
    comm: &Comm,
    buf: &mut R,
    op: O,
    site: &'static Location<'static>,
) -> Result<()>
where
    R: BufferMut + ?Sized,
    O: Operation<R::Elem>,
{
    let mut output = Output::new(buf.erased_mut())?;
    let op = &ErasedOp::new::<R::Elem, O>(&op);
    let (dtype, count) = (output.dtype(), output.len());
    let call = Call::new(Kind::ReduceScatter, site).data(dtype, count).op(op).form(Form::InPlace);
    check::length(&call, "buffer", count, count.next_multiple_of(comm.size()))?;
    let block = count / comm.size();
    let send = output.memory(Blocks::Equal(block));
    let recv = Memory { blocks: Blocks::One(block), ..send };
    // SAFETY: the buffer holds that many elements, and is held here.
    unsafe { dispatch(comm, &call, &args(dtype, op, send, recv))? };
    output.commit();
    Ok(())
}

/// A reduction of blocks for all ranks, of which this one gets its own, elsewhere or where they
/// start.
#[inline]
fn args<'a>(
    dtype: &'a DType,
    op: &'a ErasedOp<'a>,
    send: Memory<'a>,
    recv: Memory<'a>,
) -> Args<'a> {
    let collective = if send.blocks.vary() { &REDUCE_SCATTERV } else { &REDUCE_SCATTER };
    Args::new(collective, dtype).op(op).send(send).recv(recv)
}
