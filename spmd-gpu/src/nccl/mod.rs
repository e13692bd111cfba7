//! The plane `nccl`: a GPU for each rank, joined by NVIDIA's library.
//!
//! The first call of a communicator on device memory decides whether it is served: the ranks tell each
//! other whether they have NCCL, and which device each uses. Then each call meets on the host before it
//! is put into the streams, so that a device waits for no rank that makes another call, or none. A rank
//! that is lost after that is seen by who waits for the device on the host, which ends the work there.
//! Where a program promises that its ranks make the same calls, they meet later (`later.rs`).
//! Parts of a communicator that was joined are joined when it is split.

mod communicator;
mod counts;
mod launch;
mod table;

use std::sync::Arc;

use spmd_collectives::args as on_host;
use spmd_core::internal::{Args, Call, Plane, dispatch};
use spmd_core::{Comm, Result};

use self::communicator::Communicator;
use self::counts::Counts;
pub(crate) use self::table::Table;
use self::table::UniqueId;
use crate::calls::{self, is_on_device};
use crate::device::Device;
use crate::error::GpuError;
use crate::later;
use crate::listed::identity;

/// Collectives on [`DeviceBuffer`](crate::DeviceBuffer)s of ranks, threads or processes, that have a GPU
/// each, through NVIDIA's NCCL 2.18 or newer, which is loaded when it is first needed.
///
/// A call returns when all ranks have joined it and the device has been told what to do, or, with
/// [`Nccl::new_unchecked`], without them. All
/// collectives on equal and varying blocks are carried out but `scan` and `exscan`; reductions with
/// `Sum`, `Prod`, `Min` and `Max` on numbers of 8, 32 and 64 bits, `f16` and `bf16`, and arrays of them. They fold in
/// NCCL's order: the bits of floating-point results may be others than the host's, and
/// `SPMD_REPRODUCIBLE=1` leaves reductions to others. What it does not carry out, started calls, and ranks that share a GPU, it leaves to the planes after it, or, with
/// `SPMD_TRANSPORT=nccl`, to nobody: then that is an error which says why.
///
/// Ranks are joined by the first call of their communicator on device buffers. Those of a part are joined by
/// `split` itself (`ncclCommSplit`), if the communicator that is split has made such calls: then it waits
/// for the device, and takes memory there, whether or not the part makes any. A part that makes none is better
/// split before.
#[derive(Debug)]
pub struct Nccl {
    meets: Meets,
}

/// When the ranks of a call meet on the host, and find whether they make the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    /// Before it is put into the streams.
    Before,
    /// While the devices carry it out.
    Later,
}

impl Nccl {
    /// For [`Spmd::plane`](spmd_core::Spmd::plane).
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<dyn Plane> {
        Arc::new(Nccl { meets: Meets::Before })
    }

    /// The same, for a program whose ranks are known to make the same calls: a call tells the device what to
    /// do and returns, whether the other ranks have come to it or not, as NCCL's own functions do. What the ranks
    /// call is compared all the same, while they go on. That they differ is the error of a later call, or
    /// of what waits for the device on the host ([`to_vec`](crate::DeviceBuffer::to_vec),
    /// [`Device::synchronize`](crate::Device::synchronize)), or of the rank as it ends: it says which rank called
    /// what, after the fact. A rank whose comparisons of 64 calls are not over waits for the oldest.
    ///
    /// A comparison that goes on takes more of the processor than a meeting: what is saved is the wait for ranks that come
    /// later. In a job whose ranks may fail while others go on, the ranks meet before, as ever.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::gpu::{Nccl, OnDevice, probe};
    ///
    /// fn main() -> Result<()> {
    ///     if probe().ready().is_err() || probe().nccl.is_err() {
    ///         return Ok(()); // this machine has no GPU, or no NCCL
    ///     }
    ///     // SAFETY: all ranks run the same lines, with the same lengths.
    ///     let nccl = unsafe { Nccl::new_unchecked() };
    ///     Spmd::new(1).threads().plane(nccl).run(|ctx| {
    ///         let mut sum = ctx.device()?.buffer_from(&[1.0f32; 1000])?;
    ///         (0..10).try_for_each(|_| ctx.allreduce_in_place(&mut sum, Sum))?; // waits for nobody
    ///         assert_eq!(sum.to_vec()?, [1.0; 1000]); // waits for the device, and the ranks
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Safety
    /// The ranks of each communicator of the block make the same collective calls on memory of devices: of one kind, with
    /// one root, type and operation, on lengths that belong together. They make them in one order, that of
    /// calls on several communicators included. No buffer is used by several ranks: one that goes on with another's
    /// waits for all that this one has in its stream. Where they do not, NCCL may write past the end of a
    /// buffer of any rank.
    pub unsafe fn new_unchecked() -> Arc<dyn Plane> {
        Arc::new(Nccl { meets: Meets::Later })
    }
}

/// What the ranks of a communicator have found.
#[derive(Clone)]
enum Found {
    Joined(Arc<Communicator>),
    /// Why there is none, and what to do.
    Refused(Arc<str>),
}

impl Plane for Nccl {
    fn name(&self) -> &str {
        "nccl"
    }

    fn is_for(&self, _spans_processes: bool) -> bool {
        true
    }

    fn prepare(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        let internals = comm.internals();
        let known = internals.is_track() || internals.attribute::<Found>().is_some();
        if known || !is_on_device(args) {
            return Ok(());
        }
        call.carried_by(PREPARED);
        internals.keep(join(comm, call, args)?);
        Ok(())
    }

    fn refusal(&self, comm: &Comm, args: &Args<'_>) -> Option<String> {
        let why = match comm.internals().attribute() {
            Some(Found::Refused(why)) => why.to_string(),
            _ => leaves(comm, args)?.into(),
        };
        Some(format!("nccl: {why}"))
    }

    fn found(&self, comm: &Comm) -> Option<String> {
        Some(match comm.internals().attribute()? {
            Found::Joined(_) => "used".into(),
            Found::Refused(why) => format!("not used: {why}"),
        })
    }

    fn can_split(&self, comm: &Comm) -> bool {
        joined(comm).is_some_and(|joined| joined.can_split())
    }

    fn split(&self, comm: &Comm, call: &Call<'_>, part: Option<&Comm>) -> Result<()> {
        let own = joined(comm).ok_or_else(not_joined)?.split(comm, call, part)?;
        if let Some((part, own)) = part.zip(own) {
            part.internals().keep(Found::Joined(own));
        }
        Ok(())
    }

    fn serves(&self, comm: &Comm, args: &Args<'_>) -> bool {
        leaves(comm, args).is_none() && joined(comm).is_some()
    }

    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        let joined = joined(comm).ok_or_else(not_joined)?;
        let ordinal = calls::ordinal(args).expect("it serves calls on a device alone");
        let device = Device::open(ordinal)?;
        if !joined.is_on(&device) {
            let (call, first, other) = (call.to_string(), joined.ordinal(), ordinal);
            return Err(GpuError::OtherDevice { call, first, other }.into());
        }
        let varies = calls::varies(args.collective.kind);
        let counts = varies.then(|| Counts::of(comm, args));
        let mut earlier = Ok(());
        match self.meets {
            Meets::Later if comm.internals().can_start() => {
                // What has failed before is told when this call is where it is on other ranks.
                earlier = later::end_some();
                later::start(comm, call, args, move |comm, call| {
                    meet(comm, call, counts.as_ref())
                })?;
            }
            _ => meet(comm, call, counts.as_ref())?,
        }
        // SAFETY: the device has the memory of the call, as the contract of `Plane::run` has it, until
        // the stream has done this: buffers are used and freed in its order. All ranks do the same: they have
        // just said so, or the program has promised it.
        unsafe { launch::launch(comm, &joined, (call, args), &device) }?;
        earlier
    }
}

/// This rank's end of what joins the devices of a communicator, if that was found to be possible.
fn joined(comm: &Comm) -> Option<Arc<Communicator>> {
    match comm.internals().attribute()? {
        Found::Joined(joined) => Some(joined),
        Found::Refused(_) => None,
    }
}

fn not_joined() -> GpuError {
    GpuError::Abandoned { text: "its ranks are not joined".into() }
}

/// Why it leaves a call to others, of ranks that it has joined.
fn leaves(comm: &Comm, args: &Args<'_>) -> Option<&'static str> {
    let internals = comm.internals();
    let may_write = args.dtype.valid.is_none() || internals.one_address_space();
    let why = if internals.is_track() {
        "it serves no started calls"
    } else if !is_on_device(args) {
        "it has no calls of neighbours in a grid"
    } else if !launch::knows(args) {
        "it has no scan, and folds numbers of 8, 32 and 64 bits, f16 and bf16 with Sum, Prod, Min and \
         Max alone"
    } else if args.op.is_some() && internals.is_reproducible() {
        "it folds in an order of its own, which SPMD_REPRODUCIBLE=1 forbids"
    } else if !may_write {
        "not all bits are values of the type, and it does not look at what other processes send"
    } else {
        return None;
    };
    Some(why)
}

/// Tells the call in which ranks join from the call itself.
const PREPARED: u64 = 0x6e63_636c_6a6f_696e;

/// What a rank tells of itself, in words: whether it can take part, its device, and an id for all.
const WORDS: usize = 4 + 16;

/// Joins the ranks of a communicator, if that can be.
fn join(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<Found> {
    let ordinal = calls::ordinal(args).expect("its memory is on a device");
    Device::open(ordinal)?.forget_failed();
    let mine = said(comm, ordinal);
    let mut own = [0u64; WORDS];
    match &mine {
        Ok((uuid, id)) => {
            own[0] = 1;
            own[2..4].copy_from_slice(uuid);
            for (word, bytes) in own[4..].iter_mut().zip(id.0.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
        }
        Err(_) => own[1] = 1,
    }
    let all = calls::allgather(comm, call, &own)?;
    let said: Vec<&[u64]> = all.chunks_exact(WORDS).collect();
    if let Err(missing) = &mine {
        return Ok(Found::Refused(missing.as_str().into()));
    }
    if let Some(lacking) = said.iter().position(|it| it[0] != 1) {
        let rank = comm.world_rank(lacking);
        return Ok(Found::Refused(format!("rank {rank} cannot use it").into()));
    }
    // No two cards have the same UUID, on whatever hosts.
    let shares = |rank: &usize| said[..*rank].iter().any(|other| other[2..4] == said[*rank][2..4]);
    // NCCL of 2.30 may be told to take several ranks of one device.
    let may = std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|value| value == "1");
    if let Some(rank) = (0..said.len()).find(shares).filter(|_| !may) {
        let rank = comm.world_rank(rank);
        let what =
            format!("rank {rank} has the same GPU as another; `--as gpus` gives each its own");
        return Ok(Found::Refused(what.into()));
    }
    let mut id = UniqueId([0; 128]);
    for (bytes, word) in id.0.as_chunks_mut().0.iter_mut().zip(&said[0][4..]) {
        *bytes = word.to_ne_bytes();
    }
    let (device, watch) = (Device::open(ordinal)?, comm.internals().watch());
    let who = (id, comm.rank(), comm.size());
    let joined = Communicator::new(Table::get()?, &device, who, (watch, call))?;
    Ok(Found::Joined(joined))
}

/// Of this rank's device, and an id; or why it cannot take part, and what to do.
fn said(comm: &Comm, ordinal: u32) -> Result<([u64; 2], UniqueId), String> {
    if !comm.internals().has_own_thread() {
        return Err("virtual ranks cannot wait for it, threads and processes can".into());
    }
    let found = || {
        let table = Table::get()?;
        let uuid = u128::from_ne_bytes(identity(Device::open(ordinal)?.context().cu_device())?);
        let id = if comm.rank() == 0 { table.unique_id()? } else { UniqueId([0; 128]) };
        Ok(([uuid as u64, (uuid >> 64) as u64], id))
    };
    found().map_err(|error: GpuError| error.to_string())
}

/// Has the ranks of a call find whether they make the same one.
///
/// Errors: they do not; those of a collective.
fn meet(comm: &Comm, call: &Call<'_>, counts: Option<&Counts>) -> Result<()> {
    if let Some(counts) = counts {
        counts.compare(comm, call)?;
    }
    // SAFETY: no memory is named.
    unsafe { dispatch(comm, call, &on_host::barrier()) }
}
