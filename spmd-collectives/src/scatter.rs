//! Scatter (MPI 5.0 section 6.6).

mod algorithms;
pub(crate) mod init;
pub(crate) mod requests;

use std::mem::MaybeUninit;
use std::panic::Location;

use spmd_core::internal::{Args, Blocks, Call, Form, Incoming, Kind, Memory, dispatch};
use spmd_core::{Buffer, BufferMut, Comm, Element, Error, Result};

use crate::blocks::{displacements, room_for};
use crate::check;
use crate::data::{Input, Output};
use crate::sealed::Sealed;
use algorithms::{SCATTER, SCATTERV};

/// One rank's data, a part for each (MPI 5.0 section 6.6).
///
/// ```
/// use spmd::prelude::*;
///
/// let parts = spmd(3, |ctx| {
///     let mut part = [0];
///     ctx.scatter(&[5, 6, 7], &mut part, 0).map(|()| part[0])
/// })?;
/// assert_eq!(parts, [5, 6, 7]);
/// # Ok::<(), Error>(())
/// ```
pub trait Scatter: Sealed {
    /// Gives rank i the i-th of size equal blocks of the root's `send`, in its `recv`. All ranks
    /// call it, with `recv` of equal length. `send` is used on the root alone, where it holds
    /// size × `recv` elements; elsewhere it may be empty, and is not looked at.
    ///
    /// A small scatter does not wait for the other ranks: the root returns at once.
    ///
    /// Errors: `root` out of range; `send` of the root has another length; a rank has failed,
    /// left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let all = if ctx.rank() == 0 { vec![1, 2, 3, 4, 5, 6] } else { vec![] };
    ///     let mut mine = [0; 2];
    ///     ctx.scatter(&all, &mut mine, 0)?;
    ///     assert_eq!(mine[1], 2 * (ctx.rank() + 1));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatter<S, R>(&self, send: &S, recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Scatter::scatter`] of one value for each rank: gives rank i the i-th of the root's `values`.
    /// These are used on the root alone; elsewhere there may be none.
    ///
    /// Errors: as [`Scatter::scatter`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let seeds = spmd(3, |ctx| {
    ///     let all = if ctx.rank() == 0 { vec![5, 6, 7] } else { vec![] };
    ///     ctx.scatter_value(&all, 0)
    /// })?;
    /// assert_eq!(seeds, [5, 6, 7]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatter_value<T: Element>(&self, values: &[T], root: usize) -> Result<T>;

    /// [`Scatter::scatter`] of different numbers of elements: rank i gets `counts[i]`, and the
    /// blocks lie in the root's `send` in rank order, without gaps. `send` and `counts` are used
    /// on the root alone; elsewhere they may be empty.
    ///
    /// Errors: as [`Scatter::scatter`]; `counts` has not one entry a rank, or its sum is not the
    /// length of `send`; the `recv` of a rank has another length than the root's `counts` say.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut mine = vec![0; ctx.rank()];
    ///     ctx.scatterv(&[1, 2, 2], &[0, 1, 2], &mut mine, 0)?;
    ///     assert_eq!(mine, vec![ctx.rank(); ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatterv<S, R>(&self, send: &S, counts: &[usize], recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Scatter::scatterv`] to ranks that don't know their count: gives each its block. What the root
    /// sends may be on a device.
    ///
    /// Errors: as [`Scatter::scatterv`]; there is no memory for the block.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let parts = spmd(3, |ctx| ctx.scatterv_vec(&[1, 2, 2], &[0, 1, 2], 0))?;
    /// assert_eq!(parts, [vec![], vec![1], vec![2, 2]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatterv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        counts: &[usize],
        root: usize,
    ) -> Result<Vec<S::Elem>>;
}

impl Scatter for Comm {
    fn scatter<S, R>(&self, send: &S, recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        scatter(self, send, recv, root, Location::caller())
    }

    fn scatter_value<T: Element>(&self, values: &[T], root: usize) -> Result<T> {
        let call = Call::new(Kind::Scatter, Location::caller()).data(&T::DTYPE, 1);
        let call = call.root(root).form(Form::Value);
        let mut mine = MaybeUninit::<T>::uninit();
        let args = Args::new(&SCATTER, &T::DTYPE).root(root);
        let args = args.recv(Memory::host(mine.as_mut_ptr().cast(), Blocks::One(1)));
        let args = if self.rank() == root {
            check::length(&call, "list of values", values.len(), self.size())?;
            args.send(Memory::host(values.as_ptr().cast(), Blocks::Equal(1)))
        } else {
            args
        };
        // SAFETY: the root has a value for each rank, which is held here; there is room for one, and
        // a scatter without an error has written it.
        unsafe {
            dispatch(self, &call, &args)?;
            Ok(mine.assume_init())
        }
    }

    fn scatterv<S, R>(&self, send: &S, counts: &[usize], recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        scatterv(self, send, counts, recv, root, Location::caller())
    }

    fn scatterv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        counts: &[usize],
        root: usize,
    ) -> Result<Vec<S::Elem>> {
        let call = Call::new(Kind::ScattervVec, Location::caller());
        let call = call.data(&S::Elem::DTYPE, Call::UNEQUAL).root(root);
        scatter_unknown(self, &call, send, counts, root)
    }
}

#[inline(always)]
fn scatter<S, R>(
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
    let mut output = Output::new(recv.erased_mut())?;
    let (dtype, count) = (output.dtype(), output.len());
    let call = Call::new(Kind::Scatter, site).data(dtype, count).root(root);
    let args = Args::new(&SCATTER, dtype).root(root).recv(output.memory(Blocks::One(count)));
    let input = (comm.rank() == root).then(|| Input::new(send.erased())).transpose()?;
    let args = match &input {
        None => args,
        Some(input) => {
            let all = count.saturating_mul(comm.size());
            check::length(&call, "send buffer", input.len(), all)?;
            args.send(input.memory(Blocks::Equal(count)))
        }
    };
    // SAFETY: the buffers hold that many elements, are apart and held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn scatterv<S, R>(
    comm: &Comm,
    send: &S,
    counts: &[usize],
    recv: &mut R,
    root: usize,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
{
    let mut output = Output::new(recv.erased_mut())?;
    let call = Call::new(Kind::Scatterv, site);
    let call = call.data(output.dtype(), Call::UNEQUAL).root(root);
    let source = RootData::new(comm, &call, || Input::new(send.erased()), counts, root)?;
    if source.is_some() {
        check::length(&call, "receive buffer", output.len(), counts[root])?;
    }
    let share = [scatter_shares(comm, &call, source.as_ref(), root)?];
    let args = Args::new(&SCATTERV, output.dtype()).root(root).incoming(&share);
    let args = source.iter().fold(args, |args, source| source.given_to(args));
    let args = args.recv(output.memory(Blocks::One(output.len())));
    // SAFETY: the buffers hold that many elements, are apart and held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

/// What the root gives.
struct RootData<'a> {
    input: Input<'a>,
    displacements: Vec<usize>,
}

impl<'a> RootData<'a> {
    /// On the root, the blocks of its input.
    fn new(
        comm: &Comm,
        call: &Call<'_>,
        input: impl FnOnce() -> Result<Input<'a>>,
        counts: &[usize],
        root: usize,
    ) -> Result<Option<RootData<'a>>> {
        if comm.rank() != root {
            return Ok(None);
        }
        let input = input()?;
        let displacements = displacements(call, counts, comm.size(), "send buffer", input.len())?;
        Ok(Some(RootData { input, displacements }))
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks::Varying(&self.displacements)
    }

    fn given_to<'s>(&'s self, args: Args<'s>) -> Args<'s> {
        args.send(self.input.memory(self.blocks()))
    }
}

/// Tells every rank where its block lies: a scatter of its own.
fn scatter_shares(
    comm: &Comm,
    call: &Call<'_>,
    source: Option<&RootData<'_>>,
    root: usize,
) -> Result<Incoming> {
    type Share = [usize; 3];
    let shares: Vec<Share> = source.map_or(Vec::new(), |source| {
        let blocks = (0..comm.size()).map(|rank| source.blocks().of(rank));
        blocks.map(|(start, count)| [start, count, source.input.len()]).collect()
    });
    let mut mine: Share = [0; 3];
    let args = Args::new(&SCATTER, &Share::DTYPE).root(root);
    let args = args.recv(Memory::host((&raw mut mine).cast(), Blocks::One(1)));
    let args = match source {
        None => args,
        Some(_) => args.send(Memory::host(shares.as_ptr().cast(), Blocks::Equal(1))),
    };
    // SAFETY: the root has an array for each rank, and `mine` is room for one.
    unsafe { dispatch(comm, call, &args)? };
    let [from, count, total] = mine;
    let size = call.dtype.map_or(1, |dtype| dtype.size as usize);
    let inside = from.checked_add(count).is_some_and(|end| end <= total);
    if inside && total.checked_mul(size).is_some() {
        return Ok(Incoming {
            peer: root,
            side: 0,
            index: comm.rank(),
            from,
            total,
            into: 0,
            count,
        });
    }
    let what = "the shares that it tells are no blocks of a buffer";
    Err(Error::corrupt(comm.world_rank(root), what))
}

/// [`Scatter::scatterv_vec`] as a part of any call.
pub(crate) fn scatter_unknown<S: Buffer + ?Sized>(
    comm: &Comm,
    call: &Call<'_>,
    send: &S,
    counts: &[usize],
    root: usize,
) -> Result<Vec<S::Elem>> {
    let mut stage = None;
    let source = RootData::new(
        comm,
        call,
        || Input::on_host(send.erased(), &mut stage, call),
        counts,
        root,
    )?;
    let share = [scatter_shares(comm, call, source.as_ref(), root)?];
    let count = share[0].count;
    let mut values = room_for::<S::Elem>(call, count)?;
    let args = Args::new(&SCATTERV, &S::Elem::DTYPE).root(root).incoming(&share);
    let args = source.iter().fold(args, |args, source| source.given_to(args));
    let args = args.recv(Memory::host(values.as_mut_ptr().cast(), Blocks::One(count)));
    // SAFETY: the vector has room for the block, and after a scatter without an error holds it.
    unsafe {
        dispatch(comm, call, &args)?;
        values.set_len(count);
    }
    Ok(values)
}
