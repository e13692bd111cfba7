//! Which functions of NCCL carry a collective out.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use spmd_core::Comm;
use spmd_core::internal::{Args, Blocks, Call, ErasedOp, Kind, Memory};

use super::communicator::Communicator;
use super::table::{Code, CudaStream, Handle, SUCCESS, Table};
use crate::device::Device;
use crate::error::GpuError;
use crate::exports::address_of;

type Result<T, E = GpuError> = std::result::Result<T, E>;

/// `ncclInt8`: what is moved and not folded.
const BYTES: c_int = 0;

/// Whether NCCL has the collective, for these elements and this operation.
pub(super) fn knows(args: &Args<'_>) -> bool {
    let kind = args.collective.kind;
    !matches!(kind, Kind::Scan | Kind::Exscan) && args.op.is_none_or(|op| fold(args, op).is_some())
}

/// Its numbers of the scalar and of the operation.
fn fold(args: &Args<'_>, op: &ErasedOp<'_>) -> Option<(c_int, c_int)> {
    let scalar = match args.dtype.name {
        "i8" => 0,
        "u8" => 1,
        "i32" => 2,
        "u32" => 3,
        "i64" | "isize" => 4,
        "u64" | "usize" => 5,
        "f16" => 6,
        "f32" => 7,
        "f64" => 8,
        "bf16" => 9,
        _ => return None,
    };
    // A program's own operation has another identity, also if it has such a name.
    let known = ["Sum", "Prod", "Max", "Min"].into_iter().zip(0..);
    let number = known.into_iter().find(|(name, _)| op.id() == ErasedOp::id_of(name))?.1;
    Some((scalar, number))
}

/// How many elements this rank sends to another in a call whose blocks vary.
pub(super) fn sends(args: &Args<'_>, me: usize, to: usize) -> usize {
    let sender = match args.collective.kind {
        Kind::Gatherv if to != args.root => return 0,
        Kind::Scatterv if me != args.root => return 0,
        Kind::Gatherv | Kind::Allgatherv if !args.send.is_some() => {
            return args.recv.blocks.of(me).1;
        }
        Kind::Alltoallv if !args.send.is_some() => args.recv,
        _ => args.send,
    };
    sender.blocks.of(to).1
}

/// How many elements this rank takes from another then.
pub(super) fn takes(args: &Args<'_>, from: usize, me: usize) -> usize {
    match args.collective.kind {
        Kind::Gatherv if me != args.root => 0,
        Kind::Scatterv if from != args.root => 0,
        // All send to all what each has for itself.
        Kind::ReduceScatterv => args.send.blocks.of(me).1,
        _ => args.recv.blocks.of(from).1,
    }
}

/// Memory of a device: where it is, and how many bytes.
type Range = (u64, usize);

/// Puts a call into this rank's stream.
///
/// # Safety
/// All ranks of the communicator do the same, and have brought what the call needs, which nobody else
/// uses until the stream has done it.
pub(super) unsafe fn launch(
    comm: &Comm,
    joined: &Communicator,
    (call, args): (&Call<'_>, &Args<'_>),
    device: &Device,
) -> Result<()> {
    let launch = Launch { comm, joined, call, args, device, size: args.size() };
    let (send, recv) = (args.send, args.recv);
    let root = args.root as c_int;
    let bytes = |memory: Memory<'_>| memory.blocks.longest() * launch.size;
    let (whole, is_root) = (joined.whole(), comm.rank() == args.root);
    // SAFETY: the ranges below are those of the blocks that the call has (this function's contract).
    unsafe {
        match args.collective.kind {
            Kind::Allreduce => {
                let (count, scalar, op) = launch.folds(send.blocks.longest());
                launch.put("ncclAllReduce", |table, comm, stream| {
                    let all_reduce = table.all_reduce;
                    all_reduce(send.ptr.cast(), recv.ptr.cast(), count, scalar, op, comm, stream)
                })
            }
            Kind::Reduce => {
                launch.reduce((send.ptr as u64, send.blocks.longest()), recv.ptr as u64, root)
            }
            Kind::Broadcast => launch.put("ncclBroadcast", |table, comm, stream| {
                let buf: *mut c_void = recv.ptr.cast();
                (table.broadcast)(buf, buf, bytes(recv), BYTES, root, comm, stream)
            }),
            Kind::Allgather => {
                let (from, bytes) = launch.contribution();
                launch.put("ncclAllGather", |table, comm, stream| {
                    let from = from as *const c_void;
                    (table.all_gather)(from, recv.ptr.cast(), bytes, BYTES, comm, stream)
                })
            }
            Kind::Gather if let Some(whole) = whole => {
                let (from, bytes) = launch.contribution();
                launch.put("ncclGather", |_, comm, stream| {
                    let from = from as *const c_void;
                    (whole.gather)(from, recv.ptr.cast(), bytes, BYTES, root, comm, stream)
                })
            }
            Kind::Gather | Kind::Gatherv => {
                let to = |to: usize| (to == args.root).then(|| launch.contribution());
                launch.exchange(to, |from| is_root.then(|| launch.block(recv, from)))
            }
            Kind::Allgatherv => launch
                .exchange(|_| Some(launch.contribution()), |from| Some(launch.block(recv, from))),
            Kind::Scatter if let Some(whole) = whole => {
                launch.put("ncclScatter", |_, comm, stream| {
                    let (from, bytes) = (send.ptr.cast(), bytes(recv));
                    (whole.scatter)(from, recv.ptr.cast(), bytes, BYTES, root, comm, stream)
                })
            }
            Kind::Scatter | Kind::Scatterv => {
                let own = (recv.ptr as u64, bytes(recv));
                launch.exchange(
                    |to| is_root.then(|| launch.block(send, to)),
                    |from| (from == args.root).then_some(own),
                )
            }
            Kind::ReduceScatter | Kind::ReduceScatterv => launch.reduce_scatter(),
            _ => launch.alltoall(),
        }
    }
}

#[derive(Clone, Copy)]
struct Launch<'a> {
    comm: &'a Comm,
    joined: &'a Communicator,
    call: &'a Call<'a>,
    args: &'a Args<'a>,
    device: &'a Device,
    /// Bytes of an element.
    size: usize,
}

impl Launch<'_> {
    fn put(&self, what: &str, put: impl FnOnce(&Table, Handle, CudaStream) -> Code) -> Result<()> {
        self.joined.put(self.call, what, put)
    }

    /// As NCCL counts so many elements, with its numbers of the scalar and of the operation.
    fn folds(&self, count: usize) -> (usize, c_int, c_int) {
        let op = self.args.op.expect("a reduction has an operation");
        let (scalar, op) = fold(self.args, op).expect("the plane has said that it knows it");
        // Arrays are folded lane by lane.
        (count * self.args.dtype.lanes as usize, scalar, op)
    }

    /// The block that memory has for a rank.
    fn block(&self, memory: Memory<'_>, of: usize) -> Range {
        let (start, count) = memory.blocks.of(of);
        (memory.ptr as u64 + (start * self.size) as u64, count * self.size)
    }

    /// What this rank contributes to a gather: in place it is where it belongs.
    fn contribution(&self) -> Range {
        let (send, recv) = (self.args.send, self.args.recv);
        match send.is_some() && send.ptr != recv.ptr {
            true => (send.ptr as u64, send.blocks.longest() * self.size),
            false => self.block(recv, self.comm.rank()),
        }
    }

    /// Sends each rank what there is for it, and takes what it has.
    ///
    /// # Safety
    /// The ranges are memory of the device, and the peers have ones of the same lengths for them; as
    /// [`launch`].
    unsafe fn exchange(
        &self,
        to: impl Fn(usize) -> Option<Range>,
        from: impl Fn(usize) -> Option<Range>,
    ) -> Result<()> {
        let (me, ranks) = (self.comm.rank(), 0..self.comm.size());
        // What is in its place already stays there.
        let in_place = to(me) == from(me);
        let there = |rank: usize, range: Option<Range>| {
            range.filter(|(_, bytes)| *bytes > 0 && !(rank == me && in_place))
        };
        self.put("ncclGroupEnd", |table, comm, stream| {
            // SAFETY: this function's contract.
            unsafe {
                let mut code = (table.group_start)();
                for rank in ranks {
                    let peer = rank as c_int;
                    if let Some((place, bytes)) = there(rank, to(rank)).filter(|_| code == SUCCESS)
                    {
                        code = (table.send)(place as *const _, bytes, BYTES, peer, comm, stream);
                    }
                    if let Some((place, bytes)) =
                        there(rank, from(rank)).filter(|_| code == SUCCESS)
                    {
                        code = (table.recv)(place as *mut _, bytes, BYTES, peer, comm, stream);
                    }
                }
                // A group that was begun is ended.
                let ended = (table.group_end)();
                if code == SUCCESS { ended } else { code }
            }
        })
    }

    /// # Safety
    /// As [`launch`].
    unsafe fn alltoall(&self) -> Result<()> {
        let (mut send, recv) = (self.args.send, self.args.recv);
        let mut _space = None;
        if !send.is_some() || send.ptr == recv.ptr {
            // What this rank sends would be written over.
            let bytes = recv.blocks.total(self.comm.size()) * self.size;
            let space = self.device.scratch(bytes)?;
            // SAFETY: the space was just made, as long as what is copied.
            unsafe { self.device.copy(recv.ptr as u64, address_of(&space), bytes)? };
            send = Memory { ptr: address_of(&space) as *mut u8, blocks: recv.blocks, ..recv };
            _space = Some(space);
        }
        if let (Some(whole), Kind::Alltoall) = (self.joined.whole(), self.args.collective.kind) {
            let bytes = recv.blocks.longest() * self.size;
            return self.put("ncclAlltoAll", |_, comm, stream| {
                let (from, into) = (send.ptr.cast(), recv.ptr.cast());
                // SAFETY: this function's contract.
                unsafe { (whole.alltoall)(from, into, bytes, BYTES, comm, stream) }
            });
        }
        // SAFETY: the blocks of both, whose lengths the ranks have compared.
        unsafe {
            self.exchange(|to| Some(self.block(send, to)), |from| Some(self.block(recv, from)))
        }
    }

    /// Folds so many elements of all ranks to the root.
    ///
    /// # Safety
    /// As [`launch`]: each rank has them, and the root room for them.
    unsafe fn reduce(&self, (from, count): (u64, usize), into: u64, root: c_int) -> Result<()> {
        let (count, scalar, op) = self.folds(count);
        let is_root = root as usize == self.comm.rank();
        let into = if is_root { into as *mut c_void } else { null_mut() };
        self.put("ncclReduce", |table, comm, stream| {
            // SAFETY: this function's contract.
            unsafe { (table.reduce)(from as *const _, into, count, scalar, op, root, comm, stream) }
        })
    }

    /// # Safety
    /// As [`launch`].
    unsafe fn reduce_scatter(&self) -> Result<()> {
        let (send, recv) = (self.args.send, self.args.recv);
        let (me, n) = (self.comm.rank(), self.comm.size());
        let (start, bytes) = self.block(send, me);
        let in_place = send.ptr == recv.ptr && start != recv.ptr as u64;
        // The result would be written over what others need.
        let space = in_place.then(|| self.device.scratch(bytes)).transpose()?;
        let into = space.as_ref().map_or(recv.ptr as u64, address_of);
        // SAFETY: all ranks have all blocks, and each has room for its own.
        unsafe {
            match send.blocks {
                Blocks::Varying(_) => {
                    for rank in 0..n {
                        let from = (self.block(send, rank).0, send.blocks.of(rank).1);
                        if from.1 > 0 {
                            self.reduce(from, into, rank as c_int)?;
                        }
                    }
                }
                _ => {
                    let (count, scalar, op) = self.folds(send.blocks.of(me).1);
                    self.put("ncclReduceScatter", |table, comm, stream| {
                        let from = send.ptr.cast();
                        let reduce_scatter = table.reduce_scatter;
                        reduce_scatter(from, into as *mut _, count, scalar, op, comm, stream)
                    })?;
                }
            }
        }
        match &space {
            // SAFETY: both have so many bytes.
            Some(space) => unsafe { self.device.copy(address_of(space), recv.ptr as u64, bytes) },
            None => Ok(()),
        }
    }
}
