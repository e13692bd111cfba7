//! The plane `aware`: an MPI library that takes memory of devices, by its address, as that of the host.

use std::sync::Arc;

use spmd_core::internal::{Args, Call, Kind, Memory, Plane, dispatch};
use spmd_core::{Comm, Result};

use crate::calls;
use crate::device::Device;
use crate::driver::Checked;

/// Collectives on [`DeviceBuffer`](crate::DeviceBuffer)s of processes with one rank each, by an MPI library
/// that says of itself that it takes memory of CUDA's devices (`MPIX_Query_cuda_support`): it is given
/// their addresses.
///
/// A call waits for the device before and returns when the data are there. What moves blocks is carried
/// out: `broadcast`, `gather`, `allgather`, `scatter` and `alltoall`, and of those of varying lengths all
/// but `allgatherv`. What it does not carry out it leaves to the planes after it: reductions, of which the
/// library makes no kernel's order and the host's is known; calls in place; started ones; types of which
/// not all bits are values, as the host would have to look at them.
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
        if known || !internals.is_flat() || !calls::is_on_device(args) {
            return Ok(());
        }
        call.carried_by(PREPARED);
        let all = calls::allgather(comm, call, &[u64::from(internals.takes_devices())])?;
        internals.keep(TakesDevices(all.iter().all(|takes| *takes == 1)));
        Ok(())
    }

    fn refusal(&self, comm: &Comm, _: &Args<'_>) -> Option<String> {
        let why = match comm.internals().attribute() {
            Some(TakesDevices(true)) => "it has calls that move blocks, not in place, alone",
            Some(TakesDevices(false)) => {
                "the MPI library does not say that it takes memory of devices"
            }
            None => "it is for processes of one rank each",
        };
        Some(format!("aware: {why}"))
    }

    fn serves(&self, comm: &Comm, args: &Args<'_>) -> bool {
        let internals = comm.internals();
        let takes = || matches!(internals.attribute(), Some(TakesDevices(true)));
        !internals.is_track() && is_handed_on(comm, args) && takes()
    }

    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        let ordinal = calls::ordinal(args).expect("it serves calls on a device alone");
        let device = Device::open(ordinal)?;
        // What the rank's stream does with the memory is done, and the library finds the device.
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        device.synchronize()?;
        let args = Args { send: as_host(args.send), recv: as_host(args.recv), ..*args };
        // SAFETY: all is as the contract of `Plane::run` has it, but that the memory is the device's. It
        // is handed to the library, which takes it (`serves`), and used by nobody else: of calls that move
        // blocks apart from each other, of types without invalid values, among processes of one rank, the
        // plane of processes hands on the very addresses.
        unsafe { dispatch(comm, call, &args) }
    }
}

/// The same memory, by its address, as if it were the host's.
fn as_host(memory: Memory<'_>) -> Memory<'_> {
    if memory.is_some() { Memory::host(memory.ptr, memory.blocks) } else { memory }
}

/// Whether the plane of processes hands the memory of such a call on as it is.
fn is_handed_on(comm: &Comm, args: &Args<'_>) -> bool {
    use Kind::*;
    let moves = matches!(
        args.collective.kind,
        Broadcast | Gather | Allgather | Scatter | Alltoall | Gatherv | Scatterv | Alltoallv
    );
    moves && calls::is_on_device(args) && args.dtype.valid.is_none() && !is_in_place(comm, args)
}

/// Whether what is sent lies where something is received.
fn is_in_place(comm: &Comm, args: &Args<'_>) -> bool {
    let (send, recv) = (args.send, args.recv);
    let room = recv.blocks.total(comm.size()) * args.size();
    let all = recv.ptr as usize..recv.ptr as usize + room;
    send.is_some() && recv.is_some() && all.contains(&(send.ptr as usize))
}
