//! Scatter (MPI 5.0 section 6.6).

use std::panic::Location;
use std::ptr::{copy_nonoverlapping, null};

use spmd_core::algorithm::{Call, FLAT, Kind, PAYLOAD, Round};
use spmd_core::{Buffer, BufferMut, Comm, DType, Element, Error, Result};

use crate::blocks::{Blocks, room_for};
use crate::check;
use crate::data::{Input, Output};
use crate::large::{Large, SEND, take};
use crate::select::{Choice, choose};

/// One rank's data, a part for each.
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
        let mut output = Output::new(recv.view_mut());
        let (dtype, count) = (output.dtype(), output.len());
        let call = Call::new(Kind::Scatter, Location::caller()).data(dtype, count).root(root);
        let blocks = Blocks::Equal(count);
        let share = Share::equal(count, self);
        let target = Target { share, ptr: output.ptr(), len: count };
        let input = (self.rank() == root).then(|| Input::new(send.view()));
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
        let mut output = Output::new(recv.view_mut());
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

/// What a rank must know of a scatter: where its block lies, how much there is.
#[derive(Clone, Copy)]
struct Share {
    start: usize,
    count: usize,
    /// Elements of all blocks.
    all: usize,
    /// Elements of the longest block.
    longest: usize,
}

impl Share {
    fn equal(count: usize, comm: &Comm) -> Share {
        let all = count.saturating_mul(comm.size());
        Share { start: comm.rank() * count, count, all, longest: count }
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
        let input = Input::new(send.view());
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

/// Where a rank's block goes, and what the root has told of it.
#[derive(Clone, Copy)]
struct Target {
    share: Share,
    ptr: *mut u8,
    /// Elements that there is room for.
    len: usize,
}

impl Target {
    /// Refuses a block of another length than this rank has room for.
    fn check(&self, round: &Round<'_>, root: usize) -> Result<()> {
        let (sends, takes) = (self.share.count, self.len);
        if sends == takes {
            return Ok(());
        }
        Err(round.disagree(&format!(
            "different counts: rank {root} of the communicator sends {sends} elements to rank {}, \
             which takes {takes}",
            round.rank()
        )))
    }
}

/// # Safety
/// On the root alone, `from` is given: the blocks, and an address that holds them. `target` has
/// room for its `len` elements, apart from `from`. `share.all` elements are fewer bytes than
/// there is memory; all ranks but hostile ones give equal `all` and `longest`.
unsafe fn scatter(
    comm: &Comm,
    call: &Call<'_>,
    kind: Kind,
    dtype: DType,
    root: usize,
    from: Option<(&Blocks, *const u8)>,
    target: Target,
) -> Result<()> {
    comm.check_root(call)?;
    let fits = target.share.all <= PAYLOAD / dtype.size as usize;
    let default = match comm.size() {
        _ if !fits => "chunked",
        0..=FLAT => "flat",
        _ => "tree",
    };
    let names = ["flat", "tree", "chunked"];
    let choice = choose(comm, kind, default, &names, |name| fits || name == "chunked");
    comm.collective(call, |round| {
        // SAFETY: as the caller promises.
        unsafe {
            match choice {
                Choice("flat") => small(round, dtype, root, from, target, false),
                Choice("tree") => small(round, dtype, root, from, target, true),
                _ => chunked(round, comm.segment(), dtype, root, from, target),
            }
        }
    })
}

/// The root puts its own block where it belongs.
///
/// # Safety
/// As [`scatter`], on the root.
unsafe fn keep_own(
    dtype: DType,
    root: usize,
    (blocks, from): (&Blocks, *const u8),
    target: Target,
) {
    let size = dtype.size as usize;
    let (start, count) = blocks.of(root);
    debug_assert_eq!(count, target.len);
    // SAFETY: as the caller promises; the root has compared its own lengths.
    unsafe { copy_nonoverlapping(from.add(start * size), target.ptr, count * size) };
}

/// The root shows all blocks and goes on (`meet`: after all have met over a tree); each of the
/// others reads its own. One step, or 2 log₄ n; one copy of all data and one of a block a rank.
///
/// # Safety
/// As [`scatter`]; all data fit into a room.
unsafe fn small(
    round: &Round<'_>,
    dtype: DType,
    root: usize,
    from: Option<(&Blocks, *const u8)>,
    target: Target,
    meet: bool,
) -> Result<()> {
    let (size, share) = (dtype.size as usize, target.share);
    let bytes = share.all * size;
    if let Some((blocks, from)) = from {
        // SAFETY: the room has that many bytes, and so has `from`.
        unsafe {
            copy_nonoverlapping(from, round.room(bytes), bytes);
            keep_own(dtype, root, (blocks, from), target);
        }
        if meet {
            return round.arrive(1);
        }
        round.publish(1);
        return Ok(());
    }
    if meet {
        round.arrive(1)?;
    } else {
        round.publish_to(1, root);
        round.wait_for(root, 1)?;
    }
    target.check(round, root)?;
    // SAFETY: the root has published its room, in which the share lies; there is room for it.
    unsafe {
        let from = round.room_of(root, bytes).add(share.start * size);
        take(round, dtype, root, from, target.ptr, share.count)
    }
}

/// Everybody reads its block of the root's data. Two meetings, or one a segment and one more
/// where data go through staging: a segment then holds a part for each rank.
///
/// # Safety
/// As [`scatter`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    dtype: DType,
    root: usize,
    from: Option<(&Blocks, *const u8)>,
    target: Target,
) -> Result<()> {
    let (n, me, size) = (round.size(), round.rank(), dtype.size as usize);
    let share = target.share;
    let step = (segment / size / n).max(1);
    if let Some(from) = from {
        // SAFETY: as the caller promises.
        unsafe { keep_own(dtype, root, from, target) };
    }
    let shown = from.map_or((null(), 0), |(_, from)| (from, share.all * size));
    // SAFETY: the buffer is the caller's, which nobody writes until the last meeting, before
    // which the others have read it.
    let large = unsafe { Large::meet(round, dtype, shown, (null(), 0), n * step * size)? };
    if me != root {
        target.check(round, root)?;
    }
    if large.direct {
        if me != root {
            // SAFETY: `reach` has seen that the root shows all blocks, in which the share lies;
            // there is room for it.
            unsafe {
                let from = large.reach(root, SEND, share.all * size)?.add(share.start * size);
                large.take(root, from, target.ptr, share.count)?;
            }
        }
        return large.arrive();
    }
    for (turn, start) in (0..share.longest).step_by(step).enumerate() {
        if let Some((blocks, from)) = from {
            for peer in (0..n).filter(|peer| *peer != root) {
                let (first, count) = blocks.of(peer);
                let len = step.min(count.saturating_sub(start));
                // SAFETY: the half has room for a part for each rank, of `step` elements; what
                // is copied lies within the rank's block.
                unsafe {
                    let place = large.half(turn).add(peer * step * size);
                    let from = from.wrapping_add((first + start) * size);
                    copy_nonoverlapping(from, place, len * size);
                }
            }
        }
        large.arrive()?;
        if me != root && start < share.count {
            // SAFETY: the root's half has room for a part for each rank, and this lies within
            // the block; the meeting stands between writing and reading it.
            unsafe {
                let from = large.half_of(root, turn)?.add(me * step * size);
                let place = target.ptr.add(start * size);
                large.take(root, from, place, step.min(share.count - start))?;
            }
        }
    }
    large.arrive()
}
