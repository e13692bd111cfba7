//! Collective steps as calls of MPI.

use std::ffi::c_int;
use std::ptr;

use spmd_core::transport::fabric::{Fold, Parts, Step};
use spmd_core::{Error, Result};

use crate::library::{Aint, Comm, Constants, Count, Datatype, Library, Op, Request};
use crate::types::native;

/// Makes a step, or begins it if there is a `request`, for process `rank` of `comm`.
///
/// # Safety
/// All memory that the step names is valid for what it says of it, until the step is complete: that
/// includes its slices.
#[inline(always)]
pub unsafe fn make(
    mpi: &Library,
    comm: Comm,
    rank: usize,
    step: Step<'_>,
    request: Option<&mut Request>,
) -> Result<()> {
    /// Waits or begins.
    macro_rules! call {
        ($wait:ident, $begin:ident: $($argument:expr),*) => {
            // SAFETY: the communicator is valid, and the memory is valid for the counts and types
            // beside it, by this function's contract; no other thread calls MPI, since the caller
            // can reach the library.
            unsafe {
                match request {
                    None => mpi.$wait($($argument),*),
                    Some(request) => mpi.$begin($($argument),*, request),
                }
            }
        };
    }
    let byte = mpi.constants.byte;
    let in_place = mpi.constants.in_place.cast_const();
    match step {
        Step::Barrier => call!(barrier, ibarrier: comm),
        Step::Broadcast { root, memory, bytes } => {
            call!(bcast, ibcast: place(memory), bytes as Count, byte, root as c_int, comm)
        }
        Step::Gather { root, send, recv, equal } => {
            let root = root as c_int;
            let (from, sent) = (place(send.0.cast_mut()).cast_const(), send.1 as Count);
            if equal {
                let to = recv.map_or(ptr::null_mut(), |recv| place(recv.memory));
                call!(gather, igather: from, sent, byte, to, sent, byte, root, comm)
            } else {
                let (to, counts, starts) = recv.map_or(NOWHERE, blocks);
                call!(gatherv, igatherv: from, sent, byte, to, counts, starts, byte, root, comm)
            }
        }
        Step::Allgather { send, recv, equal } => {
            // SAFETY: a process's own block lies within the memory.
            let own = unsafe { recv.memory.add(recv.starts[rank]) };
            let from = if send.0 == own { in_place } else { place(send.0.cast_mut()) };
            let sent = send.1 as Count;
            if equal {
                let to = place(recv.memory);
                call!(allgather, iallgather: from, sent, byte, to, sent, byte, comm)
            } else {
                let (to, counts, starts) = blocks(recv);
                call!(allgatherv, iallgatherv: from, sent, byte, to, counts, starts, byte, comm)
            }
        }
        Step::Scatter { root, send, recv, equal } => {
            let root = root as c_int;
            let (to, received) = (place(recv.0), recv.1 as Count);
            if equal {
                let from = send.map_or(ptr::null_mut(), |send| place(send.memory));
                call!(scatter, iscatter: from, received, byte, to, received, byte, root, comm)
            } else {
                let (from, counts, starts) = send.map_or(NOWHERE, blocks);
                call!(scatterv, iscatterv: from, counts, starts, byte, to, received, byte, root, comm)
            }
        }
        Step::Alltoall { send, recv, equal } => {
            let (from, sent, leaving) = blocks(send);
            let (to, received, arriving) = blocks(recv);
            if equal {
                let bytes = recv.bytes[rank] as Count;
                call!(alltoall, ialltoall: from, bytes, byte, to, bytes, byte, comm)
            } else {
                call!(alltoallv, ialltoallv:
                    from, sent, leaving, byte, to, received, arriving, byte, comm)
            }
        }
        Step::Reduce { root, fold } => {
            let Native { mut from, mut to, count, of, op } = Native::of(&mpi.constants, fold)?;
            if rank != root {
                (from, to) = (place(fold.send.cast_mut()), ptr::null_mut());
            }
            call!(reduce, ireduce: from, to, count, of, op, root as c_int, comm)
        }
        Step::Allreduce(fold) => {
            let Native { from, to, count, of, op } = Native::of(&mpi.constants, fold)?;
            call!(allreduce, iallreduce: from, to, count, of, op, comm)
        }
        Step::ReduceScatter { fold, counts } => {
            let Native { from, to, of, op, .. } = Native::of(&mpi.constants, fold)?;
            call!(reduce_scatter, ireduce_scatter: from, to, as_counts(counts), of, op, comm)
        }
        Step::Scan(fold) => {
            let Native { from, to, count, of, op } = Native::of(&mpi.constants, fold)?;
            call!(scan, iscan: from, to, count, of, op, comm)
        }
        Step::Exscan(fold) => {
            let Native { from, to, count, of, op } = Native::of(&mpi.constants, fold)?;
            call!(exscan, iexscan: from, to, count, of, op, comm)
        }
    }
}

/// A fold in MPI's terms.
struct Native {
    from: *const u8,
    to: *mut u8,
    count: Count,
    of: Datatype,
    op: Op,
}

impl Native {
    #[inline(always)]
    fn of(mpi: &Constants, fold: Fold<'_>) -> Result<Native> {
        let Some((of, op)) = native(mpi, fold.dtype, fold.op) else { return Err(foreign(fold)) };
        let from = if fold.send == fold.recv { mpi.in_place } else { place(fold.send.cast_mut()) };
        Ok(Native { from, to: place(fold.recv), count: fold.count as Count, of, op })
    }
}

#[cold]
fn foreign(fold: Fold<'_>) -> Error {
    let (op, dtype) = (fold.op.name(), fold.dtype);
    Error::Argument(format!("MPI has no {op} of {dtype} with this library's results"))
}

/// The blocks of a process that has none, since it isn't the root.
const NOWHERE: (*mut u8, *const Count, *const Aint) = (ptr::null_mut(), ptr::null(), ptr::null());

fn blocks(parts: Parts<'_>) -> (*mut u8, *const Count, *const Aint) {
    (place(parts.memory), as_counts(parts.bytes), parts.starts.as_ptr().cast())
}

/// Lengths as MPI's counts: of the same size on 64-bit systems, and no memory has more bytes than
/// the signed type can say.
fn as_counts(lengths: &[usize]) -> *const Count {
    const { assert!(size_of::<usize>() == size_of::<Count>()) };
    lengths.as_ptr().cast()
}

/// The address as MPI is to see it. That of an empty slice is some small number, of which MPI has
/// given a meaning to a few (1 is `MPI_IN_PLACE`); no memory lies there.
#[inline(always)]
fn place(memory: *mut u8) -> *mut u8 {
    if memory.addr() < 4096 { ptr::null_mut() } else { memory }
}
