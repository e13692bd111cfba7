//! Allreduce (MPI 5.0 section 6.9.6).

mod algorithms;
pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use algorithms::ALLREDUCE;
use spmd_core::internal::{Args, Blocks, Call, ErasedOp, Form, Kind, Memory, dispatch};
use spmd_core::{Buffer, BufferMut, Comm, DType, Element, Operation, Result};

use crate::check;
use crate::data::{Input, Output};
use crate::sealed::Sealed;

/// Reductions whose result goes to everybody (MPI 5.0 section 6.9.6).
///
/// ```
/// use spmd::prelude::*;
///
/// let last = spmd(3, |ctx| ctx.allreduce_value(ctx.rank(), Max))?;
/// assert_eq!(last, [2; 3]);
/// # Ok::<(), Error>(())
/// ```
pub trait Allreduce: Sealed {
    /// Folds the ranks' `send` element by element with `op`; all get the result in `recv`. All
    /// ranks call it, with equal lengths.
    ///
    /// The fold is in the canonical order of [`op`](spmd_core::op): the result is the same to the last
    /// bit on every rank, in every placement.
    ///
    /// Errors: `recv` is not as long as `send`; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut sums = [0; 2];
    ///     ctx.allreduce(&[ctx.rank(), 1], &mut sums, Sum)?;
    ///     assert_eq!(sums, [3, 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
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
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut most = [ctx.rank() as f64];
    ///     ctx.allreduce_in_place(&mut most, Max)?;
    ///     assert_eq!(most, [2.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
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
    /// use spmd::prelude::*;
    ///
    /// let sums = spmd(4, |ctx| ctx.allreduce_value(ctx.rank(), Sum))?;
    /// assert_eq!(sums, [6; 4]);
    /// # Ok::<(), Error>(())
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
        allreduce(self, send, recv, op, Location::caller())
    }

    fn allreduce_in_place<R, O>(&self, buf: &mut R, op: O) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>,
    {
        allreduce_in_place(self, buf, op, Location::caller())
    }

    fn allreduce_value<T: Element, O: Operation<T>>(&self, value: T, op: O) -> Result<T> {
        let mut result = value;
        let op = &ErasedOp::new::<T, O>(&op);
        let call = Call::new(Kind::Allreduce, Location::caller())
            .data(&T::DTYPE, 1)
            .op(op)
            .form(Form::Value);
        let buf = Memory::host((&raw mut result).cast(), Blocks::One(1));
        // SAFETY: the value is one element, and is held here.
        unsafe { dispatch(self, &call, &args(&T::DTYPE, op, buf, buf))? };
        Ok(result)
    }
}

#[inline(always)]
fn allreduce<S, R, O>(
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
    let call = call(&input, op, site);
    check::length(&call, "receive buffer", output.len(), input.len())?;
    let all = Blocks::One(input.len());
    let args = args(input.dtype(), op, input.memory(all), output.memory(all));
    // SAFETY: both buffers hold that many elements, and are held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn allreduce_in_place<R, O>(
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
    let call = Call::new(Kind::Allreduce, site).data(dtype, count).op(op).form(Form::InPlace);
    let buf = output.memory(Blocks::One(count));
    // SAFETY: the buffer holds that many elements, and is held here.
    unsafe { dispatch(comm, &call, &args(dtype, op, buf, buf))? };
    output.commit();
    Ok(())
}

/// An allreduce from one place into another, or the same.
#[inline]
pub fn args<'a>(
    dtype: &'a DType,
    op: &'a ErasedOp<'a>,
    send: Memory<'a>,
    recv: Memory<'a>,
) -> Args<'a> {
    Args::new(&ALLREDUCE, dtype).op(op).send(send).recv(recv)
}

#[inline]
fn call<'a>(input: &Input<'_>, op: &'a ErasedOp<'a>, site: &'static Location<'static>) -> Call<'a> {
    Call::new(Kind::Allreduce, site).data(input.dtype(), input.len()).op(op)
}
