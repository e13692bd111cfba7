//! The plane `local`: several ranks of one process on one device, or on devices that reach each other's
//! memory.
//!
//! Each rank shows what it brings and an event in its stream, and all meet. The first rank's stream
//! waits for these events, then carries the call out for all with one kernel where it can, and
//! records an event of its own, for which the other streams wait after a second meeting. So a call
//! waits for ranks, never for the device, and no kernel waits for anything. Of ranks that are processes
//! the first opens the memory of the others instead (`shared.rs`).

mod flags;
mod kernels;
mod launch;
mod module;
mod opened;
mod shared;
mod types;

use std::sync::Arc;

use spmd_core::internal::{Args, Call, Plane};
use spmd_core::{Comm, Error, Result};

use self::flags::Flags;
use self::kernels::MOST_RANKS;
use crate::calls::{self, is_on_device};
use crate::device::Device;
use crate::driver::{self, Checked};
use crate::error::GpuError;
use crate::listed::identity;
use crate::peers::reaches;

/// Collectives on [`DeviceBuffer`](crate::DeviceBuffer)s of ranks that are threads or virtual ranks
/// of one process, and use the same device, or devices whose memory the first rank's reaches (NVLink, PCIe):
/// up to 64 in a communicator. Of ranks that are processes of one host it
/// carries out what has equal blocks of a segment (`SPMD_SEGMENT`) or more; the
/// first one keeps the memory of the others open, so that a buffer that is dropped may keep its memory until the next such call. Calls
/// of others it leaves to the planes after it.
///
/// A call returns when all ranks have joined it and the device has been told what to do. All
/// collectives on equal and varying blocks are carried out, reductions with `spmd`'s operations on
/// its numbers, `bool`, `char`, [`Located`](spmd_core::Located) and arrays of them, folded in the
/// canonical order, so that the bits are those of the host (payloads of NaN excepted). What it does
/// not carry out, as an operation of the program's own, is an error that says so.
#[derive(Debug)]
pub struct Local(());

impl Local {
    /// For [`Spmd::plane`](spmd_core::Spmd::plane).
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<dyn Plane> {
        Arc::new(Local(()))
    }
}

/// What was found of the ranks of a communicator.
#[derive(Clone)]
enum Found {
    /// One device reaches all that they bring.
    Within,
    /// The same, of processes.
    Shared(Arc<Flags>),
    /// Why they are left to others.
    Refused(Arc<str>),
}

const SEVERAL: &str = "its ranks use several devices, and the first rank's does not reach the memory \
                       of all; `spmd_gpu::Nccl` joins them";

/// Tells the call in which they find that from the call itself.
const PREPARED: u64 = 0x6c6f_6361_6c6f_6e65;

/// Whether the ranks are few, of one process.
fn are_near(comm: &Comm) -> bool {
    comm.internals().one_address_space() && comm.size() <= MOST_RANKS
}

/// Whether they are few, processes of one host.
fn are_neighbors(comm: &Comm) -> bool {
    comm.internals().is_process() && comm.size() <= MOST_RANKS
}

/// What a rank shows of a call.
struct Shown<'a> {
    args: Args<'a>,
    device: Device,
}

impl Plane for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn is_for(&self, spans_processes: bool) -> bool {
        !spans_processes
    }

    /// On how many devices the ranks are, nobody knows alone.
    fn prepare(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        let internals = comm.internals();
        let known = internals.is_track() || internals.attribute::<Found>().is_some();
        let may = are_near(comm) || are_neighbors(comm);
        if let (false, true, Some(ordinal)) =
            (known, may && is_on_device(args), calls::ordinal(args))
        {
            call.carried_by(PREPARED);
            internals.keep(find(comm, call, ordinal)?);
        }
        Ok(())
    }

    fn serves(&self, comm: &Comm, args: &Args<'_>) -> bool {
        if !is_on_device(args) || !launch::knows(args) {
            return false;
        }
        // Started calls do not wait for what others find meanwhile.
        let found = comm.internals().attribute().filter(|_| !comm.internals().is_track());
        match found {
            Some(Found::Refused(_)) => false,
            Some(Found::Shared(_)) => shared::is_for(comm, args),
            _ => are_near(comm),
        }
    }

    fn refusal(&self, comm: &Comm, args: &Args<'_>) -> Option<String> {
        let found = comm.internals().attribute();
        let why = match &found {
            _ if !are_near(comm) && !are_neighbors(comm) => {
                "its ranks are not up to 64 of one host"
            }
            Some(Found::Refused(why)) => why,
            _ if !launch::knows(args) => {
                "it knows the operation on the host alone, or not on this type; `Op::on_device` \
                 tells it"
            }
            _ if are_neighbors(comm) => {
                "of ranks that are processes it takes large equal blocks alone, not started"
            }
            _ => return None,
        };
        Some(format!("local: {why}"))
    }

    fn found(&self, comm: &Comm) -> Option<String> {
        Some(match comm.internals().attribute()? {
            Found::Within => "used".into(),
            Found::Shared(_) => "used for large equal blocks".into(),
            Found::Refused(why) => format!("not used: {why}"),
        })
    }

    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        let ordinal = calls::ordinal(args).expect("it serves calls on a device alone");
        let shown = Shown { args: *args, device: Device::open(ordinal)? };
        let device = &shown.device;
        if let Some(Found::Shared(flags)) = comm.internals().attribute() {
            // SAFETY: `run` asks for this function's contract, and `serves` has asked `is_for`.
            return unsafe { shared::run(comm, call, args, (device, &flags)) };
        }
        device.ready().record(device.stream()).checked("cuEventRecord")?;
        let result = comm.internals().collective(call, |round| {
            let size = size_of::<Shown<'_>>();
            // SAFETY: it stays where it is until all have met twice or the round has been given up,
            // and nobody writes it.
            unsafe { round.expose(0, (&raw const shown).cast(), size) };
            round.arrive(1)?;
            let of = |rank: usize| {
                if rank == round.rank() {
                    return Ok(&shown);
                }
                let place = round.reach(rank, 0, size)?.ok_or_else(|| round.lied(rank))?;
                // SAFETY: the ranks of a call run the same function of one process, and show such a
                // record until all have met again.
                Ok::<_, Error>(unsafe { &*place.cast::<Shown<'_>>() })
            };
            if round.rank() == 0 {
                let all = (0..round.size()).map(of).collect::<Result<Vec<_>>>()?;
                let args: Vec<Args<'_>> = all.iter().map(|shown| shown.args).collect();
                if let Some(what) = launch::mismatch(&args) {
                    return Err(round.disagree(&what));
                }
                // SAFETY: what `all` bring they hold as `Plane::run` promises, and until they have
                // met again; after that, their streams come after `done`.
                unsafe { carry_out(device, &all, &args, call)? };
                return round.arrive(2);
            }
            // A counted handle, which stays beyond the second meeting.
            let first = of(0)?.device.clone();
            round.arrive(2)?;
            device.stream().wait(first.done()).checked("cuStreamWaitEvent")?;
            Ok(())
        });
        if result.is_err() {
            // The first rank may have told its device to use memory of this one, which must not be
            // freed before that is done. It tells it no more: the round is over for all. What this rank's
            // own stream waits for other ranks with is looked after first, as the rest waits for it, too.
            device.synchronize_untold();
            driver::synchronize_all();
        }
        result
    }
}

/// What the ranks of a communicator, which bring memory of devices, find of each other.
///
/// Errors: the device cannot be used; those of a collective.
fn find(comm: &Comm, call: &Call<'_>, ordinal: u32) -> Result<Found> {
    let device = Device::open(ordinal)?;
    device.forget_failed();
    let uuid = u128::from_ne_bytes(identity(device.context().cu_device())?);
    let own = [uuid as u64, (uuid >> 64) as u64, ordinal.into()];
    let all = calls::allgather(comm, call, &own)?;
    // The numbers of devices are those of a process.
    let first = all[2] as u32;
    let mut all = all.chunks_exact(own.len());
    let within = match are_near(comm) {
        true => all.all(|it| reaches(first, it[2] as u32)),
        false => all.all(|it| it[..2] == own[..2]),
    };
    if !within {
        return Ok(Found::Refused(SEVERAL.into()));
    }
    if are_near(comm) {
        return Ok(Found::Within);
    }
    let flags = Flags::new(comm, call, &device)?;
    let have_some = calls::allgather(comm, call, &[flags.is_ok().into()])?;
    Ok(match (flags, have_some.iter().position(|it| *it == 0)) {
        (Ok(flags), None) => Found::Shared(flags),
        (Err(why), _) => Found::Refused(why.to_string().into()),
        (_, Some(rank)) => {
            let rank = comm.world_rank(rank);
            let why =
                format!("the driver of rank {rank} does not take memory that processes share");
            Found::Refused(why.into())
        }
    })
}

/// Has the device do what all ranks called, in rank order, after what their streams hold.
///
/// # Safety
/// Each has brought what the call needs, and nobody uses the memory until the device's event `done`.
unsafe fn carry_out(
    device: &Device,
    all: &[&Shown<'_>],
    args: &[Args<'_>],
    call: &Call<'_>,
) -> Result<()> {
    for shown in all {
        if !reaches(device.ordinal(), shown.device.ordinal()) {
            return Err(GpuError::OtherDevice {
                call: call.to_string(),
                first: device.ordinal(),
                other: shown.device.ordinal(),
            }
            .into());
        }
        device.stream().wait(shown.device.ready()).checked("cuStreamWaitEvent")?;
    }
    // SAFETY: this function's contract.
    unsafe { launch::launch(device, args)? };
    device.done().record(device.stream()).checked("cuEventRecord")?;
    Ok(())
}
