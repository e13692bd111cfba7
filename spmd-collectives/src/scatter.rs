//! Scatter (MPI 5.0 section 6.6).

mod algorithms;

use std::panic::Location;

use spmd_core::algorithm::{Call, Kind};
use spmd_core::{Buffer, BufferMut, Comm, Element, Error, Result};

use crate::blocks::{Blocks, room_for};
use crate::check;
use crate::data::{Input, Output};
use algorithms::{Share, Target, scatter};

/// One rank's data, a part for each (MPI 5.0 section 6.6).
///
/// ```
/// # use spmd_collectives::Scatter;
/// # use spmd_core::spmd;
/// let parts = spmd(3, |ctx| {
///     let mut part = [0];
///     ctx.scatter(&[5, 6, 7], &mut part, 0).map(|()| part[0])
/// })?;
/// assert_eq!(parts, [5, 6, 7]);
/// # Ok::<(), spmd_core::Error>(())
/// ```
pub trait Scatter {
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
    /// # use spmd_collectives::Scatter;
    /// # use spmd_core::{spmd, Result};
    /// spmd(3, |ctx| {
    ///     let all = if ctx.rank() == 0 { vec![1, 2, 3, 4, 5, 6] } else { vec![] };
    ///     let mut mine = [0; 2];
    ///     ctx.scatter(&all, &mut mine, 0)?;
    ///     assert_eq!(mine[1], 2 * (ctx.rank() + 1));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn scatter<S, R>(&self, send: &S, recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Scatter::scatter`] of different numbers of elements: rank i gets `counts[i]`, and the
    /// blocks lie in the root's `send` in rank order, without gaps. `send` and `counts` are used
    /// on the root alone; elsewhere they may be empty.
    ///
    /// Errors: as [`Scatter::scatter`]; `counts` has not one entry a rank, or its sum is not the
    /// length of `send`; the `recv` of a rank has another length than the root's `counts` say.
    ///
    /// ```
    /// # use spmd_collectives::Scatter;
    /// # use spmd_core::{spmd, Result};
    /// spmd(3, |ctx| {
    ///     let mut mine = vec![0; ctx.rank()];
    ///     ctx.scatterv(&[1, 2, 2], &[0, 1, 2], &mut mine, 0)?;
    ///     assert_eq!(mine, vec![ctx.rank(); ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn scatterv<S, R>(&self, send: &S, counts: &[usize], recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Scatter::scatterv`] to ranks that don't know their count: gives each its block.
    ///
    /// Errors: as [`Scatter::scatterv`]; there is no memory for the block.
    ///
    /// ```
    /// # use spmd_collectives::Scatter;
    /// # use spmd_core::{spmd, Result};
    /// let parts = spmd(3, |ctx| ctx.scatterv_vec(&[1, 2, 2], &[0, 1, 2], 0))?;
    /// assert_eq!(parts, [vec![], vec![1], vec![2, 2]]);
    /// # Ok::<(), spmd_core::Error>(())
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
        let mut output = Output::new(recv.view_mut())?;
        let (dtype, count) = (output.dtype(), output.len());
        let call = Call::new(Kind::Scatter, Location::caller()).data(dtype, count).root(root);
        let blocks = Blocks::Equal(count);
        let share = Share::equal(count, self);
        let target = Target { share, ptr: output.ptr(), len: count };
        let input = (self.rank() == root).then(|| Input::new(send.view())).transpose()?;
        if let Some(input) = &input {
            check::length(&call, "send buffer", input.len(), share.all)?;
        }
        let from = input.as_ref().map(|input| (&blocks, input.ptr()));
        // SAFETY: the buffers hold that many elements, are apart and held here.
        unsafe { scatter(self, &call, Kind::Scatter, dtype, root, from, target)? };
        output.commit();
        Ok(())
    }

    fn scatterv<S, R>(&self, send: &S, counts: &[usize], recv: &mut R, root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        let mut output = Output::new(recv.view_mut())?;
        let call = Call::new(Kind::Scatterv, Location::caller());
        let call = call.data(output.dtype(), Call::UNEQUAL).root(root);
        let source = Source::new(self, &call, send, counts, root)?;
        if source.is_some() {
            check::length(&call, "receive buffer", output.len(), counts[root])?;
        }
        let share = scatter_shares(self, &call, source.as_ref(), root)?;
        let (dtype, len) = (output.dtype(), output.len());
        let target = Target { share, ptr: output.ptr(), len };
        let from = source.as_ref().map(Source::from);
        // SAFETY: the buffers hold that many elements, are apart and held here.
        unsafe { scatter(self, &call, Kind::Scatterv, dtype, root, from, target)? };
        output.commit();
        Ok(())
    }

    fn scatterv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        counts: &[usize],
        root: usize,
    ) -> Result<Vec<S::Elem>> {
        let call = Call::new(Kind::ScattervVec, Location::caller());
        let call = call.data(S::Elem::DTYPE, Call::UNEQUAL).root(root);
        scatter_unknown(self, &call, send, counts, root)
    }
}

/// The root's data and its blocks.
struct Source<'a> {
    input: Input<'a>,
    blocks: Blocks,
}

impl<'a> Source<'a> {
    /// On the root; nothing elsewhere.
    fn new<S: Buffer + ?Sized>(
        comm: &Comm,
        call: &Call<'_>,
        send: &'a S,
        counts: &[usize],
        root: usize,
    ) -> Result<Option<Source<'a>>> {
        if comm.rank() != root {
            return Ok(None);
        }
        let input = Input::new(send.view())?;
        let blocks = Blocks::varying(call, counts, comm.size(), "send buffer", input.len())?;
        Ok(Some(Source { input, blocks }))
    }

    fn from(&self) -> (&Blocks, *const u8) {
        (&self.blocks, self.input.ptr())
    }
}

/// Tells every rank its share of blocks that the root alone knows.
fn scatter_shares(
    comm: &Comm,
    call: &Call<'_>,
    source: Option<&Source<'_>>,
    root: usize,
) -> Result<Share> {
    let all = source.map_or(0, |source| source.input.len());
    let shares: Vec<[usize; 4]> = source.map_or(Vec::new(), |source| {
        let longest = source.blocks.longest();
        let blocks = (0..comm.size()).map(|rank| source.blocks.of(rank));
        blocks.map(|(start, count)| [start, count, all, longest]).collect()
    });
    let blocks = Blocks::Equal(1);
    let from = source.map(|_| (&blocks, shares.as_ptr().cast()));
    let mut mine = [0usize; 4];
    let target = Target { share: Share::equal(1, comm), ptr: (&raw mut mine).cast(), len: 1 };
    let dtype = <[usize; 4]>::DTYPE;
    // SAFETY: the root has an array for each rank, and `mine` is room for one.
    unsafe { scatter(comm, call, Kind::Scatter, dtype, root, from, target)? };
    let [start, count, all, longest] = mine;
    let size = call.dtype.map_or(1, |dtype| dtype.size as usize);
    let inside = start.checked_add(count).is_some_and(|end| end <= all) && count <= longest;
    if inside && longest <= all && all.checked_mul(size).is_some() {
        return Ok(Share { start, count, all, longest });
    }
    let what = "the shares that it tells are no blocks of a buffer";
    Err(Error::Corrupt { rank: comm.world_rank(root), what })
}

/// Scatters the counts, then the elements.
pub(crate) fn scatter_unknown<S: Buffer + ?Sized>(
    comm: &Comm,
    call: &Call<'_>,
    send: &S,
    counts: &[usize],
    root: usize,
) -> Result<Vec<S::Elem>> {
    let source = Source::new(comm, call, send, counts, root)?;
    let share = scatter_shares(comm, call, source.as_ref(), root)?;
    let mut values = room_for::<S::Elem>(call, share.count)?;
    let target = Target { share, ptr: values.as_mut_ptr().cast(), len: share.count };
    let from = source.as_ref().map(Source::from);
    // SAFETY: the vector has room for the block, and after a scatter without an error holds it.
    unsafe {
        scatter(comm, call, Kind::Scatterv, S::Elem::DTYPE, root, from, target)?;
        values.set_len(share.count);
    }
    Ok(values)
}
