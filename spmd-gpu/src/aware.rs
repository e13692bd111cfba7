//! The plane `aware`: an MPI library that takes memory of devices, by its address, as that of the host.

use std::sync::Arc;

use cudarc::driver::CudaSlice;
use spmd_core::internal::{Args, Call, Memory, Plane, dispatch};
use spmd_core::{Comm, Result};

use crate::calls;
use crate::device::Device;
use crate::driver::Checked;
use crate::exports::address_of;
use crate::staged::Staged;

/// Collectives on [`DeviceBuffer`](crate::DeviceBuffer)s of processes with one rank each, by an MPI library
/// that says of itself that it takes memory of CUDA's devices (`MPIX_Query_cuda_support`): it is given
/// their addresses.
///
/// A call waits for the device before and returns when the data are there. All collectives on equal and
/// varying blocks are carried out, reductions with what the library folds as `spmd` does, in an order of its own:
/// `SPMD_REPRODUCIBLE=1` leaves them to others. In place, a copy on the device is sent.
///
/// Libraries take such memory in their blocking functions alone. These hold a process up, and so are called on the
/// block's own communicator while nobody else in any process can be waited for: as long as the block has no other communicators,
/// windows or requests. Else calls go by way of the host. So do those that it does not carry out: started ones, and those on types of which not
/// all bits are values, as the host has to look at them.
///
/// No library that was at hand says so: this was tested over a fabric of the tests alone.
#[derive(Debug)]
pub struct Aware(());

impl Aware {
    /// For [`Spmd::plane`](spmd_core::Spmd::plane).
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<dyn Plane> {
        Arc::new(Aware(()))
    }
}

/// Whether all processes of a communicator are joined by such a library.
#[derive(Clone, Copy)]
struct TakesDevices(bool);

const TAKES_NONE: &str = "the MPI library does not say that it takes memory of devices";

/// Tells the call in which the ranks tell each other from the call itself.
const PREPARED: u64 = 0x6177_6172_655f_7361;

impl Plane for Aware {
    fn name(&self) -> &str {
        "aware"
    }

    fn is_for(&self, spans_processes: bool) -> bool {
        spans_processes
    }

    fn prepare(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        let internals = comm.internals();
        let known = internals.is_track() || internals.attribute::<TakesDevices>().is_some();
        if known || !internals.has_lone_ranks() || !calls::is_on_device(args) {
            return Ok(());
        }
        call.carried_by(PREPARED);
        let all = calls::allgather(comm, call, &[u64::from(internals.takes_devices())])?;
        internals.keep(TakesDevices(all.iter().all(|takes| *takes == 1)));
        Ok(())
    }

    fn refusal(&self, comm: &Comm, _: &Args<'_>) -> Option<String> {
        let why = match comm.internals().attribute() {
            Some(TakesDevices(true)) => {
                "it has no started calls, folds what the MPI library folds as spmd does alone, without \
                 SPMD_REPRODUCIBLE=1, and has types alone of which all bits are values"
            }
            Some(TakesDevices(false)) => TAKES_NONE,
            None => "it is for the block's own communicator, of processes of one rank each",
        };
        Some(format!("aware: {why}"))
    }

    fn found(&self, comm: &Comm) -> Option<String> {
        Some(match comm.internals().attribute()? {
            TakesDevices(true) => "used".into(),
            TakesDevices(false) => format!("not used: {TAKES_NONE}"),
        })
    }

    fn serves(&self, comm: &Comm, args: &Args<'_>) -> bool {
        let internals = comm.internals();
        let takes = || matches!(internals.attribute(), Some(TakesDevices(true)));
        // Of a track, the communicator is not the block's own.
        internals.has_lone_ranks() && is_handed_on(comm, args) && takes()
    }

    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        let ordinal = calls::ordinal(args).expect("it serves calls on a device alone");
        let device = Device::open(ordinal)?;
        // SAFETY: the device has the memory of the call until this returns, by the contract of `Plane::run`.
        let copy = unsafe { copy_to_send(comm, args, &device)? };
        // What the rank's stream does with the memory is done, and the library finds the device.
        device.synchronize()?;
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        if !comm.internals().may_block(call)? {
            // SAFETY: this function's contract.
            return unsafe { Staged::plane().run(comm, call, args) };
        }
        let from = copy.as_ref().map_or(args.send.ptr, |copy| address_of(copy) as *mut u8);
        let send = as_host(Memory { ptr: from, ..args.send });
        let args = Args { send, recv: as_host(args.recv), ..*args };
        // SAFETY: all is as the contract of `Plane::run` has it, but that the memory is the device's. It
        // is handed to the library, which takes it (`serves`) in functions that hold the process up: others
        // are not called (`may_block`). Nobody else uses it: among processes of one rank, of calls that
        // send and receive apart from each other, on types without invalid values, with operations of
        // the library's, the plane of processes hands on the very addresses.
        unsafe { dispatch(comm, call, &args) }
    }
}

/// The same memory, by its address, as if it were the host's.
fn as_host(memory: Memory<'_>) -> Memory<'_> {
    if memory.is_some() { Memory::host(memory.ptr, memory.blocks) } else { memory }
}

/// Whether the plane of processes hands the memory of such a call on as it is.
fn is_handed_on(comm: &Comm, args: &Args<'_>) -> bool {
    let internals = comm.internals();
    let folded = args
        .op
        .is_none_or(|op| !internals.is_reproducible() && internals.library_folds(args.dtype, op));
    calls::is_on_device(args) && args.dtype.valid.is_none() && folded
}

/// A copy of what this rank sends, if that lies where it receives something.
///
/// # Safety
/// The device has the memory of the call, which nobody else uses, until it has done this.
unsafe fn copy_to_send(
    comm: &Comm,
    args: &Args<'_>,
    device: &Device,
) -> Result<Option<CudaSlice<u8>>> {
    let (send, recv) = (args.send, args.recv);
    let room = recv.blocks.total(comm.size()) * args.size();
    let all = recv.ptr as usize..recv.ptr as usize + room;
    if !send.is_some() || !recv.is_some() || !all.contains(&(send.ptr as usize)) {
        return Ok(None);
    }
    let bytes = send.blocks.total(comm.size()) * args.size();
    let copy = device.scratch(bytes)?;
    // SAFETY: the device holds so many bytes there (this function's contract), and the copy has room for them.
    unsafe { device.copy(send.ptr as u64, address_of(&copy), bytes)? };
    Ok(Some(copy))
}
