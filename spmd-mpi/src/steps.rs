//! Collective steps as calls of MPI.

use std::ffi::c_int;
use std::ptr;

use spmd_core::transport::fabric::{BlockLayout, Fold, NativeCollective};
use spmd_core::{Error, Result};

use crate::handles::{Comm, Datatype, Op};
use crate::library::{Constants, Library};
use crate::provider::Count;
use crate::provider::{Lists, Run};
use crate::requests::OwnedRequest;
use crate::types::native;

/// Makes a step, or begins it if there is a place for its request, for process `rank` of `comm`.
///
/// # Safety
/// All memory that the step names is valid for what it says of it, until the step is complete: that
/// includes its slices.
#[inline(always)]
pub unsafe fn make(
    mpi: &Library,
    comm: Comm,
    rank: usize,
    step: NativeCollective<'_>,
    mut begun: Option<&mut OwnedRequest>,
) -> Result<()> {
    let mut copy = Box::default();
    /// Waits or begins; then the `kept` lists stay with the request.
    macro_rules! call {
        ($wait:ident, $begin:ident: $($rest:tt)*) => { call!(begun, $wait, $begin: $($rest)*) };
        ($begun:ident, $wait:ident, $begin:ident: $($argument:expr),* $(; $($kept:ident),*)?) => {
            // SAFETY: the communicator is valid, and the memory is valid for the counts and types
            // beside it, by this function's contract; no other thread calls MPI, since the caller
            // can reach the library.
            unsafe {
                match $begun {
                    None => mpi.$wait($($argument),*),
                    Some(begun) => {
                        let made = mpi.$begin($($argument),*, &mut begun.request);
                        $($(begun.kept.push($kept.keep());)*)?
                        made
                    }
                }
            }
        };
    }
    match step {
        NativeCollective::Barrier => call!(barrier, ibarrier: comm),
        NativeCollective::Broadcast { root, memory, bytes } => {
            let run = Run::of(mpi, bytes)?;
            call!(bcast, ibcast: place(memory), run.count, run.of, root as c_int, comm)
        }
        NativeCollective::Gather { root, send, recv } => {
            let (root, from, to) = (root as c_int, place(send.0.cast_mut()), place(recv.memory));
            let run = Run::of(mpi, send.1)?;
            match recv.layout {
                BlockLayout::Equal(_) => call!(gather, igather:
                    from, run.count, run.of, to, run.count, run.of, root, comm),
                BlockLayout::Listed { bytes, displacements } => {
                    let all = Lists::of(mpi, bytes, displacements)?;
                    call!(gatherv, igatherv:
                        from, run.count, run.of, to, all.counts, all.displacements, all.of, root, comm;
                        all)
                }
            }
        }
        NativeCollective::Allgather { send, recv } => {
            // SAFETY: a process's own block lies within the memory.
            let own = unsafe { recv.memory.add(recv.layout.start(rank)) };
            let send = match send.0 == own {
                // SAFETY: this function's contract.
                true => (unsafe { kept(send, begun.as_deref_mut(), &mut copy) }, send.1),
                false => send,
            };
            let (from, to) = (place(send.0.cast_mut()), place(recv.memory));
            let run = Run::of(mpi, send.1)?;
            match (recv.layout, begun) {
                (BlockLayout::Equal(_), begun) => call!(begun, allgather, iallgather:
                    from, run.count, run.of, to, run.count, run.of, comm),
                (BlockLayout::Listed { bytes, displacements }, None) => {
                    let all = Lists::of(mpi, bytes, displacements)?;
                    let (counts, displacements) = (all.counts, all.displacements);
                    // SAFETY: as in `call`.
                    unsafe {
                        mpi.allgatherv(
                            from,
                            run.count,
                            run.of,
                            to,
                            counts,
                            displacements,
                            all.of,
                            comm,
                        )
                    }
                }
                (BlockLayout::Listed { bytes, displacements }, Some(begun)) => {
                    let send = (send.0.cast_mut(), send.1);
                    // SAFETY: this function's contract.
                    unsafe { begin_allgather(mpi, comm, send, (to, bytes, displacements), begun) }
                }
            }
        }
        NativeCollective::Scatter { root, send, recv } => {
            let (root, from, to) = (root as c_int, place(send.memory), place(recv.0));
            let run = Run::of(mpi, recv.1)?;
            match send.layout {
                BlockLayout::Equal(_) => call!(scatter, iscatter:
                    from, run.count, run.of, to, run.count, run.of, root, comm),
                BlockLayout::Listed { bytes, displacements } => {
                    let all = Lists::of(mpi, bytes, displacements)?;
                    call!(scatterv, iscatterv:
                        from, all.counts, all.displacements, all.of, to, run.count, run.of, root, comm;
                        all)
                }
            }
        }
        NativeCollective::Alltoall { send, recv } => {
            let (from, to) = (place(send.memory), place(recv.memory));
            match (send.layout, recv.layout) {
                (
                    BlockLayout::Listed { bytes: lengths, displacements: places },
                    BlockLayout::Listed { bytes, displacements },
                ) => {
                    let out = Lists::of(mpi, lengths, places)?;
                    let come = Lists::of(mpi, bytes, displacements)?;
                    call!(alltoallv, ialltoallv:
                        from, out.counts, out.displacements, out.of,
                        to, come.counts, come.displacements, come.of, comm; out, come)
                }
                (BlockLayout::Equal(bytes), _) | (_, BlockLayout::Equal(bytes)) => {
                    let run = Run::of(mpi, bytes)?;
                    call!(alltoall, ialltoall: from, run.count, run.of, to, run.count, run.of, comm)
                }
            }
        }
        NativeCollective::Reduce { root, fold } => {
            let Native { mut from, mut to, count, of, op } = Native::of(&mpi.constants, fold)?;
            if rank != root {
                (from, to) = (place(fold.send.cast_mut()), ptr::null_mut());
            }
            call!(reduce, ireduce: from, to, count, of, op, root as c_int, comm)
        }
        NativeCollective::Allreduce(fold) => {
            // SAFETY: this function's contract.
            let fold = unsafe { apart(fold, begun.as_deref_mut(), &mut copy) };
            let Native { from, to, count, of, op } = Native::of(&mpi.constants, fold)?;
            call!(allreduce, iallreduce: from, to, count, of, op, comm)
        }
        NativeCollective::ReduceScatter { fold, counts } => {
            let Native { from, to, of, op, .. } = Native::of(&mpi.constants, fold)?;
            let each = Lists::of_elements(counts, of);
            call!(reduce_scatter, ireduce_scatter: from, to, each.counts, of, op, comm; each)
        }
        NativeCollective::Scan(fold) => {
            // SAFETY: this function's contract.
            let fold = unsafe { apart(fold, begun.as_deref_mut(), &mut copy) };
            let Native { from, to, count, of, op } = Native::of(&mpi.constants, fold)?;
            call!(scan, iscan: from, to, count, of, op, comm)
        }
        NativeCollective::Exscan(fold) => {
            // SAFETY: this function's contract.
            let fold = unsafe { apart(fold, begun.as_deref_mut(), &mut copy) };
            let Native { from, to, count, of, op } = Native::of(&mpi.constants, fold)?;
            call!(exscan, iexscan: from, to, count, of, op, comm)
        }
    }
}

/// The fold, of a copy of what it takes in place: MPI asks for `MPI_IN_PLACE` from all processes or
/// none, and what the others have is not known here. The copy stays as long as the request, or in
/// `copy`.
///
/// # Safety
/// The elements that are folded are readable.
#[inline(always)]
unsafe fn apart<'a>(
    fold: Fold<'a>,
    begun: Option<&mut OwnedRequest>,
    copy: &mut Box<[u8]>,
) -> Fold<'a> {
    if fold.send != fold.recv {
        return fold;
    }
    let send = (fold.send, fold.count * fold.dtype.size as usize);
    // SAFETY: so many bytes are readable, by the caller's contract.
    Fold { send: unsafe { kept(send, begun, copy) }, ..fold }
}

/// A copy of these bytes, which the request keeps, or `copy`.
///
/// # Safety
/// They are readable, and initialised.
#[cold]
unsafe fn kept(
    (data, bytes): (*const u8, usize),
    begun: Option<&mut OwnedRequest>,
    copy: &mut Box<[u8]>,
) -> *const u8 {
    let copy = begun.map_or(copy, |begun| &mut begun.copy);
    if bytes > 0 {
        // SAFETY: the caller's contract; elements have no padding.
        *copy = Box::from(unsafe { std::slice::from_raw_parts(data, bytes) });
    }
    copy.as_ptr()
}

/// Begins to bring blocks of different lengths to all: as an alltoall of copies of each. What is
/// for that, `MPI_Iallgatherv`, sends with Intel MPI 2021.18 as much at a time as the shortest
/// block is long: single bytes, if one is empty.
///
/// # Safety
/// As [`make`].
#[cold]
unsafe fn begin_allgather(
    mpi: &Library,
    comm: Comm,
    (send, length): (*mut u8, usize),
    (to, bytes, displacements): (*mut u8, &[usize], &[usize]),
    begun: &mut OwnedRequest,
) -> Result<()> {
    // The block may lie in the memory for all, where it is also received.
    // SAFETY: the caller's contract.
    let copy = Box::<[u8]>::from(unsafe { std::slice::from_raw_parts(send, length) });
    let (lengths, nowhere) = (vec![length; bytes.len()], vec![0; bytes.len()]);
    let (out, come) = (Lists::of(mpi, &lengths, &nowhere)?, Lists::of(mpi, bytes, displacements)?);
    // SAFETY: the caller's contract, and what is made here stays with the request.
    let made = unsafe {
        mpi.ialltoallv(
            place(copy.as_ptr().cast_mut()),
            out.counts,
            out.displacements,
            out.of,
            to,
            come.counts,
            come.displacements,
            come.of,
            comm,
            &mut begun.request,
        )
    };
    begun.kept.extend([out.keep(), come.keep()]);
    (begun.copy, begun.lists) = (copy, [lengths, nowhere]);
    made
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
    Error::argument(format!("MPI has no {op} of {dtype} with this library's results"))
}

/// The address as MPI is to see it. That of an empty slice is some small number, of which MPI has
/// given a meaning to a few (1 is `MPI_IN_PLACE`); no memory lies there.
#[inline(always)]
pub fn place(memory: *mut u8) -> *mut u8 {
    if memory.addr() < 4096 { ptr::null_mut() } else { memory }
}
