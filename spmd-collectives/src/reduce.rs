//! Reduce (MPI 5.0 section 6.9.1).

mod algorithms;
pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use algorithms::REDUCE;
use spmd_core::internal::{Args, Blocks, Call, ErasedOp, Form, Kind, Memory, dispatch};
use spmd_core::{Buffer, BufferMut, Comm, DType, Element, Operation, Result};

use crate::check;
use crate::data::{Input, Output};
use crate::sealed::Sealed;

/// Reductions whose result goes to one rank (MPI 5.0 section 6.9.1).
///
/// ```
/// use spmd::prelude::*;
///
/// let sums = spmd(3, |ctx| ctx.reduce_value(ctx.rank(), Sum, 0))?;
/// assert_eq!(sums, [Some(3), None, None]);
/// # Ok::<(), Error>(())
/// ```
pub trait Reduce: Sealed {
    /// Folds the ranks' `send` element by element with `op`; the root gets the result in `recv`.
    /// All ranks call it, with `send` of equal length. `recv` is used on the root alone, where it
    /// is as long as `send`; elsewhere it may be empty, and is not looked at.
    ///
    /// The fold is in the canonical order of [`op`](spmd_core::op): the bits are those of
    /// [`Allreduce::allreduce`](crate::Allreduce::allreduce). A small reduce does not wait for the root: the others
    /// return at once.
    ///
    /// Errors: `root` out of range; `recv` of the root is not as long as `send`; a rank has
    /// failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut sums = [0; 2];
    ///     ctx.reduce(&[ctx.rank(), 1], &mut sums, Sum, 0)?;
    ///     assert_eq!(sums, if ctx.rank() == 0 { [3, 3] } else { [0, 0] });
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce<S, R, O>(&self, send: &S, recv: &mut R, op: O, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>;

    /// [`Reduce::reduce`] of `buf` into the root's; those of the others stay as they were.
    ///
    /// Errors: as [`Reduce::reduce`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let most = spmd(3, |ctx| {
    ///     let mut buf = [ctx.rank()];
    ///     ctx.reduce_in_place(&mut buf, Max, 0)?;
    ///     Ok(buf[0])
    /// })?;
    /// assert_eq!(most, [2, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_in_place<R, O>(&self, buf: &mut R, op: O, root: usize) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>;

    /// [`Reduce::reduce`] of one element; `Some` on the root.
    ///
    /// Errors: as [`Reduce::reduce`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let sums = spmd(3, |ctx| ctx.reduce_value(ctx.rank(), Sum, 1))?;
    /// assert_eq!(sums, [None, Some(3), None]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_value<T: Element, O: Operation<T>>(
        &self,
        value: T,
        op: O,
        root: usize,
    ) -> Result<Option<T>>;
}

impl Reduce for Comm {
    fn reduce<S, R, O>(&self, send: &S, recv: &mut R, op: O, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>,
    {
        reduce(self, send, recv, op, root, Location::caller())
    }

    fn reduce_in_place<R, O>(&self, buf: &mut R, op: O, root: usize) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>,
    {
        reduce_in_place(self, buf, op, root, Location::caller())
    }

    fn reduce_value<T: Element, O: Operation<T>>(
        &self,
        value: T,
        op: O,
        root: usize,
    ) -> Result<Option<T>> {
        let op = &ErasedOp::new::<T, O>(&op);
        let call = Call::new(Kind::Reduce, Location::caller())
            .data(&T::DTYPE, 1)
            .op(op)
            .root(root)
            .form(Form::Value);
        let mut result = value;
        let buf = Memory::host((&raw mut result).cast(), Blocks::One(1));
        let is_root = self.rank() == root;
        let args = args(&T::DTYPE, op, root, buf);
        let args = if is_root { args.recv(buf) } else { args };
        // SAFETY: the value is one element, and is held here.
        unsafe { dispatch(self, &call, &args)? };
        Ok(is_root.then_some(result))
    }
}

#[inline(always)]
fn reduce<S, R, O>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    op: O,
    root: usize,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
    O: Operation<S::Elem>,
{
    let input = Input::new(send.erased())?;
    let op = &ErasedOp::new::<S::Elem, O>(&op);
    let (dtype, count) = (input.dtype(), input.len());
    let call = Call::new(Kind::Reduce, site).data(dtype, count).op(op).root(root);
    let all = Blocks::One(count);
    let mut output = None;
    if comm.rank() == root {
        let recv = output.insert(Output::new(recv.erased_mut())?);
        check::length(&call, "receive buffer", recv.len(), count)?;
    }
    let recv = output.as_mut().map_or(Memory::NONE, |recv| recv.memory(all));
    let args = args(dtype, op, root, input.memory(all)).recv(recv);
    // SAFETY: both buffers hold that many elements, and are held here.
    unsafe { dispatch(comm, &call, &args)? };
    if let Some(output) = output {
        output.commit();
    }
    Ok(())
}

#[inline(always)]
fn reduce_in_place<R, O>(
    comm: &Comm,
    buf: &mut R,
    op: O,
    root: usize,
    site: &'static Location<'static>,
) -> Result<()>
where
    R: BufferMut + ?Sized,
    O: Operation<R::Elem>,
{
    let mut output = Output::new(buf.erased_mut())?;
    let op = &ErasedOp::new::<R::Elem, O>(&op);
    let (dtype, count) = (output.dtype(), output.len());
    let call =
        Call::new(Kind::Reduce, site).data(dtype, count).op(op).root(root).form(Form::InPlace);
    let buf = output.memory(Blocks::One(count));
    let args = args(dtype, op, root, buf);
    let args = if comm.rank() == root { args.recv(buf) } else { args };
    // SAFETY: the buffer holds that many elements, and is held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

/// A reduction to the root, which takes the result elsewhere, or where its own part was.
#[inline]
fn args<'a>(dtype: &'a DType, op: &'a ErasedOp<'a>, root: usize, send: Memory<'a>) -> Args<'a> {
    Args::new(&REDUCE, dtype).op(op).root(root).send(send)
}
