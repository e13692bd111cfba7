//! The plane `staged`: calls on device buffers by way of the host.

use std::sync::Arc;

use cudarc::driver::CudaEvent;
use spmd_core::internal::{Args, Call, Plane, Rows, dispatch};
use spmd_core::{Comm, Result};

use crate::calls;
use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::pieces::Brought;
use crate::stage::Stage;

/// Collectives on [`DeviceBuffer`](crate::DeviceBuffer)s of any ranks, on any devices: each copies what
/// it brings into pinned memory of the host, makes the call there, and copies what it gets back.
///
/// So it carries out what ranks of several processes or hosts call, and operations of the program's own;
/// the bits are those of the host. A call waits for the device, and returns when the result is there. Named
/// after [`Local`](crate::Local), it does what that leaves.
///
/// A call with equal blocks is made in pieces of up to 16 segments (`SPMD_SEGMENT`; 2 MiB) of what a rank
/// sends or receives, an element of each block at least: while the ranks exchange one, the device copies
/// the one before back, and the next one to the host. Two pieces of what is sent and two of what is received
/// are in pinned memory then, and a rank keeps as much for later calls at most: 16 MiB in all. Blocks that
/// vary, and those of neighbours in a grid, are there whole.
///
/// ```no_run
/// use spmd::prelude::*;
/// use spmd::gpu::{Local, Staged};
///
/// # fn main() -> Result<()> {
/// Spmd::new(4).plane(Local::new()).plane(Staged::new()).run(|ctx| ctx.barrier())?;
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
        let brought = Brought::new(comm, args);
        let _held = comm.internals().hold(call)?;
        let pieces = brought.pieces();
        let mut stages = Vec::new();
        for _ in 0..pieces.min(STAGES) {
            stages.push(Stages::take(&device, &brought)?);
        }
        let turns = stages.len();
        // SAFETY: of each call: the device has the memory of the call until this returns, and nobody else
        // uses it (contract of `Plane::run`), and the stages are this call's. Those that a piece is copied
        // to or from are used by the host again when that is done: `wait` has it so. What the call has put
        // there is values.
        unsafe {
            stages[0].fill(&device, &brought, 0)?;
            for number in 0..pieces {
                if number + 1 < pieces {
                    stages[(number + 1) % turns].fill(&device, &brought, number + 1)?;
                }
                let stages = &stages[number % turns];
                stages.wait(&device)?;
                if let Some(each) = brought.each() {
                    // So none meets another piece, or one of another length, whoever makes the call anew.
                    call.carried_by(PIECE ^ each as u64);
                }
                // The stages hold what the memory of the piece holds, or room for as much, in the same
                // blocks.
                dispatch(comm, call, &stages.args(&brought, number))?;
                stages.empty(&device, &brought, number)?;
            }
        }
        device.synchronize()?;
        stages.into_iter().for_each(Stages::keep);
        Ok(())
    }
}

/// How many pieces of a call are on the host at a time: one that the ranks exchange, and one that is copied
/// back before the next one is copied there.
const STAGES: usize = 2;

/// Tells the pieces of a call apart.
const PIECE: u64 = 0x7374_6167_6564_5f6e;

/// What a piece has on the host: a stage for what is sent, if that lies apart, and one for what is received.
struct Stages {
    sent: Option<Stage>,
    received: Option<Stage>,
    /// That the last copies to or from them are done.
    copied: CudaEvent,
}

impl Stages {
    fn take(device: &Device, brought: &Brought<'_>) -> Result<Stages, GpuError> {
        let longest = brought.piece(0);
        let stage = |rows: Rows| Stage::take(device, rows.total());
        let sent = brought.sends_elsewhere().then(|| stage(longest.send)).transpose()?;
        let received = brought.receives().then(|| stage(longest.recv)).transpose()?;
        let copied = device.context().new_event(None).checked("cuEventCreate")?;
        Ok(Stages { sent, received, copied })
    }

    /// Has the device copy here what the call reads.
    ///
    /// # Safety
    /// The device has the piece's memory, which nobody writes; the stages are used by nobody until the
    /// event.
    unsafe fn fill(
        &self,
        device: &Device,
        brought: &Brought<'_>,
        piece: usize,
    ) -> Result<(), GpuError> {
        let piece = brought.piece(piece);
        // SAFETY: this function's contract.
        unsafe {
            if let Some(stage) = &self.sent {
                stage.fill(piece.send)?;
            }
            if let Some(stage) = self.received.as_ref().filter(|_| brought.keeps()) {
                stage.fill(piece.recv)?;
            }
        }
        self.copied.record(device.stream()).checked("cuEventRecord")
    }

    /// Waits until the host may use them.
    fn wait(&self, device: &Device) -> Result<(), GpuError> {
        device.wait_for(&self.copied)
    }

    /// The call on the piece that is here.
    fn args<'a>(&self, brought: &Brought<'a>, piece: usize) -> Args<'a> {
        let start = |stage: &Option<Stage>| stage.as_ref().map(Stage::start);
        brought.on_host(brought.piece(piece), start(&self.sent), start(&self.received))
    }

    /// Has the device copy from here what was received.
    ///
    /// # Safety
    /// The device has the piece's memory, which nobody uses; the stages hold values, and are used by nobody
    /// until the event.
    unsafe fn empty(
        &self,
        device: &Device,
        brought: &Brought<'_>,
        piece: usize,
    ) -> Result<(), GpuError> {
        if let Some(stage) = &self.received {
            // SAFETY: this function's contract.
            unsafe { stage.empty(brought.piece(piece).recv)? };
        }
        self.copied.record(device.stream()).checked("cuEventRecord")
    }

    /// Keeps them for later calls.
    fn keep(self) {
        self.sent.into_iter().chain(self.received).for_each(Stage::keep);
    }
}
