//! Gather (MPI 5.0 section 6.5).

mod algorithms;
pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use spmd_core::internal::{Args, Blocks, Call, Form, Kind, Memory, dispatch};
use spmd_core::{Buffer, BufferMut, Comm, Element, Result};

use crate::blocks::{displacements, make_room, offsets};
use crate::check;
use crate::data::{Input, Output};
use crate::gathered::Gathered;
use crate::sealed::Sealed;
use algorithms::{GATHER, GATHERV};

/// Everybody's data for one rank (MPI 5.0 section 6.5).
///
/// ```
/// use spmd::prelude::*;
///
/// let ranks = spmd(3, |ctx| ctx.gather_value(ctx.rank(), 0))?;
/// assert_eq!(ranks, [Some(vec![0, 1, 2]), None, None]);
/// # Ok::<(), Error>(())
/// ```
pub trait Gather: Sealed {
    /// Collects the ranks' `send` in the root's `recv`, in rank order. All ranks call it, with
    /// `send` of equal length. `recv` is used on the root alone, where it holds size × `send`
    /// elements; elsewhere it may be empty, and is not looked at.
    ///
    /// A small gather does not wait for the root: the others return at once.
    ///
    /// Errors: `root` out of range; `recv` of the root has another length; a rank has failed,
    /// left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = vec![0; if ctx.rank() == 0 { 6 } else { 0 }];
    ///     ctx.gather(&[ctx.rank(), 7], &mut all, 0)?;
    ///     if ctx.rank() == 0 {
    ///         assert_eq!(all, [0, 7, 1, 7, 2, 7]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gather<S, R>(&self, send: &S, recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Gather::gather`] of different numbers of elements: rank i sends `counts[i]`, and the
    /// blocks lie in `recv` in rank order, without gaps. `recv` and `counts` are used on the root
    /// alone; elsewhere they may be empty.
    ///
    /// Errors: as [`Gather::gather`]; `counts` has not one entry a rank, or its sum is not the
    /// length of `recv`; a rank sends another number than the root's `counts` say.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = [0; 3];
    ///     ctx.gatherv(&vec![ctx.rank(); ctx.rank()], &mut all, &[0, 1, 2], 0)?;
    ///     if ctx.rank() == 0 {
    ///         assert_eq!(all, [1, 2, 2]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gatherv<S, R>(&self, send: &S, recv: &mut R, counts: &[usize], root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Gather::gatherv`] without knowing the counts: the root gets all elements in rank order,
    /// and where each rank's start, with the end of the last after them (size + 1 numbers). The
    /// others get `None`. What a rank sends may be on a device, whatever the others bring.
    ///
    /// Errors: as [`Gather::gather`]; the root has no memory for all elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let all = spmd(3, |ctx| ctx.gatherv_vec(&vec![ctx.rank(); ctx.rank()], 0))?;
    /// let on_root = all[0].as_ref().expect("rank 0 is the root");
    /// assert_eq!((on_root.elements(), &on_root[2]), (&[1, 2, 2][..], &[2, 2][..]));
    /// assert!(all[1].is_none());
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gatherv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        root: usize,
    ) -> Result<Option<Gathered<S::Elem>>>;

    /// [`Gather::gatherv_vec`] in the memory of what an earlier one gave, on the root. `recv` has no
    /// blocks elsewhere.
    ///
    /// Errors: as [`Gather::gatherv_vec`]. `recv` has no blocks then.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = Gathered::default();
    ///     for n in [5, 3] {
    ///         ctx.gatherv_into(&vec![ctx.rank(); n], &mut all, 0)?;
    ///         assert_eq!(all.len(), if ctx.rank() == 0 { 3 } else { 0 });
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gatherv_into<S: Buffer + ?Sized>(
        &self,
        send: &S,
        recv: &mut Gathered<S::Elem>,
        root: usize,
    ) -> Result<()>;

    /// [`Gather::gather`] of one element; `Some` on the root.
    ///
    /// Errors: as [`Gather::gather`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let all = spmd(3, |ctx| ctx.gather_value(ctx.rank() * 10, 1))?;
    /// assert_eq!(all, [None, Some(vec![0, 10, 20]), None]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gather_value<T: Element>(&self, value: T, root: usize) -> Result<Option<Vec<T>>>;
}

impl Gather for Comm {
    fn gather<S, R>(&self, send: &S, recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        gather(self, send, recv, root, Location::caller())
    }

    fn gatherv<S, R>(&self, send: &S, recv: &mut R, counts: &[usize], root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        gatherv(self, send, recv, counts, root, Location::caller())
    }

    fn gatherv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        root: usize,
    ) -> Result<Option<Gathered<S::Elem>>> {
        let call = Call::new(Kind::GathervVec, Location::caller());
        gather_unknown(
            self,
            &call.data(&S::Elem::DTYPE, Call::UNEQUAL).root(root),
            send,
            root,
            Vec::new(),
        )
    }

    fn gatherv_into<S: Buffer + ?Sized>(
        &self,
        send: &S,
        recv: &mut Gathered<S::Elem>,
        root: usize,
    ) -> Result<()> {
        let call = Call::new(Kind::GathervVec, Location::caller()).form(Form::Into);
        let call = call.data(&S::Elem::DTYPE, Call::UNEQUAL).root(root);
        let all = gather_unknown(self, &call, send, root, recv.take_memory())?;
        *recv = all.unwrap_or_default();
        Ok(())
    }

    fn gather_value<T: Element>(&self, value: T, root: usize) -> Result<Option<Vec<T>>> {
        let call = Call::new(Kind::Gather, Location::caller())
            .data(&T::DTYPE, 1)
            .root(root)
            .form(Form::Value);
        gather_each(self, &call, value, root)
    }
}

#[inline(always)]
fn gather<S, R>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    root: usize,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
{
    let input = Input::new(send.erased())?;
    let (dtype, count) = (input.dtype(), input.len());
    let call = Call::new(Kind::Gather, site).data(dtype, count).root(root);
    let args = Args::new(&GATHER, dtype).root(root).send(input.memory(Blocks::One(count)));
    if comm.rank() != root {
        // SAFETY: the buffer holds that many elements, and is held here.
        return unsafe { dispatch(comm, &call, &args) };
    }
    let mut output = Output::new(recv.erased_mut())?;
    let all = count.saturating_mul(comm.size());
    check::length(&call, "receive buffer", output.len(), all)?;
    let args = args.recv(output.memory(Blocks::Equal(count)));
    // SAFETY: both buffers hold that many elements, are apart and held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn gatherv<S, R>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    counts: &[usize],
    root: usize,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
{
    let input = Input::new(send.erased())?;
    let (dtype, count) = (input.dtype(), input.len());
    let call = Call::new(Kind::Gatherv, site);
    let call = call.data(dtype, Call::UNEQUAL).root(root);
    let args = Args::new(&GATHERV, dtype).root(root).send(input.memory(Blocks::One(count)));
    if comm.rank() != root {
        // SAFETY: the buffer holds that many elements, and is held here.
        return unsafe { dispatch(comm, &call, &args) };
    }
    let mut output = Output::new(recv.erased_mut())?;
    let displacements = displacements(&call, counts, comm.size(), "receive buffer", output.len())?;
    check::length(&call, "send buffer", count, counts[root])?;
    let args = args.recv(output.memory(Blocks::Varying(&displacements)));
    // SAFETY: the buffers hold that many elements, are apart and held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

/// Gathers an element of each rank.
fn gather_each<T: Element>(
    comm: &Comm,
    call: &Call<'_>,
    value: T,
    root: usize,
) -> Result<Option<Vec<T>>> {
    let args = Args::new(&GATHER, &T::DTYPE).root(root);
    let args = args.send(Memory::host((&raw const value).cast(), Blocks::One(1)));
    if comm.rank() != root {
        // SAFETY: the value is one element, and is held here.
        unsafe { dispatch(comm, call, &args)? };
        return Ok(None);
    }
    let mut all = Vec::<T>::with_capacity(comm.size());
    // SAFETY: the vector has room for an element a rank, and after a gather without an error
    // holds them.
    unsafe {
        dispatch(comm, call, &args.recv(Memory::host(all.as_mut_ptr().cast(), Blocks::Equal(1))))?;
        all.set_len(comm.size());
    }
    Ok(Some(all))
}

/// Gathers the counts, then the elements, which are all that is in `values` afterwards.
pub(crate) fn gather_unknown<S: Buffer + ?Sized>(
    comm: &Comm,
    call: &Call<'_>,
    send: &S,
    root: usize,
    mut values: Vec<S::Elem>,
) -> Result<Option<Gathered<S::Elem>>> {
    let mut stage = None;
    let input = Input::on_host(send.erased(), &mut stage, call)?;
    let args = Args::new(&GATHERV, input.dtype()).root(root);
    let args = args.send(input.memory(Blocks::One(input.len())));
    let Some(counts) = gather_each(comm, call, input.len(), root)? else {
        // SAFETY: the buffer holds that many elements, and is held here.
        unsafe { dispatch(comm, call, &args)? };
        return Ok(None);
    };
    let displacements = offsets(call, &counts)?;
    let all = displacements[comm.size()];
    make_room(call, &mut values, all)?;
    let args = args.recv(Memory::host(values.as_mut_ptr().cast(), Blocks::Varying(&displacements)));
    // SAFETY: the vector has room for the blocks, and after a gather without an error holds them.
    unsafe {
        dispatch(comm, call, &args)?;
        values.set_len(all);
    }
    Ok(Some(Gathered::new(values, displacements)))
}
