//! Allgather (MPI 5.0 section 6.7).

mod algorithms;
pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use spmd_core::internal::{Args, Blocks, Call, Form, Kind, Memory, dispatch};
use spmd_core::{Buffer, BufferMut, Comm, DType, Element, Result};

use crate::blocks::{displacements, make_room, offsets};
use crate::check;
use crate::data::{Input, Output};
use crate::gathered::Gathered;
use crate::sealed::Sealed;
use algorithms::{ALLGATHER, ALLGATHERV};

/// Everybody's data for everybody (MPI 5.0 section 6.7).
///
/// ```
/// use spmd::prelude::*;
///
/// let ranks = spmd(3, |ctx| ctx.allgather_value(ctx.rank()))?;
/// assert_eq!(ranks, vec![[0, 1, 2]; 3]);
/// # Ok::<(), Error>(())
/// ```
pub trait Allgather: Sealed {
    /// Collects the ranks' `send` in everybody's `recv`, in rank order. All ranks call it, with
    /// `send` of equal length and `recv` of size × `send`.
    ///
    /// Errors: `recv` has another length; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = [0; 6];
    ///     ctx.allgather(&[ctx.rank(), 7], &mut all)?;
    ///     assert_eq!(all, [0, 7, 1, 7, 2, 7]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgather<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Allgather::allgather`] of different numbers of elements: rank i sends `counts[i]`, and
    /// the blocks lie in `recv` in rank order, without gaps. All ranks give the same `counts`.
    ///
    /// Errors: as [`Allgather::allgather`]; `counts` has not one entry a rank, or its sum is not
    /// the length of `recv`; a rank sends another number than `counts` say.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = [0; 3];
    ///     ctx.allgatherv(&vec![ctx.rank(); ctx.rank()], &mut all, &[0, 1, 2])?;
    ///     assert_eq!(all, [1, 2, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgatherv<S, R>(&self, send: &S, recv: &mut R, counts: &[usize]) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Allgather::allgatherv`] without knowing the counts: gives all elements in rank order,
    /// and where each rank's start, with the end of the last after them (size + 1 numbers). What a
    /// rank sends may be on a device, whatever the others bring.
    ///
    /// Errors: as [`Allgather::allgather`]; there is no memory for all elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let all = ctx.allgatherv_vec(&vec![ctx.rank(); ctx.rank()])?;
    ///     assert_eq!(all.elements(), [1, 2, 2]);
    ///     assert_eq!(all[2], [2, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgatherv_vec<S: Buffer + ?Sized>(&self, send: &S) -> Result<Gathered<S::Elem>>;

    /// [`Allgather::allgatherv_vec`] in the memory of what an earlier one gave.
    ///
    /// Errors: as [`Allgather::allgatherv_vec`]. `recv` has no blocks then.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = Gathered::default();
    ///     for n in [5, 3] {
    ///         ctx.allgatherv_into(&vec![ctx.rank(); n], &mut all)?;
    ///         assert_eq!(all[2], vec![2; n]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgatherv_into<S: Buffer + ?Sized>(
        &self,
        send: &S,
        recv: &mut Gathered<S::Elem>,
    ) -> Result<()>;

    /// [`Allgather::allgather`] in one buffer of size equal blocks: each rank's own is filled
    /// before, the others' after.
    ///
    /// Errors: as [`Allgather::allgather`]; the length of `buf` is no multiple of the size.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = [0; 3];
    ///     all[ctx.rank()] = ctx.rank() * 10;
    ///     ctx.allgather_in_place(&mut all)?;
    ///     assert_eq!(all, [0, 10, 20]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgather_in_place<B: BufferMut + ?Sized>(&self, buf: &mut B) -> Result<()>;

    /// [`Allgather::allgather`] of one element.
    ///
    /// Errors: as [`Allgather::allgather`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let all = spmd(3, |ctx| ctx.allgather_value(ctx.rank() * 10))?;
    /// assert_eq!(all[1], [0, 10, 20]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgather_value<T: Element>(&self, value: T) -> Result<Vec<T>>;
}

impl Allgather for Comm {
    fn allgather<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        allgather(self, send, recv, Location::caller())
    }

    fn allgatherv<S, R>(&self, send: &S, recv: &mut R, counts: &[usize]) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        allgatherv(self, send, recv, counts, Location::caller())
    }

    fn allgatherv_vec<S: Buffer + ?Sized>(&self, send: &S) -> Result<Gathered<S::Elem>> {
        let call = Call::new(Kind::AllgathervVec, Location::caller());
        allgather_unknown(self, &call.data(&S::Elem::DTYPE, Call::UNEQUAL), send, Vec::new())
    }

    fn allgatherv_into<S: Buffer + ?Sized>(
        &self,
        send: &S,
        recv: &mut Gathered<S::Elem>,
    ) -> Result<()> {
        let call = Call::new(Kind::AllgathervVec, Location::caller()).form(Form::Into);
        let call = call.data(&S::Elem::DTYPE, Call::UNEQUAL);
        *recv = allgather_unknown(self, &call, send, recv.take_memory())?;
        Ok(())
    }

    fn allgather_in_place<B: BufferMut + ?Sized>(&self, buf: &mut B) -> Result<()> {
        allgather_in_place(self, buf, Location::caller())
    }

    fn allgather_value<T: Element>(&self, value: T) -> Result<Vec<T>> {
        let call =
            Call::new(Kind::Allgather, Location::caller()).data(&T::DTYPE, 1).form(Form::Value);
        allgather_each(self, &call, value)
    }
}

#[inline(always)]
fn allgather<S, R>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
{
    let input = Input::new(send.erased())?;
    let mut output = Output::new(recv.erased_mut())?;
    let (dtype, count) = (input.dtype(), input.len());
    let call = Call::new(Kind::Allgather, site).data(dtype, count);
    let all = count.saturating_mul(comm.size());
    check::length(&call, "receive buffer", output.len(), all)?;
    let args = args(dtype, input.memory(Blocks::One(count)), output.memory(Blocks::Equal(count)));
    // SAFETY: both buffers hold that many elements, are apart and held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn allgatherv<S, R>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    counts: &[usize],
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
{
    let input = Input::new(send.erased())?;
    let mut output = Output::new(recv.erased_mut())?;
    let dtype = input.dtype();
    let call = Call::new(Kind::Allgatherv, site).data(dtype, Call::UNEQUAL);
    let displacements = displacements(&call, counts, comm.size(), "receive buffer", output.len())?;
    check::length(&call, "send buffer", input.len(), counts[comm.rank()])?;
    let send = input.memory(Blocks::One(input.len()));
    let args = args(dtype, send, output.memory(Blocks::Varying(&displacements)));
    // SAFETY: both buffers hold that many elements, are apart and held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn allgather_in_place<B: BufferMut + ?Sized>(
    comm: &Comm,
    buf: &mut B,
    site: &'static Location<'static>,
) -> Result<()> {
    let mut output = Output::new(buf.erased_mut())?;
    let (dtype, len, n) = (output.dtype(), output.len(), comm.size());
    let count = len / n;
    let call = Call::new(Kind::Allgather, site).data(dtype, count).form(Form::InPlace);
    check::length(&call, "buffer", len, len.next_multiple_of(n))?;
    let all = output.memory(Blocks::Equal(count));
    let start = comm.rank() * count * dtype.size as usize;
    let mine = Memory { ptr: all.ptr.wrapping_add(start), blocks: Blocks::One(count), ..all };
    // SAFETY: the buffer holds a block a rank, and is held here.
    unsafe { dispatch(comm, &call, &args(dtype, mine, all))? };
    output.commit();
    Ok(())
}

pub(crate) fn allgather_each<T: Element>(comm: &Comm, call: &Call<'_>, value: T) -> Result<Vec<T>> {
    let mut all = Vec::<T>::with_capacity(comm.size());
    let send = Memory::host((&raw const value).cast(), Blocks::One(1));
    let recv = Memory::host(all.as_mut_ptr().cast(), Blocks::Equal(1));
    // SAFETY: the vector has room for an element a rank, and after an allgather without an error
    // holds them.
    unsafe {
        dispatch(comm, call, &args(&T::DTYPE, send, recv))?;
        all.set_len(comm.size());
    }
    Ok(all)
}

/// Allgathers the counts, then the elements, which are all that is in `values` afterwards.
pub(crate) fn allgather_unknown<S: Buffer + ?Sized>(
    comm: &Comm,
    call: &Call<'_>,
    send: &S,
    mut values: Vec<S::Elem>,
) -> Result<Gathered<S::Elem>> {
    let mut stage = None;
    let input = Input::on_host(send.erased(), &mut stage, call)?;
    let counts = allgather_each(comm, call, input.len())?;
    let displacements = offsets(call, &counts)?;
    let all = displacements[comm.size()];
    make_room(call, &mut values, all)?;
    let send = input.memory(Blocks::One(input.len()));
    let recv = Memory::host(values.as_mut_ptr().cast(), Blocks::Varying(&displacements));
    // SAFETY: the vector has room for the blocks, of which this rank's is as long as `input`, and
    // after an allgather without an error holds them.
    unsafe {
        dispatch(comm, call, &args(input.dtype(), send, recv))?;
        values.set_len(all);
    }
    Ok(Gathered::new(values, displacements))
}

/// An allgather of this rank's block into those of all.
#[inline]
pub fn args<'a>(dtype: &'a DType, send: Memory<'a>, recv: Memory<'a>) -> Args<'a> {
    let collective = if recv.blocks.vary() { &ALLGATHERV } else { &ALLGATHER };
    Args::new(collective, dtype).send(send).recv(recv)
}
