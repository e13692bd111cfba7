//! Calls that tests start. What these give is not to be forgotten.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::panic::Location;

use spmd::Element;
use spmd::prelude::*;
use spmd_collectives::internal as verbs;
use spmd_core::internal::{Blocks, Call, ErasedOp, Kind, Memory, StartedCall, start};

/// Room for what calls receive, or values for them.
fn memory<T>(buf: &mut [T]) -> Memory<'_> {
    Memory::host(buf.as_mut_ptr().cast(), Blocks::One(buf.len()))
}

/// Starts an allreduce in place. What this gives is not to be forgotten.
#[track_caller]
pub fn allreduce<'a, T: Element>(
    comm: &'a Comm,
    buf: &'a mut [T],
    op: &'a ErasedOp<'a>,
) -> Result<StartedCall<'a>> {
    let call = Call::new(Kind::Allreduce, Location::caller()).data(&T::DTYPE, buf.len()).op(op);
    let buf = memory(buf);
    // SAFETY: the buffer is borrowed for as long as the call may go on, which ends before it as no
    // test forgets what it has started.
    unsafe { start(comm, call, verbs::allreduce(&T::DTYPE, op, buf, buf)) }
}

/// Starts a broadcast, likewise.
#[track_caller]
pub fn broadcast<'a, T: Element>(
    comm: &'a Comm,
    buf: &'a mut [T],
    root: usize,
) -> Result<StartedCall<'a>> {
    let call = Call::new(Kind::Broadcast, Location::caller()).data(&T::DTYPE, buf.len()).root(root);
    // SAFETY: as above.
    unsafe { start(comm, call, verbs::broadcast(&T::DTYPE, root, memory(buf))) }
}

/// Starts a barrier, likewise.
#[track_caller]
pub fn barrier(comm: &Comm) -> Result<StartedCall<'_>> {
    // SAFETY: it uses no memory.
    unsafe { start(comm, Call::new(Kind::Barrier, Location::caller()), verbs::barrier()) }
}
