//! Pieces of a call that goes by way of the host: some elements of each block, which the call takes for
//! themselves as it takes all.

use spmd_core::Comm;
use spmd_core::internal::{Args, Blocks, Kind, Memory, Rows};

use crate::calls;

/// Segments that a piece has at most: 2 MiB.
const SEGMENTS: usize = 16;
/// Bytes that it has where hosts may have segments of different lengths.
const BYTES: usize = 2 << 20;

/// What a rank brings to a call, as places on its device.
pub(crate) struct Brought<'a> {
    args: Args<'a>,
    ranks: usize,
    /// Elements of a block, and those of it that a piece has; the same on all ranks.
    block: usize,
    each: usize,
    /// What it sends is part of what it receives into.
    in_place: bool,
    /// Something of what lies where it receives is sent, or stays.
    keeps: bool,
}

/// A piece of it.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) send: Rows,
    pub(crate) recv: Rows,
    /// Elements of a block.
    count: usize,
}

impl<'a> Brought<'a> {
    pub(crate) fn new(comm: &Comm, args: &Args<'a>) -> Brought<'a> {
        let ranks = comm.size();
        let whole = |memory: Memory<'_>| whole(memory, args, ranks);
        let (send, recv) = (whole(args.send), whole(args.recv));
        let in_place = args.send.is_some() && args.recv.is_some() && holds(recv, send);
        let keeps = match args.collective.kind {
            Kind::Broadcast => comm.rank() == args.root,
            Kind::Scatter | Kind::Scatterv => false,
            // The first rank gets nothing.
            Kind::Exscan => true,
            // Where there is no neighbour, what was there stays.
            kind if calls::is_of_neighbors(kind) => true,
            _ => in_place || !args.send.is_some(),
        };
        let block = args.send.blocks.longest().max(args.recv.blocks.longest());
        let each = most(comm, args).map_or(block, |most| most.min(block));
        Brought { args: *args, ranks, block, each, in_place, keeps }
    }

    /// How many pieces there are, one at least.
    pub(crate) fn pieces(&self) -> usize {
        self.block.div_ceil(self.each.max(1)).max(1)
    }

    /// Elements of each block that a piece has, if it is not all.
    pub(crate) fn each(&self) -> Option<usize> {
        (self.each < self.block).then_some(self.each)
    }

    /// The first one is as long as any.
    pub(crate) fn piece(&self, number: usize) -> Piece {
        let first = number * self.each;
        let count = self.each.min(self.block - first);
        let rows = |memory: Memory<'_>| match (self.each(), memory.blocks) {
            (Some(_), Blocks::One(_)) if memory.is_some() => self.rows(memory, 1, first, count),
            (Some(_), Blocks::Equal(_)) => self.rows(memory, self.ranks, first, count),
            _ => whole(memory, &self.args, self.ranks),
        };
        Piece { send: rows(self.args.send), recv: rows(self.args.recv), count }
    }

    /// Of so many blocks, some elements each.
    fn rows(&self, memory: Memory<'_>, blocks: usize, first: usize, count: usize) -> Rows {
        let size = self.args.size();
        Rows {
            start: memory.ptr as u64 + (first * size) as u64,
            count: blocks,
            bytes: count * size,
            stride: self.block * size,
        }
    }

    /// Whether memory of its own is sent.
    pub(crate) fn sends_elsewhere(&self) -> bool {
        self.args.send.is_some() && !self.in_place
    }

    /// Whether anything is received.
    pub(crate) fn receives(&self) -> bool {
        self.args.recv.is_some()
    }

    /// Whether the call reads what lies where it receives.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps
    }

    /// The call on a piece that lies on the host: what is sent, where that lies apart, and what is received.
    pub(crate) fn on_host(
        &self,
        piece: Piece,
        sent: Option<*mut u8>,
        received: Option<*mut u8>,
    ) -> Args<'a> {
        let blocks = |blocks: Blocks<'a>| match (self.each(), blocks) {
            (Some(_), Blocks::One(_)) => Blocks::One(piece.count),
            (Some(_), Blocks::Equal(_)) => Blocks::Equal(piece.count),
            _ => blocks,
        };
        let host = |memory: Memory<'a>, start: *mut u8| Memory::host(start, blocks(memory.blocks));
        let recv = received.map_or(Memory::NONE, |start| host(self.args.recv, start));
        let send = match sent {
            Some(start) => host(self.args.send, start),
            None if self.in_place => {
                let offset = (piece.send.start - piece.recv.start) as usize;
                host(self.args.send, recv.ptr.wrapping_add(packed(piece.recv, offset)))
            }
            None => Memory::NONE,
        };
        Args { send, recv, ..self.args }
    }
}

/// The elements of a block that a piece has at most, of a call that is made in pieces: of blocks that are
/// the same on all ranks, so that all make as many.
fn most(comm: &Comm, args: &Args<'_>) -> Option<usize> {
    let kind = args.collective.kind;
    if calls::varies(kind) || calls::is_of_neighbors(kind) {
        return None;
    }
    let bytes = match comm.internals().spans_processes() {
        true => BYTES,
        false => SEGMENTS * comm.internals().segment(),
    };
    let blocks = if calls::has_a_block_each(kind) { comm.size() } else { 1 };
    Some((bytes / (blocks * args.size())).max(1))
}

/// All elements of a rank's memory, none where it has none.
fn whole(memory: Memory<'_>, args: &Args<'_>, ranks: usize) -> Rows {
    let elements = if memory.is_some() { memory.blocks.total(ranks) } else { 0 };
    let bytes = elements * args.size();
    Rows { start: memory.ptr as u64, count: 1, bytes, stride: bytes.max(1) }
}

/// Where in the memory of the host it is that lies so far behind the start on the device: in a row, or at one's end.
fn packed(rows: Rows, offset: usize) -> usize {
    offset / rows.stride * rows.bytes + offset % rows.stride
}

/// Whether the first of two pieces of memory holds the other one.
fn holds(all: Rows, part: Rows) -> bool {
    let from = part.start.checked_sub(all.start);
    from.is_some_and(|from| from + part.bytes as u64 <= all.bytes as u64)
}
