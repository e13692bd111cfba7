//! Who carries a collective out: the rank by itself where it is alone, a plane that serves the
//! call, or the arena's algorithms; or nobody, where only the arguments are looked at. Nobody else
//! knows.

use crate::args::{Args, SingleRank};
use crate::call::Call;
use crate::comm::Comm;
use crate::copy::copy_bytes;
use crate::error::{Error, Result};
use crate::plane::{Numbered, Plane, Planes};

/// Carries a call out.
///
/// Errors: the root is outside the communicator; nobody reaches the memory; as the call's.
///
/// # Safety
/// `args.send` and `args.recv` are null, or hold the elements of all their blocks, of type
/// `args.dtype`, until the call returns, in which nobody else touches them: `send` values, `recv`
/// room for them. They are the same memory, where the call allows that, or apart. `args.op` is an
/// operation on that type. Which of them there are on this rank, with which blocks, where they may
/// lie in each other, and what `args.incoming` says: all that is as the `# Safety` section of the
/// function `args.collective.arena` has it.
#[inline(always)]
pub unsafe fn dispatch(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    comm.internals().check_root(call)?;
    if comm.offload().is_some() {
        // SAFETY: `on_plane` asks for this function's contract: the buffers with their blocks,
        // which nobody else touches until the call returns.
        return unsafe { on_plane(comm, call, args) };
    }
    // SAFETY: `without_planes` asks for this function's contract, as `on_plane` does.
    unsafe { without_planes(comm, call, args) }
}

/// Whether the rank does it by itself.
#[inline(always)]
fn is_alone(comm: &Comm, args: &Args<'_>) -> bool {
    comm.size() == 1 && args.collective.single_rank != SingleRank::Same && args.is_on_host()
}

/// # Safety
/// As [`dispatch`].
#[inline(always)]
unsafe fn without_planes(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    if is_alone(comm, args) {
        // SAFETY: `single_rank` asks for `dispatch`'s contract (this function's), the buffers with
        // their blocks until the call returns, and for memory of the host, which was just looked
        // at.
        return unsafe { single_rank(comm, call, args) };
    }
    // SAFETY: `in_arena` asks for this function's contract.
    unsafe { in_arena(comm, call, args) }
}

/// # Safety
/// As [`dispatch`].
#[inline(always)]
unsafe fn in_arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    if !args.is_on_host() {
        return Err(refused(comm, call, args));
    }
    // SAFETY: all is as `dispatch` asks for it (this function's contract), and the memory is the
    // host's, as was just looked at: an `Arena` asks for no more.
    unsafe { (args.collective.arena)(comm, call, args) }
}

/// Whether a plane may carry out calls on memory of a device.
fn may_use_devices(comm: &Comm, plane: &dyn Plane) -> bool {
    comm.internals().device_plane().is_none_or(|only| only == plane.name())
}

/// Why nobody carries out a call on memory of a device.
#[cold]
fn refused(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Error {
    let planes = comm.offload().map_or(&[][..], Planes::kept).iter().map(|it| &*it.plane);
    let asked: Vec<_> = planes.filter(|it| may_use_devices(comm, *it)).collect();
    let mut why: Vec<_> = asked.iter().filter_map(|it| it.refusal(comm, args)).collect();
    let only = comm.internals().device_plane();
    if let (Some(only), true) = (only, asked.is_empty()) {
        why.push(format!("the block has no plane '{only}' (`spmd_gpu::planes()` has all)"));
    }
    args.out_of_reach(call, &why, only)
}

/// Does a collective in which this rank is alone: what it contributes is the result, and nobody is
/// met. An operation is not called, as there is nothing to fold.
///
/// # Safety
/// As [`dispatch`]; the memory is the host's.
#[inline(never)]
unsafe fn single_rank(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (send, recv) = (args.send.ptr, args.recv.ptr);
    let (sends, takes) = (args.send.blocks.total(1), args.recv.blocks.total(1));
    let copies = args.collective.single_rank == SingleRank::Copies;
    let count = if send != recv && copies { sends } else { 0 };
    comm.internals().collective(call, |round| {
        if copies && sends != takes {
            return Err(round.disagree(&format!(
                "different counts: rank 0 of the communicator sends {sends} elements to rank 0, \
                 which takes {takes}"
            )));
        }
        // SAFETY: both hold so many elements, as their lengths are equal, and nobody else touches
        // them (this function's contract). Either they are the same, and `count` is 0, or they are
        // apart.
        unsafe { copy_bytes(send, recv, count * args.size()) };
        Ok(())
    })
}

/// # Safety
/// As [`dispatch`].
#[inline(never)]
unsafe fn on_plane(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    if comm.offload().is_some_and(|offload| offload.only_checks()) {
        return Ok(());
    }
    let planes =
        if is_alone(comm, args) { &[] } else { comm.offload().map_or(&[][..], Planes::kept) };
    for Numbered { plane, id } in planes {
        let plane = &**plane;
        if !args.is_on_host() {
            if !may_use_devices(comm, plane) {
                continue;
            }
            plane.prepare(comm, call, args)?;
        }
        if plane.serves(comm, args) {
            call.carried_by(*id);
            // SAFETY: all is as `dispatch` asks for it (this function's contract), and the plane
            // serves the call, as it has just said: `run` asks for no more.
            return unsafe { plane.run(comm, call, args) };
        }
    }
    // SAFETY: all is as `dispatch` asks for it (this function's contract): so does
    // `without_planes`.
    unsafe { without_planes(comm, call, args) }
}
