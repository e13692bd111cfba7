//! Broadcast (MPI 5.0 section 6.4).

pub(crate) mod init;
pub(crate) mod requests;

use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::null;

use spmd_core::internal::{
    Args, Blocks, Call, Collective, Form, Kind, Memory, PAYLOAD, Round, SingleRank, copy_bytes,
    dispatch,
};
use spmd_core::{BufferMut, Comm, DType, Element, Error, Result};

use crate::data::Output;
use crate::large::stream::two_segments;
use crate::large::{CopyPath, LargeRound, RECV, SEND, take};
use crate::sealed::Sealed;
use crate::select::{Algorithm::*, choose};

/// Most bytes that two processes send through what they share even if the root's buffer can be read
/// in place. What one has read in place it must ask back to receive into it when roots change.
const STAGED: usize = 4 << 20;

/// One rank's data for everybody (MPI 5.0 section 6.4).
///
/// ```
/// use spmd::prelude::*;
///
/// let steps = spmd(3, |ctx| ctx.broadcast_value((ctx.rank() == 0).then_some(100), 0))?;
/// assert_eq!(steps, [100; 3]);
/// # Ok::<(), Error>(())
/// ```
pub trait Broadcast: Sealed {
    /// Copies the root's `buf` into everybody's. All ranks call it, with equal lengths and the
    /// same root.
    ///
    /// A small broadcast does not wait for the other ranks: the root returns at once.
    ///
    /// Errors: `root` out of range; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut point = [0.0; 2];
    ///     if ctx.rank() == 1 {
    ///         point = [0.5, 2.5];
    ///     }
    ///     ctx.broadcast(&mut point, 1)?;
    ///     assert_eq!(point, [0.5, 2.5]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn broadcast<B: BufferMut + ?Sized>(&self, buf: &mut B, root: usize) -> Result<()>;

    /// [`Broadcast::broadcast`] of one element: `Some` on the root; what others give is not
    /// looked at.
    ///
    /// Errors: as [`Broadcast::broadcast`]; the root gave `None`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let seeds = spmd(3, |ctx| {
    ///     let seed = (ctx.rank() == 0).then_some(42);
    ///     ctx.broadcast_value(seed, 0)
    /// })?;
    /// assert_eq!(seeds, [42; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn broadcast_value<T: Element>(&self, value: Option<T>, root: usize) -> Result<T>;
}

impl Broadcast for Comm {
    fn broadcast<B: BufferMut + ?Sized>(&self, buf: &mut B, root: usize) -> Result<()> {
        broadcast(self, buf, root, Location::caller())
    }

    fn broadcast_value<T: Element>(&self, value: Option<T>, root: usize) -> Result<T> {
        let call = Call::new(Kind::Broadcast, Location::caller())
            .data(&T::DTYPE, 1)
            .root(root)
            .form(Form::Value);
        let mut result = MaybeUninit::<T>::uninit();
        if self.rank() == root {
            let value = value.ok_or_else(|| {
                Error::argument(format!("{call}: the root must give a value, not None"))
            })?;
            result.write(value);
        }
        // SAFETY: there is room for one element, which on the root is a value. After a broadcast
        // without an error it is one everywhere.
        unsafe {
            let buf = Memory::host(result.as_mut_ptr().cast(), Blocks::One(1));
            dispatch(self, &call, &args(&T::DTYPE, root, buf))?;
            Ok(result.assume_init())
        }
    }
}

#[inline(always)]
fn broadcast<B: BufferMut + ?Sized>(
    comm: &Comm,
    buf: &mut B,
    root: usize,
    site: &'static Location<'static>,
) -> Result<()> {
    let mut output = Output::new(buf.erased_mut())?;
    let (dtype, count) = (output.dtype(), output.len());
    let call = Call::new(Kind::Broadcast, site).data(dtype, count).root(root);
    let args = args(dtype, root, output.memory(Blocks::One(count)));
    // SAFETY: the buffer holds that many elements, and is held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

const BROADCAST: Collective =
    Collective { kind: Kind::Broadcast, single_rank: SingleRank::Nothing, arena };

/// A broadcast of one block, into `buf`, or on the root from it.
#[inline]
pub fn args<'a>(dtype: &'a DType, root: usize, buf: Memory<'a>) -> Args<'a> {
    Args::new(&BROADCAST, dtype).root(root).recv(buf)
}

/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `recv` is room for one block, which on the root holds
/// values.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (dtype, root, buf) = (args.dtype, args.root, args.recv.ptr);
    let count = args.recv.blocks.longest();
    let bytes = count * dtype.size as usize;
    let (fits, combining) = (bytes <= PAYLOAD, comm.internals().fits_combining(bytes, dtype));
    let default = match comm.size() {
        _ if combining => Combining,
        _ if !fits => Chunked,
        ranks if ranks <= comm.internals().one_way_limit() => Flat,
        _ => Tree,
    };
    let choice = choose(comm, Kind::Broadcast, bytes, default, |it| match it {
        Combining => combining,
        _ => fits || it == Chunked,
    });
    if choice == Combining {
        // One step; one read of the data a rank. The root does not wait.
        // SAFETY: `buf` has room for one block of `bytes`, and holds as many on the root (this
        // function's contract). There are no more, and any are values, as `fits_combining` has
        // said.
        return comm.internals().collective_combined(call, |combining| unsafe {
            combining.broadcast(root, buf, bytes)
        });
    }
    comm.internals().collective(call, |round| {
        // SAFETY: `buf` has room for `count` elements, which on the root are values, and nobody
        // else touches it during the call (this function's contract). `flat` and `tree` are chosen
        // only where it fits into a payload.
        unsafe {
            match choice {
                Flat => flat(round, dtype, count, root, buf),
                Tree => tree(round, dtype, count, root, buf),
                _ => chunked(round, comm.internals().segment(), dtype, count, root, buf),
            }
        }
    })
}

/// The root shows its data and goes on; the others wait for it alone. One step; one read of the
/// data a rank.
///
/// # Safety
/// As [`arena`].
unsafe fn flat(
    round: &Round<'_>,
    dtype: &DType,
    count: usize,
    root: usize,
    buf: *mut u8,
) -> Result<()> {
    let bytes = count * dtype.size as usize;
    if round.rank() == root {
        // SAFETY: the payload has that many bytes, and so has `buf`.
        unsafe { copy_bytes(buf, round.payload(bytes), bytes) };
        round.publish(1);
        return Ok(());
    }
    round.publish_to(1, root);
    round.wait_for(root, 1)?;
    // SAFETY: the root has published its payload, and `buf` has room for what is in it.
    unsafe { take(round, dtype, root, round.payload_of(root, bytes), buf, count) }
}

/// The root shows its data, all meet over a tree. 2 log₄ n steps; one read of the data a rank.
///
/// # Safety
/// As [`arena`].
unsafe fn tree(
    round: &Round<'_>,
    dtype: &DType,
    count: usize,
    root: usize,
    buf: *mut u8,
) -> Result<()> {
    let bytes = count * dtype.size as usize;
    if round.rank() == root {
        // SAFETY: the payload has that many bytes, and so has `buf`.
        unsafe { copy_bytes(buf, round.payload(bytes), bytes) };
        return round.arrive(1);
    }
    round.arrive(1)?;
    // SAFETY: the root has published its payload, and `buf` has room for what is in it.
    unsafe { take(round, dtype, root, round.payload_of(root, bytes), buf, count) }
}

/// Everybody reads the root's data; in one address space the root writes the last part itself. Two
/// meetings, or one and a step a segment where data go through staging.
///
/// # Safety
/// As [`arena`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    dtype: &DType,
    count: usize,
    root: usize,
    buf: *mut u8,
) -> Result<()> {
    let size = dtype.size as usize;
    let is_root = round.rank() == root;
    let total = count * size;
    let step = two_segments(segment / 2, total, size);
    let whole = (buf.cast_const(), total);
    let shown = if is_root { whole } else { (null(), 0) };
    let pushes = round.one_address_space() && !round.must_check(dtype);
    let open = if !is_root && pushes { whole } else { (null(), 0) };
    let segment = |turn: usize| (turn * step, step.min(count - turn * step));
    let fill = |large: &LargeRound<'_, '_>, turn: usize| {
        if is_root {
            let (start, len) = segment(turn);
            // SAFETY: a place has room for a segment, which lies within the buffer.
            unsafe { copy_bytes(buf.add(start * size), large.place(turn), len * size) }
        }
    };
    let path = CopyPath::From { rank: root, place: step * size, show: total > STAGED };
    // SAFETY: the buffers are the caller's; the root does not write its own. They are left after
    // the last meeting, before which the others have read the root's, and the root has written
    // the last part of theirs.
    let large =
        unsafe { LargeRound::meet(round, dtype, shown, open, path, |large| fill(large, 0))? };
    if large.direct {
        // What one core can read of another's cache in a time is limited, and so is what it can
        // write: in one address space the root writes the last part itself.
        let pushed = if large.pushes() { count / round.size() } else { 0 };
        let pulled = count - pushed;
        // SAFETY: all buffers have `count` elements. A rank that is not the root writes the first
        // part of its own, the root the rest.
        unsafe {
            if !is_root {
                large.take(root, large.reach(root, SEND, total)?, buf, pulled)?;
            } else if pushed > 0 {
                let from = buf.add(pulled * size);
                for peer in (0..round.size()).filter(|peer| *peer != root) {
                    let into = large.reach(peer, RECV, total)?.cast_mut().add(pulled * size);
                    copy_bytes(from, into, pushed * size);
                }
            }
        }
        return large.arrive();
    }
    let turns = count.div_ceil(step);
    if is_root {
        let readers = (0..round.size()).filter(|peer| *peer != root);
        return large.produce(turns, readers, |turn| fill(&large, turn));
    }
    large.consume(turns, std::iter::once(root), |turn| {
        let (start, len) = segment(turn);
        // SAFETY: the root has shown the segment, which lies within `buf`.
        unsafe {
            let from = large.source(root, (start * size, total), || large.place_of(root, turn))?;
            large.take(root, from, buf.add(start * size), len)
        }
    })
}
