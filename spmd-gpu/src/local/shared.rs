//! Ranks that are processes of one host and use the same device: the first one opens the memory of the
//! others, by handles of the driver (CUDA IPC), and carries the call out for all as among threads.
//!
//! A call waits for the device: before it each rank for its own stream, and the first one for the call.

use std::ptr::NonNull;

use cudarc::driver::sys;
use spmd_core::buffer::Place;
use spmd_core::internal::{Args, Blocks, Call, Kind, Memory, Plane, Round};
use spmd_core::{Comm, Result};

use super::launch;
use crate::calls;
use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::staged::Staged;

/// What a rank says of a piece of memory: whether it has any, where it lies in what the handle opens,
/// whether there is a handle, and that.
const WORDS: usize = 3 + 8;
const NONE: u64 = 0;
const SOME: u64 = 1;

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
    device: &Device,
) -> Result<()> {
    device.synchronize()?;
    let own = [shown(args.send), shown(args.recv)].concat();
    let all = calls::allgather(comm, call, &own)?;
    let said: Vec<&[u64]> = all.chunks_exact(WORDS).collect();
    if said.iter().any(|it| it[0] != NONE && it[2] != 1) {
        // Some memory has no handle: it was not made by the device of a process rank.
        // SAFETY: this function's contract.
        return unsafe { Staged::plane().run(comm, call, args) };
    }
    comm.internals().collective(call, |round| {
        // Nothing is read there: but a rank that gives a round up in which it has shown something goes
        // on when no other one is in it any more. So none has its memory back that the first one uses.
        // SAFETY: it is no byte.
        unsafe { round.expose(0, NonNull::dangling().as_ptr(), 0) };
        round.arrive(1)?;
        if round.rank() == 0 {
            // SAFETY: all ranks have brought what the call needs, and stay in the round until it is
            // done.
            unsafe { for_all(comm, round, args, &said, device)? };
        }
        round.arrive(2)
    })
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

/// What this rank says of its memory.
fn shown(memory: Memory<'_>) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    if !memory.is_some() {
        return words;
    }
    words[0] = SOME;
    let (mut start, mut handle) = (0, sys::CUipcMemHandle { reserved: [0; 64] });
    // SAFETY: both write to places of this function; the address is one of the device's.
    let codes = unsafe {
        let mut bytes = 0;
        let range = sys::cuMemGetAddressRange_v2(&mut start, &mut bytes, memory.ptr as u64);
        [range, sys::cuIpcGetMemHandle(&mut handle, memory.ptr as u64)]
    };
    if codes.into_iter().all(|code| code.result().is_ok()) {
        (words[1], words[2]) = (memory.ptr as u64 - start, 1);
        let bytes = handle.reserved.map(|byte| byte as u8);
        for (word, bytes) in words[3..].iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
    }
    words
}

/// # Safety
/// The ranks, of which this is the first, have brought what the call needs, and nobody else uses it
/// until this returns.
unsafe fn for_all(
    comm: &Comm,
    round: &Round<'_>,
    args: &Args<'_>,
    said: &[&[u64]],
    device: &Device,
) -> Result<()> {
    let mut opened = Opened(Vec::new());
    let mut all = vec![*args];
    let shapes = shapes(args.collective.kind);
    for (rank, words) in said.chunks_exact(2).enumerate().skip(1) {
        let mut open = |which: usize| {
            let memory = opened.memory(comm, args, (shapes[which], words[which]), device);
            memory.map_err(|error| round.out_of_reach(rank, error.into()))
        };
        let (send, recv) = (open(0)?, open(1)?);
        all.push(Args { send, recv, ..*args });
    }
    // SAFETY: this function's contract; of others' memory there is as much as the call takes, as was
    // just looked at.
    let launched = unsafe { launch::launch(device, &all) };
    // Nothing uses it any more when it is closed.
    let done = device.synchronize();
    drop(opened);
    Ok(launched.and(done)?)
}

/// Memory of others that is open here.
struct Opened(Vec<u64>);

impl Opened {
    /// Opens what a rank has said, which has to be of this shape.
    ///
    /// Errors: the driver cannot open it, or there is less than the call takes.
    fn memory<'a>(
        &mut self,
        comm: &Comm,
        args: &Args<'a>,
        (shape, words): (Shape, &[u64]),
        device: &Device,
    ) -> Result<Memory<'a>, GpuError> {
        // Of all ranks it is the same, whatever this one says.
        let count = args.send.blocks.longest().max(args.recv.blocks.longest());
        let blocks = if shape == Shape::One { Blocks::One(count) } else { Blocks::Equal(count) };
        if words[0] == NONE {
            return Ok(Memory::NONE);
        }
        let mut bytes = [0; 64];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(&words[3..]) {
            *bytes = word.to_ne_bytes().map(|byte| byte as std::ffi::c_char);
        }
        let handle = sys::CUipcMemHandle { reserved: bytes };
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let (mut start, mut all) = (0, 0);
        // SAFETY: both write to places of this function; a handle may be any bytes.
        unsafe {
            let code = sys::cuIpcOpenMemHandle_v2(&mut start, handle, flags);
            code.result().checked("cuIpcOpenMemHandle")?;
            self.0.push(start);
            let mut base = 0;
            let code = sys::cuMemGetAddressRange_v2(&mut base, &mut all, start);
            code.result().checked("cuMemGetAddressRange")?;
        }
        let elements = blocks.total(comm.size()) as u64;
        let end = elements.checked_mul(args.size() as u64).and_then(|it| it.checked_add(words[1]));
        if end.is_none_or(|end| end > all as u64) {
            return Err(GpuError::Driver {
                call: "cuIpcOpenMemHandle",
                text: "a rank has less memory there than its call takes".into(),
            });
        }
        let (place, ptr) = (Place::Device(device.ordinal()), (start + words[1]) as *mut u8);
        Ok(Memory { place, ptr, blocks })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for start in &self.0 {
            // SAFETY: it was opened as often as it is closed, and nothing on the device uses it.
            let _ = unsafe { sys::cuIpcCloseMemHandle(*start) };
        }
    }
}
