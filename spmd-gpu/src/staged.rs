//! The plane `staged`: calls on device buffers by way of the host.

use std::sync::Arc;

use spmd_core::internal::{Args, Call, Kind, Memory, Plane, dispatch};
use spmd_core::{Comm, Result};

use crate::calls;
use crate::device::Device;
use crate::error::GpuError;
use crate::stage::Stage;

/// Collectives on [`DeviceBuffer`](crate::DeviceBuffer)s of any ranks, on any devices: each copies what
/// it brings into pinned memory of the host, makes the call there, and copies what it gets back.
///
/// So it carries out what ranks of several processes or hosts call, and operations of the program's own;
/// the bits are those of the host. A call waits for the device, and returns when the result is there. Named
/// after [`Local`](crate::Local), it does what that leaves.
///
/// ```no_run
/// # use spmd_core::{Result, Spmd};
/// # use spmd_gpu::{Local, Staged};
/// # fn main() -> Result<()> {
/// Spmd::new(4).plane(Local::new()).plane(Staged::new()).run(|ctx| ctx.barrier())?;
/// # use spmd_collectives::Barrier;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Staged(());

impl Staged {
    /// For [`Spmd::plane`](spmd_core::Spmd::plane).
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<dyn Plane> {
        Arc::new(Staged(()))
    }

    /// For planes that leave a call to it which they have begun.
    pub(crate) fn plane() -> Staged {
        Staged(())
    }
}

impl Plane for Staged {
    fn name(&self) -> &str {
        "staged"
    }

    fn is_for(&self, _spans_processes: bool) -> bool {
        true
    }

    fn serves(&self, _: &Comm, args: &Args<'_>) -> bool {
        calls::is_for_host(args)
    }

    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        let ordinal = calls::ordinal(args).expect("it serves calls on a device alone");
        let device = Device::open(ordinal)?;
        let brings = Brings::of(comm, args);
        // SAFETY: the device has the memory of the call until this returns, and nobody else uses it
        // (contract of `Plane::run`).
        let stages = unsafe { brings.copy_to_host(&device)? };
        let args = brings.on_host(args, &stages);
        // SAFETY: the stages hold what the memory of the call holds, or room for as much, in the same
        // blocks, and are this call's.
        unsafe { dispatch(comm, call, &args)? };
        // SAFETY: as above; what the call has put there are values.
        unsafe { brings.copy_back(&device, &stages)? };
        stages.into_iter().flatten().for_each(Stage::keep);
        Ok(())
    }
}

/// What a rank brings to a call, as places on its device.
struct Brings {
    send: Range,
    recv: Range,
    /// What it sends is part of what it receives into.
    in_place: bool,
    /// Something of what lies where it receives is sent, or stays.
    keeps: bool,
}

/// Memory of the device, of no bytes where the rank has none.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    bytes: usize,
}

impl Range {
    fn of(memory: Memory<'_>, args: &Args<'_>, ranks: usize) -> Range {
        let elements = if memory.is_some() { memory.blocks.total(ranks) } else { 0 };
        Range { start: memory.ptr as u64, bytes: elements * args.size() }
    }

    fn holds(self, other: Range) -> bool {
        let from = other.start.checked_sub(self.start);
        from.is_some_and(|from| from + other.bytes as u64 <= self.bytes as u64)
    }
}

impl Brings {
    fn of(comm: &Comm, args: &Args<'_>) -> Brings {
        let range = |memory| Range::of(memory, args, comm.size());
        let (send, recv) = (range(args.send), range(args.recv));
        let in_place = args.send.is_some() && args.recv.is_some() && recv.holds(send);
        let keeps = match args.collective.kind {
            Kind::Broadcast => comm.rank() == args.root,
            Kind::Scatter | Kind::Scatterv => false,
            // The first rank gets nothing.
            Kind::Exscan => true,
            // Where there is no neighbour, what was there stays.
            kind if calls::is_of_neighbors(kind) => true,
            _ => in_place || !args.send.is_some(),
        };
        Brings { send, recv, in_place, keeps }
    }

    /// Stages for what is sent and what is received, with what the call reads; one for both in place.
    ///
    /// # Safety
    /// The device has this memory, which nobody writes.
    unsafe fn copy_to_host(&self, device: &Device) -> Result<[Option<Stage>; 2], GpuError> {
        let stage = |range: Range| Stage::take(device, range.bytes).map(Some);
        let sent = if self.send.start == 0 || self.in_place { None } else { stage(self.send)? };
        let received = if self.recv.start == 0 { None } else { stage(self.recv)? };
        // SAFETY: so many bytes are there (this function's contract), and the stages are this call's.
        unsafe {
            if let Some(stage) = &sent {
                stage.fill(self.send.start, self.send.bytes)?;
            }
            if let (Some(stage), true) = (&received, self.keeps) {
                stage.fill(self.recv.start, self.recv.bytes)?;
            }
        }
        device.synchronize()?;
        Ok([sent, received])
    }

    /// The same call on the stages.
    fn on_host<'a>(&self, args: &Args<'a>, [sent, received]: &[Option<Stage>; 2]) -> Args<'a> {
        let host = |memory: Memory<'a>, start: *mut u8| Memory::host(start, memory.blocks);
        let start = |stage: &Option<Stage>| stage.as_ref().map(Stage::start);
        let recv = start(received).map_or(Memory::NONE, |start| host(args.recv, start));
        let send = match start(sent) {
            Some(start) => host(args.send, start),
            None if self.in_place => {
                let offset = (self.send.start - self.recv.start) as usize;
                host(args.send, recv.ptr.wrapping_add(offset))
            }
            None => Memory::NONE,
        };
        Args { send, recv, ..*args }
    }

    /// Copies what was received to the device.
    ///
    /// # Safety
    /// The device has this memory, which nobody uses; the stage holds values.
    unsafe fn copy_back(
        &self,
        device: &Device,
        stages: &[Option<Stage>; 2],
    ) -> Result<(), GpuError> {
        let [_, Some(received)] = stages else { return Ok(()) };
        // SAFETY: this function's contract.
        unsafe { received.empty(self.recv.start, self.recv.bytes)? };
        device.synchronize()
    }
}
