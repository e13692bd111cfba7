//! The rank API for code without a `ctx`: functions on the rank that runs here.
//!
//! Outside a block, the calling thread is rank 0 of a world of one, so that such code also works
//! alone. Threads and tasks that a rank has started are outside.

use std::panic::Location;

use spmd_core::internal::{Blocks, Call, ErasedOp, Kind, Memory, copy_bytes, dispatch};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Result, with_current};

use crate::allgather::{self, allgather_each};
use crate::blocks::room_for;
use crate::data::{Input, Output};
use crate::{allreduce, barrier};

/// Gives the communicator of the rank that runs here to `f`, if there is one.
fn inside<R>(f: impl FnOnce(&Comm) -> Result<R>) -> Option<Result<R>> {
    // An error of `f` is a value here, so that what fails is only that no rank runs here.
    with_current(|comm| Ok(f(comm))).ok()
}

/// This rank, from 0; 0 outside a block.
///
/// ```
/// use spmd::prelude::*;
///
/// let ranks = spmd(3, |_ctx| Ok((spmd_rank(), spmd_size())))?;
/// assert_eq!(ranks, [(0, 3), (1, 3), (2, 3)]);
/// assert_eq!((spmd_rank(), spmd_size()), (0, 1));
/// # Ok::<(), Error>(())
/// ```
#[must_use]
pub fn spmd_rank() -> usize {
    with_current(|comm| Ok(comm.rank())).unwrap_or(0)
}

/// How many ranks this block has; 1 outside a block.
///
/// ```
/// use spmd::prelude::*;
///
/// assert_eq!(spmd(3, |_ctx| Ok(spmd_size()))?, [3; 3]);
/// # Ok::<(), Error>(())
/// ```
#[must_use]
pub fn spmd_size() -> usize {
    with_current(|comm| Ok(comm.size())).unwrap_or(1)
}

/// [`Barrier::barrier`](crate::Barrier::barrier) on all ranks of the block.
///
/// Errors: a rank has failed, left, or makes another call.
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(3, |_ctx| spmd_barrier())?;
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn spmd_barrier() -> Result<()> {
    let call = Call::new(Kind::Barrier, Location::caller());
    // SAFETY: no memory is named.
    inside(|comm| unsafe { dispatch(comm, &call, &const { barrier::args() }) }).unwrap_or(Ok(()))
}

/// [`Allreduce::allreduce_in_place`](crate::Allreduce::allreduce_in_place) on all ranks of the block: folds their `buf`, and
/// leaves the result in all of them.
///
/// Errors: a rank has failed, left, or makes another call.
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(3, |ctx| {
///     let mut sums = [ctx.rank(), 1];
///     spmd_reduce(&mut sums, Sum)?;
///     assert_eq!(sums, [3, 3]);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn spmd_reduce<R, O>(buf: &mut R, op: O) -> Result<()>
where
    R: BufferMut + ?Sized,
    O: Operation<R::Elem>,
{
    let mut output = Output::new(buf.erased_mut())?;
    let op = &ErasedOp::new::<R::Elem, O>(&op);
    let (dtype, count) = (output.dtype(), output.len());
    let call = Call::new(Kind::Allreduce, Location::caller()).data(dtype, count).op(op);
    let buf = output.memory(Blocks::One(count));
    let args = allreduce::args(dtype, op, buf, buf);
    // SAFETY: the buffer holds that many elements, and is held here.
    let all = |comm: &Comm| unsafe { dispatch(comm, &call, &args) };
    inside(all).unwrap_or(Ok(()))?;
    output.commit();
    Ok(())
}

/// The elements of all ranks' `send`, in rank order; its length is the same on all ranks.
///
/// Errors: there is no memory for them; a rank has failed, left, or makes another call.
///
/// ```
/// use spmd::prelude::*;
///
/// let all = spmd(2, |ctx| spmd_allgather(&[ctx.rank(), 7]))?;
/// assert_eq!(all, [[0, 7, 1, 7], [0, 7, 1, 7]]);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn spmd_allgather<S: Buffer + ?Sized>(send: &S) -> Result<Vec<S::Elem>> {
    let (view, mut stage) = (send.erased(), None);
    let call = Call::new(Kind::Allgather, Location::caller()).data(view.dtype(), view.len());
    let input = Input::on_host(view, &mut stage, &call)?;
    let (dtype, count) = (input.dtype(), input.len());
    let len = count.saturating_mul(spmd_size());
    let mut all = room_for::<S::Elem>(&call, len)?;
    let into = all.as_mut_ptr().cast::<u8>();
    // SAFETY: the vector has room for the blocks of all ranks, and of the one there is outside;
    // without an error it holds them.
    unsafe {
        let recv = Memory::host(into, Blocks::Equal(count));
        let args = allgather::args(dtype, input.memory(Blocks::One(count)), recv);
        inside(|comm| dispatch(comm, &call, &args)).unwrap_or_else(|| {
            copy_bytes(input.ptr(), into, count * dtype.size as usize);
            Ok(())
        })?;
        all.set_len(len);
    }
    Ok(all)
}

/// The `value` of every rank, in rank order.
///
/// Errors: a rank has failed, left, or makes another call.
///
/// ```
/// use spmd::prelude::*;
///
/// let all = spmd(3, |ctx| spmd_exchange(10 * ctx.rank()))?;
/// assert_eq!(all[1], [0, 10, 20]);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn spmd_exchange<T: Element>(value: T) -> Result<Vec<T>> {
    let call = Call::new(Kind::Allgather, Location::caller()).data(&T::DTYPE, 1);
    inside(|comm| allgather_each(comm, &call, value)).unwrap_or_else(|| Ok(vec![value]))
}
