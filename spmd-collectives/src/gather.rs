//! Gather (MPI 5.0 section 6.5).

use std::panic::Location;
use std::ptr::{copy_nonoverlapping, null};

use spmd_core::algorithm::{Call, FLAT, Kind, PAYLOAD, Round};
use spmd_core::{Buffer, BufferMut, Comm, DType, Element, Result};

use crate::blocks::{Blocks, Gathered, offsets, room_for};
use crate::check;
use crate::data::{Input, Output};
use crate::large::{Large, SEND, take};
use crate::select::{Choice, choose};

/// A number that every rank says where counts may differ: how many elements it sends.
const COUNT: usize = 1;

/// Everybody's data for one rank.
pub trait Gather {
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
    /// # use spmd_collectives::Gather;
    /// # use spmd_core::{spmd, Result};
    /// spmd(3, |ctx| {
    ///     let mut all = vec![0; if ctx.rank() == 0 { 6 } else { 0 }];
    ///     ctx.gather(&[ctx.rank(), 7], &mut all, 0)?;
    ///     if ctx.rank() == 0 {
    ///         assert_eq!(all, [0, 7, 1, 7, 2, 7]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
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
    /// # use spmd_collectives::Gather;
    /// # use spmd_core::{spmd, Result};
    /// spmd(3, |ctx| {
    ///     let mut all = [0; 3];
    ///     ctx.gatherv(&vec![ctx.rank(); ctx.rank()], &mut all, &[0, 1, 2], 0)?;
    ///     if ctx.rank() == 0 {
    ///         assert_eq!(all, [1, 2, 2]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn gatherv<S, R>(&self, send: &S, recv: &mut R, counts: &[usize], root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Gather::gatherv`] without knowing the counts: the root gets all elements in rank order,
    /// and where each rank's start, with the end of the last after them (size + 1 numbers). The
    /// others get `None`.
    ///
    /// Errors: as [`Gather::gather`]; the root has no memory for all elements.
    ///
    /// ```
    /// # use spmd_collectives::Gather;
    /// # use spmd_core::{spmd, Result};
    /// let all = spmd(3, |ctx| ctx.gatherv_vec(&vec![ctx.rank(); ctx.rank()], 0))?;
    /// assert_eq!(all[0], Some((vec![1, 2, 2], vec![0, 0, 1, 3])));
    /// assert_eq!(all[1], None);
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn gatherv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        root: usize,
    ) -> Result<Option<Gathered<S::Elem>>>;

    /// [`Gather::gather`] of one element; `Some` on the root.
    ///
    /// ```
    /// # use spmd_collectives::Gather;
    /// # use spmd_core::{spmd, Result};
    /// let all = spmd(3, |ctx| ctx.gather_value(ctx.rank() * 10, 1))?;
    /// assert_eq!(all, [None, Some(vec![0, 10, 20]), None]);
    /// # Ok::<(), spmd_core::Error>(())
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
        let input = Input::new(send.view());
        let (dtype, count, from) = (input.dtype(), input.len(), input.ptr());
        let call = Call::new(Kind::Gather, Location::caller()).data(dtype, count).root(root);
        if self.rank() != root {
            // SAFETY: the buffer holds that many elements, and is held here.
            return unsafe { gather(self, &call, dtype, root, (from, count), None) };
        }
        let mut output = Output::new(recv.view_mut());
        let all = count.saturating_mul(self.size());
        check::length(&call, "receive buffer", output.len(), all)?;
        let into = Some(output.ptr());
        // SAFETY: both buffers hold that many elements, are apart and held here.
        unsafe { gather(self, &call, dtype, root, (from, count), into)? };
        output.commit();
        Ok(())
    }

    fn gatherv<S, R>(&self, send: &S, recv: &mut R, counts: &[usize], root: usize) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        let input = Input::new(send.view());
        let (dtype, mine) = (input.dtype(), (input.ptr(), input.len()));
        let call = Call::new(Kind::Gatherv, Location::caller());
        let call = call.data(dtype, Call::UNEQUAL).root(root);
        if self.rank() != root {
            // SAFETY: the buffer holds that many elements, and is held here.
            return unsafe { gatherv(self, &call, dtype, root, mine, None) };
        }
        let mut output = Output::new(recv.view_mut());
        let blocks = Blocks::varying(&call, counts, self.size(), "receive buffer", output.len())?;
        check::length(&call, "send buffer", mine.1, counts[root])?;
        let into = Some((&blocks, output.ptr()));
        // SAFETY: the buffers hold that many elements, are apart and held here.
        unsafe { gatherv(self, &call, dtype, root, mine, into)? };
        output.commit();
        Ok(())
    }

    fn gatherv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        root: usize,
    ) -> Result<Option<Gathered<S::Elem>>> {
        let call = Call::new(Kind::GathervVec, Location::caller());
        gather_unknown(self, &call.data(S::Elem::DTYPE, Call::UNEQUAL).root(root), send, root)
    }

    fn gather_value<T: Element>(&self, value: T, root: usize) -> Result<Option<Vec<T>>> {
        let call = Call::new(Kind::Gather, Location::caller()).data(T::DTYPE, 1).root(root);
        gather_each(self, &call, value, root)
    }
}

/// Gathers an element of each rank.
fn gather_each<T: Element>(
    comm: &Comm,
    call: &Call<'_>,
    value: T,
    root: usize,
) -> Result<Option<Vec<T>>> {
    let mine = ((&raw const value).cast(), 1);
    if comm.rank() != root {
        // SAFETY: the value is one element, and is held here.
        unsafe { gather(comm, call, T::DTYPE, root, mine, None)? };
        return Ok(None);
    }
    let mut all = Vec::<T>::with_capacity(comm.size());
    // SAFETY: the vector has room for an element a rank, and after a gather without an error
    // holds them.
    unsafe {
        gather(comm, call, T::DTYPE, root, mine, Some(all.as_mut_ptr().cast()))?;
        all.set_len(comm.size());
    }
    Ok(Some(all))
}

/// Gathers the counts, then the elements.
pub(crate) fn gather_unknown<S: Buffer + ?Sized>(
    comm: &Comm,
    call: &Call<'_>,
    send: &S,
    root: usize,
) -> Result<Option<Gathered<S::Elem>>> {
    let input = Input::new(send.view());
    let (dtype, mine) = (input.dtype(), (input.ptr(), input.len()));
    let Some(counts) = gather_each(comm, call, mine.1, root)? else {
        // SAFETY: the buffer holds that many elements, and is held here.
        unsafe { gatherv(comm, call, dtype, root, mine, None)? };
        return Ok(None);
    };
    let starts = offsets(call, &counts)?;
    let all = starts[comm.size()];
    let mut values = room_for::<S::Elem>(call, all)?;
    let blocks = Blocks::Varying(starts);
    let into = Some((&blocks, values.as_mut_ptr().cast()));
    // SAFETY: the vector has room for the blocks, and after a gather without an error holds them.
    unsafe {
        gatherv(comm, call, dtype, root, mine, into)?;
        values.set_len(all);
    }
    let Blocks::Varying(starts) = blocks else { unreachable!("made so above") };
    Ok(Some((values, starts)))
}

/// Gathers equal blocks. `mine` is what this rank sends: address and number of elements.
///
/// # Safety
/// `mine` holds its elements. `recv`, given on the root alone, has room for as many of each rank,
/// apart from `mine`.
unsafe fn gather(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    root: usize,
    mine: (*const u8, usize),
    recv: Option<*mut u8>,
) -> Result<()> {
    comm.check_root(call)?;
    let bytes = mine.1 * dtype.size as usize;
    let fits = bytes <= PAYLOAD;
    let default = match comm.size() {
        _ if !fits => "chunked",
        0..=FLAT => "flat",
        _ => "tree",
    };
    let names = ["flat", "tree", "chunked"];
    let choice = choose(comm, Kind::Gather, default, &names, |name| fits || name == "chunked");
    let blocks = Blocks::Equal(mine.1);
    let into = recv.map(|ptr| (&blocks, ptr));
    comm.collective(call, |round| {
        // SAFETY: as the caller promises; what is in a room fits into it.
        unsafe {
            if choice == Choice("chunked") {
                return chunked(round, comm.segment(), dtype, root, mine, into, false);
            }
            let Some((blocks, recv)) = into else {
                copy_nonoverlapping(mine.0, round.room(bytes), bytes);
                if choice == Choice("tree") {
                    return round.arrive(1);
                }
                round.publish_to(1, root);
                return Ok(());
            };
            keep_own(dtype, root, mine, blocks, recv);
            if choice == Choice("tree") {
                round.arrive(1)?;
            } else {
                round.publish_to_each(1, std::iter::empty());
                round.wait_for_all(1)?;
            }
            take_rooms(round, dtype, blocks, recv)
        }
    })
}

/// Gathers blocks whose lengths the root alone knows.
///
/// # Safety
/// `mine` holds its elements. On the root alone, `into` is given: the blocks, and room for them
/// apart from `mine`.
unsafe fn gatherv(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    root: usize,
    mine: (*const u8, usize),
    into: Option<(&Blocks, *mut u8)>,
) -> Result<()> {
    comm.check_root(call)?;
    let default = if comm.size() <= FLAT { "flat" } else { "chunked" };
    let choice = choose(comm, Kind::Gatherv, default, &["flat", "chunked"], |_| true);
    comm.collective(call, |round| {
        let rooms = choice == Choice("flat");
        // SAFETY: as the caller promises.
        unsafe { chunked(round, comm.segment(), dtype, root, mine, into, rooms) }
    })
}

/// The root puts its own block where it belongs.
///
/// # Safety
/// `mine` holds the block of `root`, and `recv` has room for the blocks, apart from it.
unsafe fn keep_own(
    dtype: DType,
    root: usize,
    mine: (*const u8, usize),
    blocks: &Blocks,
    recv: *mut u8,
) {
    let size = dtype.size as usize;
    // SAFETY: as the caller promises.
    unsafe { copy_nonoverlapping(mine.0, recv.add(blocks.of(root).0 * size), mine.1 * size) };
}

/// Copies what the others have in their rooms.
///
/// # Safety
/// The others have published rooms of their blocks' lengths; `recv` has room for all blocks.
unsafe fn take_rooms(
    round: &Round<'_>,
    dtype: DType,
    blocks: &Blocks,
    recv: *mut u8,
) -> Result<()> {
    let size = dtype.size as usize;
    for peer in (0..round.size()).filter(|peer| *peer != round.rank()) {
        let (start, count) = blocks.of(peer);
        let from = round.room_of(peer, count * size);
        // SAFETY: as the caller promises.
        unsafe { take(round, dtype, peer, from, recv.add(start * size), count)? };
    }
    Ok(())
}

/// The root reads everybody's data. Two meetings, or one a segment and one more where data go
/// through staging. With `rooms`, blocks that are all small lie in the rooms, and one meeting is
/// enough.
///
/// # Safety
/// As [`gatherv`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    dtype: DType,
    root: usize,
    mine: (*const u8, usize),
    into: Option<(&Blocks, *mut u8)>,
    rooms: bool,
) -> Result<()> {
    let (me, size) = (round.rank(), dtype.size as usize);
    let bytes = mine.1 * size;
    let others = || (0..round.size()).filter(|peer| *peer != root);
    let step = (segment / size).max(1);
    round.set_number(COUNT, mine.1 as u64);
    if rooms && me != root && bytes <= PAYLOAD {
        // SAFETY: the room has that many bytes, and so has `mine`.
        unsafe { copy_nonoverlapping(mine.0, round.room(bytes), bytes) };
    }
    if let Some((blocks, recv)) = into {
        // SAFETY: as the caller promises.
        unsafe { keep_own(dtype, root, mine, blocks, recv) };
    }
    let shown = if me == root { (null(), 0) } else { (mine.0, bytes) };
    // SAFETY: the buffer is the caller's, which nobody writes until the last meeting, before
    // which the root has read it.
    let large = unsafe { Large::meet(round, dtype, shown, (null(), 0), step * size)? };
    if let Some((blocks, _)) = into
        && let Some(peer) =
            others().find(|peer| round.number_of(*peer, COUNT) != blocks.of(*peer).1 as u64)
    {
        let (sends, expected) = (round.number_of(peer, COUNT), blocks.of(peer).1);
        return Err(round.disagree(&format!(
            "different counts: rank {peer} of the communicator sends {sends} elements where the \
             root takes {expected}"
        )));
    }
    let longest = || {
        let count = |peer| match into {
            Some((blocks, _)) => blocks.of(peer).1 as u64,
            None => round.number_of(peer, COUNT),
        };
        others().map(count).max().unwrap_or(0)
    };
    if rooms && longest() <= (PAYLOAD / size) as u64 {
        // SAFETY: the blocks are as long as the others say, so all are in their rooms.
        return into
            .map_or(Ok(()), |(blocks, recv)| unsafe { take_rooms(round, dtype, blocks, recv) });
    }
    if large.direct {
        if let Some((blocks, recv)) = into {
            for peer in others() {
                let (start, count) = blocks.of(peer);
                // SAFETY: `reach` has seen that the peer shows so many bytes; `recv` has room.
                unsafe {
                    let from = large.reach(peer, SEND, count * size)?;
                    large.take(peer, from, recv.add(start * size), count)?;
                }
            }
        }
        return large.arrive();
    }
    for turn in 0..longest().div_ceil(step as u64) as usize {
        let start = turn * step;
        if me != root && start < mine.1 {
            let len = step.min(mine.1 - start);
            // SAFETY: a half has room for a segment, which lies within `mine`.
            unsafe {
                copy_nonoverlapping(mine.0.add(start * size), large.half(turn), len * size);
            }
        }
        large.arrive()?;
        let Some((blocks, recv)) = into else { continue };
        for peer in others() {
            let (first, count) = blocks.of(peer);
            if start < count {
                // SAFETY: the peer's half has room for a segment, which lies within its block;
                // the meeting stands between writing and reading it.
                unsafe {
                    let from = large.half_of(peer, turn)?;
                    let place = recv.add((first + start) * size);
                    large.take(peer, from, place, step.min(count - start))?;
                }
            }
        }
    }
    large.arrive()
}
