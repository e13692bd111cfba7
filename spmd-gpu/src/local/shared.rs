//! Ranks that are processes of one host and use the same device: the first one opens the memory of the
//! others, by handles of the driver (CUDA IPC), and carries the call out for all as among threads. It
//! keeps open what it has opened (`opened.rs`), until its owner asks for the end of that (`exports.rs`).
//!
//! A call does not wait for the device: the streams wait for each other (`flags.rs`).

use std::sync::Arc;

use spmd_core::buffer::Place;
use spmd_core::internal::{Args, Blocks, Call, Kind, Memory, Plane, Round};
use spmd_core::{Comm, Result};

use super::flags::Flags;
use super::launch;
use super::opened::{self, Mapping};
use crate::calls;
use crate::device::Device;
use crate::error::GpuError;
use crate::exports::{self, Exposed, MOST_CLOSED};
use crate::staged::Staged;

/// What a rank says of a piece of memory: whether it has any and others can open it, its number, where it
/// lies in what the handle opens, and that.
const WORDS: usize = 3 + 8;
const NONE: u64 = 0;
const SHOWN: u64 = 1;
/// It has some that others cannot open.
const HIDDEN: u64 = 2;

/// What a rank says: of what it sends and what it receives, and how much is to be closed.
const WORDS_OF_RANK: usize = 2 * WORDS + 1;

/// What a rank shows of itself to those in the call.
static SHOWS: u8 = 0;

/// What blocks memory is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Equal,
}

/// Whether a call is worth it: to open memory takes longer than to copy little.
pub(super) fn is_for(comm: &Comm, args: &Args<'_>) -> bool {
    let varies = calls::varies(args.collective.kind);
    // The same on all ranks, as it is that of one block.
    let block = args.send.blocks.longest().max(args.recv.blocks.longest()) * args.size();
    // What others have written is looked at by nobody.
    !varies && block >= comm.internals().segment() && args.dtype.valid.is_none()
}

/// Carries a call out.
///
/// # Safety
/// As [`Plane::run`], of a call that [`is_for`] and [`launch::knows`] have said yes to.
pub(super) unsafe fn run(
    comm: &Comm,
    call: &Call<'_>,
    args: &Args<'_>,
    (device, flags): (&Device, &Flags),
) -> Result<()> {
    let first = comm.world_rank(0);
    let places = [args.send, args.recv].map(|it| it.is_some().then_some(it.ptr as u64));
    let mut asks = if comm.rank() == 0 { Vec::new() } else { exports::to_close(first) };
    let own: Vec<u64> = places.into_iter().flat_map(shown).chain([asks.len() as u64]).collect();
    let all = calls::allgather(comm, call, &own)?;
    let said: Vec<&[u64]> = all.chunks_exact(WORDS_OF_RANK).collect();
    if said.iter().any(|it| [it[0], it[WORDS]].contains(&HIDDEN)) {
        // Some memory has no handle: it was not made by the device of a process rank.
        // SAFETY: this function's contract.
        return unsafe { Staged::plane().run(comm, call, args) };
    }
    let most = said.iter().map(|it| it[2 * WORDS]).max().map_or(0, |most| most as usize);
    let most = most.min(MOST_CLOSED);
    // Whatever the others have said of this rank: what it does not tell stays open.
    asks.truncate(most);
    let to_close = all_to_close(comm, call, &asks, most)?;
    if comm.rank() != 0 {
        places.into_iter().flatten().for_each(|place| exports::may_open(first, place));
    }
    let number = flags.begin(call, device);
    let done = comm.internals().collective(call, |round| {
        flags.show_ready(device, number)?;
        // Nothing is read there: but a rank that gives a round up in which it has shown something goes
        // on when no other one is in it any more, or will see that it has (`reach`). So none has its memory
        // back that the first one uses.
        // SAFETY: the byte is a static's, which nobody writes.
        unsafe { round.expose(0, &raw const SHOWS, 1) };
        round.arrive(1)?;
        if round.rank() == 0 {
            (1..round.size()).try_for_each(|peer| round.reach(peer, 0, 1).map(drop))?;
            // SAFETY: all ranks have brought what the call needs, and have their streams wait until it is
            // done before that is used or freed, also if they give up (below).
            unsafe { for_all(comm, round, args, &said, (device, flags), number)? };
            for (rank, numbers) in to_close.iter().enumerate() {
                opened::close(comm.world_rank(rank), numbers);
            }
            opened::keep_few();
        }
        round.arrive(2)
    });
    // One that gives up comes here when no other one is in the round any more.
    if comm.rank() != 0 && (done.is_ok() || flags.has_begun(number)) {
        flags.wait_for_done(device, number).inspect_err(|_| flags.until_done(device, number))?;
    }
    if done.is_ok() {
        exports::closed(first, &asks);
    }
    done
}

/// What each rank asks the first one to close, of which the longest list has so many.
fn all_to_close(comm: &Comm, call: &Call<'_>, own: &[u64], most: usize) -> Result<Vec<Vec<u64>>> {
    if most == 0 {
        return Ok(Vec::new());
    }
    // No piece of memory has this number.
    let mut words = vec![0; most];
    words[..own.len()].copy_from_slice(own);
    let all = calls::allgather(comm, call, &words)?;
    Ok(all.chunks_exact(most).map(<[u64]>::to_vec).collect())
}

/// The shapes of what a rank sends and of what it receives, where it has any.
fn shapes(kind: Kind) -> [Shape; 2] {
    use Kind::*;
    use Shape::*;
    match kind {
        Gather | Allgather => [One, Equal],
        Scatter | ReduceScatter => [Equal, One],
        Alltoall => [Equal, Equal],
        _ => [One, One],
    }
}

/// What this rank says of the memory at this place, if it brings any.
fn shown(place: Option<u64>) -> [u64; WORDS] {
    let mut words = [NONE; WORDS];
    if let Some(place) = place {
        match exports::exposed(place) {
            Some(Exposed { number, offset, handle }) => {
                words[..3].copy_from_slice(&[SHOWN, number, offset]);
                words[3..].copy_from_slice(&handle);
            }
            None => words[0] = HIDDEN,
        }
    }
    words
}

/// Has the device do the call of this number when the streams of all ranks have come to it, and tell them.
///
/// # Safety
/// The ranks, of which this is the first, have brought what the call needs, and nobody else uses it
/// until [`Flags`] say that the call is done.
unsafe fn for_all(
    comm: &Comm,
    round: &Round<'_>,
    args: &Args<'_>,
    said: &[&[u64]],
    (device, flags): (&Device, &Flags),
    number: u32,
) -> Result<()> {
    // Open until the device was told, whatever other calls of this process close: that waits for the device.
    let mut held = Vec::new();
    let mut all = vec![*args];
    let shapes = shapes(args.collective.kind);
    for (rank, words) in said.iter().enumerate().skip(1) {
        let mut open = |which: usize| {
            let (shape, words) = (shapes[which], &words[which * WORDS..][..WORDS]);
            if words[0] == NONE {
                return Ok(Memory::NONE);
            }
            let handle = std::array::from_fn(|at| words[3 + at]);
            let exposed = Exposed { number: words[1], offset: words[2], handle };
            let opened = opened::open(comm.world_rank(rank), &exposed, device);
            let memory = opened.and_then(|mapping| {
                held.push(mapping.clone());
                part(comm, args, shape, exposed.offset, &mapping, device)
            });
            memory.map_err(|error| round.out_of_reach(rank, error.into()))
        };
        let (send, recv) = (open(0)?, open(1)?);
        all.push(Args { send, recv, ..*args });
    }
    let begun = Begun { device, flags, number };
    flags.wait_for_ready(device, number)?;
    // SAFETY: this function's contract; of others' memory there is as much as the call takes, as was
    // just looked at.
    unsafe { launch::launch(device, &all)? };
    flags.show_done(device, number)?;
    std::mem::forget(begun);
    drop(held);
    Ok(())
}

/// A call that the device was perhaps told to do. Where it fails, or panics, the others learn that it is over.
struct Begun<'a> {
    device: &'a Device,
    flags: &'a Flags,
    number: u32,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.flags.is_over(self.device, self.number);
    }
}

/// What a rank brings, of this shape, in what it has told of.
///
/// Errors: there is less than the call takes.
fn part<'a>(
    comm: &Comm,
    args: &Args<'a>,
    shape: Shape,
    offset: u64,
    mapping: &Arc<Mapping>,
    device: &Device,
) -> Result<Memory<'a>, GpuError> {
    // Of all ranks it is the same, whatever this one says.
    let count = args.send.blocks.longest().max(args.recv.blocks.longest());
    let blocks = if shape == Shape::One { Blocks::One(count) } else { Blocks::Equal(count) };
    let elements = blocks.total(comm.size()) as u64;
    let end = elements.checked_mul(args.size() as u64).and_then(|it| it.checked_add(offset));
    if end.is_none_or(|end| end > mapping.bytes as u64) {
        return Err(GpuError::Driver {
            call: "cuIpcOpenMemHandle",
            text: "a rank has less memory there than its call takes".into(),
        });
    }
    let (place, ptr) = (Place::Device(device.ordinal()), (mapping.start + offset) as *mut u8);
    Ok(Memory { place, ptr, blocks })
}
