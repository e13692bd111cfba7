//! The MPI of this process as what joins it to the others.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::{env, process, ptr};

use parking_lot::Mutex;
use spmd_core::transport::fabric::{
    BlockLayout, Fabric, FabricRequest, NativeCollective, ProcessBlocks, ProcessGroup,
};
use spmd_core::{Error, Result};

use crate::environment::check_pairing;
use crate::handles::Comm;
use crate::mpi::{Calls, Mpi};
use crate::packets::Packets;
use crate::processes::MpiGroup;
use crate::provider::Run;
use crate::requests::{BorrowedRequest, Kind, OwnedRequest};
use crate::survive::{self, BufferedReceive, BufferedSend};
use crate::{provider, steps};

/// A process's MPI. Of its communicators, `world`'s carries collectives, others packets and
/// payloads.
pub struct MpiFabric {
    mpi: &'static Mpi,
    /// The operating system's number of the process that initialised it. A forked one is another.
    process: u32,
    world: Arc<MpiGroup>,
    packets: Packets,
    payloads: Comm,
    hosts: Vec<u32>,
    /// How many different tags there are.
    tags: u32,
}

/// The one of this process, which stays for as long as it lives.
static ATTACHED: Mutex<Option<Arc<MpiFabric>>> = Mutex::new(None);

/// Finds and initialises MPI, unless that has been done.
pub fn attach() -> Result<Arc<dyn Fabric>> {
    let mut attached = ATTACHED.lock();
    if let Some(fabric) = &*attached {
        return Ok(fabric.clone());
    }
    let (mpi, ours) = Mpi::initialise(provider::load()?)?;
    let mpi: &'static Mpi = Box::leak(Box::new(mpi));
    let fabric = Arc::new(MpiFabric::new(mpi)?);
    fabric.close_with_mpi()?;
    if ours && fabric.mpi.survival().is_some() {
        survive::leave_at_exit(leave);
    } else if ours {
        // SAFETY: a function that may run at any time. If the system has no place for it, MPI is
        // not finalised, which launchers complain about.
        unsafe { libc::atexit(finalise) };
    }
    *attached = Some(fabric.clone());
    Ok(fabric)
}

/// Finalises MPI when the process exits, unless a thread is inside MPI or the program has done so.
extern "C" fn finalise() {
    let Some(attached) = ATTACHED.try_lock() else { return };
    let Some(fabric) = attached.clone() else { return };
    if fabric.process == process::id() && fabric.close() {
        fabric.mpi.finalise();
    }
}

/// [`finalise`] where processes go on when others fail. `MPI_Finalize` would wait for all of them,
/// and has been seen to do so for ever where two had failed one after the other. Its launcher takes
/// an exit with status 0 for the end of this process alone, and any other only from a process that
/// signs off.
fn leave(status: c_int) {
    let Some(attached) = ATTACHED.try_lock() else { return };
    let Some(fabric) = attached.clone() else { return };
    if fabric.process == process::id() && status != 0 && !survive::sign_off() {
        fabric.abort(status);
    }
}

/// Copies of `MPI_COMM_SELF` don't have the attribute.
unsafe extern "C" fn stay(
    _: Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    copied: *mut c_int,
) -> c_int {
    // SAFETY: MPI gives room for the answer.
    unsafe { *copied = 0 };
    0
}

/// Called by `MPI_Finalize`, whoever calls that, as the first thing that it does.
unsafe extern "C" fn closing(_: Comm, _: c_int, fabric: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: the attribute's value is that of `close_with_mpi`.
    let fabric = unsafe { &*fabric.cast_const().cast::<MpiFabric>() };
    fabric.close();
    0
}

impl MpiFabric {
    fn new(mpi: &'static Mpi) -> Result<MpiFabric> {
        let all = mpi.constants().comm_world;
        let (_, size) = mpi.calls()?.rank_and_size(all)?;
        check_pairing(size, mpi.name(), |name| env::var(name).ok())?;
        let tags = tags(&mpi.calls()?)?;
        let collectives = mpi.calls()?.duplicate(all)?;
        let world = Arc::new(MpiGroup::new(mpi, &mpi.calls()?, collectives, tags)?);
        let hosts = hosts(&mpi.calls()?, &world)?;
        let payloads = mpi.calls()?.duplicate(all)?;
        let calls = mpi.calls()?;
        let survive = mpi.survival().is_some();
        let packets = Packets::new(calls.duplicate(all)?, world.rank(), world.size(), survive);
        Ok(MpiFabric { mpi, process: process::id(), world, packets, payloads, hosts, tags })
    }

    /// Has MPI call [`closing`] when it is finalised: it then frees what is attached to
    /// `MPI_COMM_SELF` before anything else.
    fn close_with_mpi(self: &Arc<MpiFabric>) -> Result<()> {
        let calls = self.mpi.calls()?;
        let own = calls.constants.comm_self;
        let mut key = 0;
        let value = Arc::into_raw(self.clone()).cast_mut().cast::<c_void>();
        // SAFETY: the functions have the prototypes that MPI asks for; the value lives for ever,
        // since it counts as an owner.
        unsafe {
            calls.comm_create_keyval(stay, closing, &mut key, ptr::null_mut())?;
            calls.comm_set_attr(own, key, value)
        }
    }

    /// Lets nobody call MPI any more. False if a thread stays inside it, or that has been done.
    fn close(&self) -> bool {
        let Some(calls) = self.mpi.last_calls() else { return false };
        let closed = self.packets.close(&calls);
        calls.close();
        closed
    }

    fn tag(&self, key: u32) -> c_int {
        (key % self.tags) as c_int
    }
}

/// How many different tags there are.
fn tags(calls: &Calls<'_>) -> Result<u32> {
    let (mut highest, mut flag) = (ptr::null::<c_int>(), 0);
    let (world, key) = (calls.constants.comm_world, calls.constants.tag_ub);
    // SAFETY: MPI writes the address of a number of its own, which every world has.
    unsafe { calls.comm_get_attr(world, key, &mut highest, &mut flag)? };
    if flag == 0 || highest.is_null() {
        return Err(Error::library(
            calls.name.clone(),
            "MPI_Comm_get_attr",
            "MPI_TAG_UB is not there".to_owned(),
        ));
    }
    // SAFETY: see above.
    Ok(unsafe { *highest } as u32 + 1)
}

/// The first process on the host of each. All processes call it together.
fn hosts(calls: &Calls<'_>, world: &MpiGroup) -> Result<Vec<u32>> {
    let constants = &calls.constants;
    let (rank, size) = (world.rank(), world.size());
    let mut host = constants.comm_world;
    let mut first = rank as u32;
    let mut hosts = vec![0u32; size];
    let (memory, bytes) = ((&raw mut first).cast::<u8>(), size_of::<u32>());
    let all =
        ProcessBlocks { memory: hosts.as_mut_ptr().cast(), layout: BlockLayout::Equal(bytes) };
    // SAFETY: the communicators are valid; a number goes to every process of a host, and then one
    // from each to an array of as many.
    unsafe {
        let (world, kind) = (constants.comm_world, constants.comm_type_shared);
        calls.comm_split_type(world, kind, rank as c_int, constants.info_null, &mut host)?;
        calls.return_errors(host)?;
        steps::make(calls, host, 0, NativeCollective::Broadcast { root: 0, memory, bytes }, None)?;
        calls.comm_free(&mut host)?;
        let step = NativeCollective::Allgather { send: (memory, bytes), recv: all };
        steps::make(calls, world, rank, step, None)?;
    }
    Ok(hosts)
}

impl Fabric for MpiFabric {
    fn process(&self) -> usize {
        self.world.rank()
    }

    fn processes(&self) -> usize {
        self.world.size()
    }

    fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    fn name(&self) -> &str {
        self.mpi.name()
    }

    fn world(&self) -> Arc<dyn ProcessGroup> {
        self.world.clone()
    }

    fn survives(&self) -> bool {
        self.mpi.survival().is_some()
    }

    fn takes_devices(&self) -> bool {
        self.mpi.takes_devices()
    }

    fn send(&self, to: usize, packet: [&[u8]; 2]) -> Result<()> {
        self.packets.send(self.mpi, to, packet)
    }

    fn flush(&self) -> Result<()> {
        self.packets.flush(self.mpi)
    }

    fn receive(&self, take: &mut dyn FnMut(usize, &[u8])) -> Result<bool> {
        self.packets.receive(self.mpi, take)
    }

    unsafe fn issend(
        &self,
        to: usize,
        key: u32,
        data: *const u8,
        bytes: usize,
    ) -> Result<Box<dyn FabricRequest>> {
        let calls = self.mpi.calls()?;
        let mut begun = OwnedRequest::new(&calls);
        let (to, tag, request) = (to as c_int, self.tag(key), &mut begun.request);
        if calls.survives() {
            // SAFETY: the data are readable during this call, by the caller's contract.
            let copy = unsafe { std::slice::from_raw_parts(data, bytes) }.to_vec();
            let run = Run::of(&calls, bytes)?;
            let (issend, data) = (calls.functions.issend, copy.as_ptr());
            // SAFETY: the copy stays where it is until the request is complete: `BufferedSend` sees
            // to it.
            let code = unsafe { issend(data, run.count, run.of, to, tag, self.payloads, request) };
            let begins = calls.check_survived("MPI_Issend", code)?;
            return Ok(Box::new(BufferedSend::new(self.mpi, begun, copy, !begins)));
        }
        // SAFETY: the data stay readable until the request is complete or `BorrowedRequest` is
        // dropped, by the caller's contract. A synchronous send is complete once its receive has
        // begun.
        let made = Run::of(&calls, bytes).and_then(|run| unsafe {
            calls.issend(data, run.count, run.of, to, tag, self.payloads, request)
        });
        drop(calls);
        // After an error, too: then dropping it leaves nothing under way.
        let underway = BorrowedRequest { mpi: self.mpi, begun, kind: Kind::Send };
        made.map(|()| Box::new(underway) as _)
    }

    unsafe fn irecv(
        &self,
        from: usize,
        key: u32,
        into: *mut u8,
        bytes: usize,
    ) -> Result<Box<dyn FabricRequest>> {
        let calls = self.mpi.calls()?;
        let mut begun = OwnedRequest::new(&calls);
        let (from, tag, request) = (from as c_int, self.tag(key), &mut begun.request);
        if calls.survives() {
            let run = Run::of(&calls, bytes)?;
            let irecv = calls.functions.irecv;
            // SAFETY: as below.
            let code = unsafe { irecv(into, run.count, run.of, from, tag, self.payloads, request) };
            let begins = calls.check_survived("MPI_Irecv", code)?;
            let underway = BorrowedRequest { mpi: self.mpi, begun, kind: Kind::Receive };
            return Ok(Box::new(BufferedReceive::new(underway, !begins)));
        }
        // SAFETY: the memory stays writable until the request is complete or `BorrowedRequest` is
        // dropped, by the caller's contract.
        let made = Run::of(&calls, bytes).and_then(|run| unsafe {
            calls.irecv(into, run.count, run.of, from, tag, self.payloads, request)
        });
        drop(calls);
        // After an error, too: then dropping it leaves nothing under way.
        let underway = BorrowedRequest { mpi: self.mpi, begun, kind: Kind::Receive };
        made.map(|()| Box::new(underway) as _)
    }

    fn abort(&self, status: i32) -> ! {
        self.mpi.abort(status)
    }
}
