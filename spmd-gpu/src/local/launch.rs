//! What the device does in each collective: folds, spreads and copies.

use cudarc::driver::CudaSlice;
use spmd_core::internal::{Args, Blocks, ErasedOp, Kind, Memory};

use super::kernels::{Kernels, Piece, Ranks};
use super::module::{Fold, Key};
use super::types;
use crate::device::Device;
use crate::error::GpuError;
use crate::exports::address_of;

type Result<T, E = GpuError> = std::result::Result<T, E>;

/// Whether the elements can be folded by the call's operation, or there is none.
pub(super) fn knows(args: &Args<'_>) -> bool {
    args.op.is_none_or(|op| fold_of(args, 1, op).is_some())
}

fn fold_of(args: &Args<'_>, ranks: usize, op: &ErasedOp<'_>) -> Option<Fold> {
    let operation = types::operation(op, args.dtype)?;
    Some(Fold { element: types::scalar(args.dtype)?, operation, ranks })
}

/// Where what a rank sends and what another one has room for are of different lengths. Of most calls
/// the ranks have compared their counts already.
pub(super) fn mismatch(all: &[Args<'_>]) -> Option<String> {
    let root = all[0].root;
    let differ = |from: usize, sends: usize, to: usize, takes: usize| {
        (sends != takes).then(|| {
            format!(
                "different counts: rank {from} of the communicator sends {sends} elements to rank \
                 {to}, which takes {takes}"
            )
        })
    };
    let sends = |from: usize, to: usize| all[from].send.blocks.of(to).1;
    let takes = |to: usize, from: usize| all[to].recv.blocks.of(from).1;
    let ranks = 0..all.len();
    match all[0].collective.kind {
        Kind::Gatherv => {
            ranks.clone().find_map(|from| differ(from, sends(from, root), root, takes(root, from)))
        }
        Kind::Allgatherv => {
            ranks.clone().find_map(|from| differ(from, sends(from, 0), 0, takes(0, from)))
        }
        Kind::Scatterv => {
            ranks.clone().find_map(|to| differ(root, sends(root, to), to, takes(to, root)))
        }
        Kind::Alltoallv => ranks.clone().find_map(|from| {
            ranks.clone().find_map(|to| differ(from, sends(from, to), to, takes(to, from)))
        }),
        _ => None,
    }
}

/// Puts into the device's stream what all ranks called, in rank order.
///
/// # Safety
/// The ranks, at most as many as kernels take, have brought what the call needs, and nobody else uses their
/// memory until the stream has done it.
pub(super) unsafe fn launch(device: &Device, all: &[Args<'_>]) -> Result<()> {
    let (n, first) = (all.len(), &all[0]);
    let size = first.size();
    let root = first.root;
    let launch = Launch { kernels: Kernels { device }, all, size };
    // SAFETY: of each arm: the memory of all ranks is as the call needs it (this function's
    // contract), so that each range below lies within the blocks of its rank.
    unsafe {
        match first.collective.kind {
            Kind::Allreduce => launch.fold("fold_all", 0, count(first), |rank| launch.recv(rank)),
            Kind::Reduce => {
                let into = |rank: usize| if rank == root { launch.recv(rank) } else { 0 };
                launch.fold("fold_all", 0, count(first), into)
            }
            Kind::Scan => launch.fold("fold_prefixes", 0, count(first), |rank| launch.recv(rank)),
            Kind::Exscan => {
                let next = |rank: usize| if rank + 1 < n { launch.recv(rank + 1) } else { 0 };
                launch.fold("fold_prefixes", 0, count(first), next)
            }
            Kind::ReduceScatter | Kind::ReduceScatterv => launch.reduce_scatter(),
            Kind::Broadcast => {
                let bytes = (first.recv.blocks.longest() * size) as u64;
                let piece = Piece { from: launch.recv(root), into: 0, bytes };
                launch.spread(&[piece], (0..n).filter(|rank| *rank != root))
            }
            Kind::Gather | Kind::Gatherv => launch.spread(&launch.blocks(root), root..root + 1),
            Kind::Allgather | Kind::Allgatherv => launch.spread(&launch.blocks(0), 0..n),
            Kind::Scatter | Kind::Scatterv => {
                let block = |rank: usize| launch.piece(all[root].send, rank, launch.recv(rank));
                launch.kernels.copy((0..n).map(block))
            }
            _ => launch.alltoall(),
        }
    }
}

/// The elements of a buffer that is one block.
fn count(args: &Args<'_>) -> usize {
    args.send.blocks.longest()
}

/// The call of all ranks.
#[derive(Clone, Copy)]
struct Launch<'a> {
    kernels: Kernels<'a>,
    all: &'a [Args<'a>],
    /// Bytes of an element.
    size: usize,
}

impl Launch<'_> {
    fn recv(&self, rank: usize) -> u64 {
        self.all[rank].recv.ptr as u64
    }

    /// The block that a rank's memory has for another, on its way.
    fn piece(&self, memory: Memory<'_>, of: usize, into: u64) -> Piece {
        let (start, count) = memory.blocks.of(of);
        let [start, bytes] = [start, count].map(|elements| (elements * self.size) as u64);
        Piece { from: memory.ptr as u64 + start, into, bytes }
    }

    /// Each rank's contribution, with its place in what this rank receives.
    fn blocks(&self, receiver: usize) -> Vec<Piece> {
        let into = self.all[receiver].recv.blocks;
        let piece = |rank: usize| {
            let (start, count) = into.of(rank);
            let (send, own) = (self.all[rank].send, self.all[rank].recv);
            // In place, a rank's contribution is where it belongs.
            let from = match send.is_some() && send.ptr != own.ptr {
                true => send.ptr as u64,
                false => own.ptr as u64 + (start * self.size) as u64,
            };
            Piece { from, into: (start * self.size) as u64, bytes: (count * self.size) as u64 }
        };
        (0..self.all.len()).map(piece).collect()
    }

    /// Folds `count` elements from `start` on of what all ranks send, and gives the result to each
    /// rank's place that `into` names.
    ///
    /// # Safety
    /// All sends have them, and the places room for them; as [`launch`].
    unsafe fn fold(
        &self,
        kernel: &'static str,
        start: usize,
        count: usize,
        into: impl Fn(usize) -> u64,
    ) -> Result<()> {
        let (n, first) = (self.all.len(), &self.all[0]);
        let op = first.op.expect("a reduction has an operation");
        let fold = fold_of(first, n, op).expect("the plane has said that it knows it");
        // Arrays are folded lane by lane.
        let lanes = first.dtype.lanes as usize;
        let offset = (start * self.size) as u64;
        let inputs = Ranks::of(self.all.iter().map(|args| args.send.ptr as u64 + offset));
        let outputs = Ranks::of((0..n).map(into));
        let key = Key { kernel, fold: Some(fold) };
        // SAFETY: each rank's input has so many elements, and each output room for them.
        unsafe { self.kernels.fold(key, inputs, outputs, count * lanes, self.size / lanes) }
    }

    /// # Safety
    /// As [`launch`].
    unsafe fn reduce_scatter(&self) -> Result<()> {
        let blocks = self.all[0].send.blocks;
        let in_place = self.all.iter().any(|args| args.recv.ptr == args.send.ptr);
        // A result may be longer than what is before its block, where it goes.
        let elsewhere = in_place && matches!(blocks, Blocks::Varying(_));
        let n = self.all.len();
        let space = elsewhere.then(|| self.scratch(blocks.total(n))).transpose()?;
        for rank in 0..n {
            let (start, count) = blocks.of(rank);
            let place = match &space {
                Some(space) => address_of(space) + (start * self.size) as u64,
                None => self.recv(rank),
            };
            let into = |receiver: usize| if receiver == rank { place } else { 0 };
            // SAFETY: every send has the block, and the place room for it.
            unsafe { self.fold("fold_all", start, count, into)? };
        }
        let Some(space) = space else { return Ok(()) };
        let results = (0..n).map(|rank| {
            let (start, count) = blocks.of(rank);
            let from = address_of(&space) + (start * self.size) as u64;
            Piece { from, into: self.recv(rank), bytes: (count * self.size) as u64 }
        });
        // SAFETY: the results were just put there, and each rank has room for its own.
        unsafe { self.kernels.copy(results) }
    }

    /// # Safety
    /// As [`launch`].
    unsafe fn alltoall(&self) -> Result<()> {
        let n = self.all.len();
        let mut spaces = Vec::new();
        let mut pieces = Vec::with_capacity(n * n);
        for (from, sender) in self.all.iter().enumerate() {
            let mut send = sender.send;
            if !send.is_some() || send.ptr == sender.recv.ptr {
                // What a rank sends would be written over.
                send = Memory { ptr: sender.recv.ptr, blocks: sender.recv.blocks, ..send };
                let space = self.scratch(send.blocks.total(n))?;
                let bytes = (send.blocks.total(n) * self.size) as u64;
                let piece = Piece { from: send.ptr as u64, into: address_of(&space), bytes };
                // SAFETY: the space was just made, as long as what is copied.
                unsafe { self.kernels.copy([piece].into_iter())? };
                send.ptr = address_of(&space) as *mut u8;
                spaces.push(space);
            }
            for (to, receiver) in self.all.iter().enumerate() {
                let (start, _) = receiver.recv.blocks.of(from);
                let into = receiver.recv.ptr as u64 + (start * self.size) as u64;
                pieces.push(self.piece(send, to, into));
            }
        }
        // SAFETY: each block has its place in what its receiver has room for, apart from what any
        // rank sends.
        unsafe { self.kernels.copy(pieces.into_iter()) }
    }

    /// Room for so many elements, freed in the order of the stream.
    fn scratch(&self, elements: usize) -> Result<CudaSlice<u8>> {
        self.kernels.device.scratch(elements * self.size)
    }

    /// Gives each of these ranks every piece, at the piece's place in what it receives.
    ///
    /// # Safety
    /// They have room for that; as [`launch`].
    unsafe fn spread(&self, pieces: &[Piece], ranks: impl Iterator<Item = usize>) -> Result<()> {
        let targets: Vec<u64> = ranks.map(|rank| self.recv(rank)).collect();
        // SAFETY: this function's contract.
        unsafe { self.kernels.spread(pieces, &targets) }
    }
}
