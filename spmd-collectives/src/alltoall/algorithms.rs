//! The algorithms of alltoall and alltoallv.

use spmd_core::algorithm::{Call, PAYLOAD};
use spmd_core::{Comm, DType, Element, Result};

use crate::across::{self, ByRank};
use crate::alone::alone;
use crate::blocks::Blocks;
use crate::exchange::{Counts, Exchange, Incoming};
use crate::select::Algorithm::{self, *};
use crate::select::{SINGLE_COPY, choose};

/// Everybody shows its blocks and reads those for it, at once from all peers. Small ones lie in
/// the rooms: one meeting; large ones are read in place: two. n reads a rank, of a block each.
///
/// # Safety
/// `send` holds n blocks of `block` elements, `recv` has room for as many, apart from `send`.
pub(crate) unsafe fn equal(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    send: *const u8,
    recv: *mut u8,
    block: usize,
) -> Result<()> {
    let (n, me) = (comm.size(), comm.rank());
    let total = n * block;
    if n == 1 {
        // SAFETY: as the caller promises.
        return unsafe { alone(comm, call, send, recv, block * dtype.size as usize) };
    }
    if comm.spans_processes() {
        let blocks = ByRank::Equal(block * dtype.size as usize);
        // SAFETY: as the caller promises.
        return unsafe { across::alltoall(comm, call, dtype, (send, blocks), (recv, blocks)) };
    }
    let exchange = Exchange { dtype, send, total, recv, counts: Counts::Implied, by_rank: true };
    let incoming = (1..=n).map(|step| {
        let peer = (me + step) % n;
        Incoming { peer, index: me, from: me * block, total, into: peer * block, count: block }
    });
    let choice = choose_by_size(comm, call, total * dtype.size as usize);
    let segment = (choice != SingleCopy).then(|| comm.segment());
    comm.collective(call, |round| {
        // SAFETY: as the caller promises.
        unsafe {
            match choice {
                Flat => exchange.through_rooms(round, incoming),
                _ => {
                    let at = |index| (index * block, block);
                    exchange.through_buffers(round, segment, n, at, incoming)
                }
            }
        }
    })
}

/// As [`equal`], with the blocks that [`learn`] has found. The largest buffer decides for all
/// ranks where they lie.
///
/// # Safety
/// `send` holds the blocks, `recv` has room for `incoming`, apart from `send`.
pub(super) unsafe fn unequal(
    comm: &Comm,
    call: &Call<'_>,
    exchange: Exchange,
    blocks: &Blocks,
    incoming: &[Incoming],
) -> Result<()> {
    if comm.size() == 1 && exchange.counts == Counts::Fit {
        let Exchange { dtype, send, total, recv, .. } = exchange;
        // SAFETY: as the caller promises; this rank's block is the whole buffer.
        return unsafe { alone(comm, call, send, recv, total * dtype.size as usize) };
    }
    if comm.spans_processes() {
        // SAFETY: as the caller promises.
        return unsafe { unequal_across(comm, call, exchange, blocks, incoming) };
    }
    let largest = incoming.iter().map(|block| block.total).max().unwrap_or(0);
    let bytes = largest.saturating_mul(exchange.dtype.size as usize);
    let choice = choose_by_size(comm, call, bytes);
    let segment = (choice != SingleCopy).then(|| comm.segment());
    let incoming = incoming.iter().copied();
    comm.collective(call, |round| {
        // SAFETY: as the caller promises.
        unsafe {
            match choice {
                Flat => exchange.through_rooms(round, incoming),
                _ => {
                    let at = |rank: usize| blocks.of(rank);
                    exchange.through_buffers(round, segment, comm.size(), at, incoming)
                }
            }
        }
    })
}

/// # Safety
/// As [`unequal`].
unsafe fn unequal_across(
    comm: &Comm,
    call: &Call<'_>,
    exchange: Exchange,
    blocks: &Blocks,
    incoming: &[Incoming],
) -> Result<()> {
    // All know whether one of them has found its peers' counts to be wrong, before anything goes.
    across::agree_on_counts(comm, call, exchange.counts.wrong())?;
    let size = exchange.dtype.size as usize;
    let bytes = |(start, count): (usize, usize)| (start * size, count * size);
    let outgoing: Vec<_> = (0..comm.size()).map(|rank| bytes(blocks.of(rank))).collect();
    let mut from = vec![(0, 0); comm.size()];
    incoming.iter().for_each(|block| from[block.peer] = bytes((block.into, block.count)));
    // SAFETY: as the caller promises.
    unsafe {
        let (out, come) = (ByRank::Listed(outgoing.as_ptr()), ByRank::Listed(from.as_ptr()));
        let (send, recv) = ((exchange.send, out), (exchange.recv, come));
        across::alltoall(comm, call, exchange.dtype, send, recv)
    }
}

/// As [`SINGLE_COPY`], where a segment would cost a switch between ranks that share cores.
const SHARED_SINGLE_COPY: usize = 32 << 10;

fn choose_by_size(comm: &Comm, call: &Call<'_>, bytes: usize) -> Algorithm {
    let fits = bytes <= PAYLOAD;
    let least = if comm.shares_cores() { SHARED_SINGLE_COPY } else { SINGLE_COPY };
    let default = match fits {
        true => Flat,
        false if bytes / comm.size() >= least && comm.reads_private() => SingleCopy,
        false => Chunked,
    };
    choose(comm, call.kind, bytes, default, |it| match it {
        SingleCopy => comm.reads_private(),
        _ => fits || it == Chunked,
    })
}

/// Asks every peer for its block: where it is, how long, and how long the peer's buffer is. An
/// alltoall of its own.
pub(super) fn learn(
    comm: &Comm,
    call: &Call<'_>,
    blocks: &Blocks,
    total: usize,
) -> Result<Vec<Incoming>> {
    type Header = [u64; 3];
    let (n, me) = (comm.size(), comm.rank());
    let say = |(start, count)| [start, count, total].map(|word| word as u64);
    let said: Vec<Header> = (0..n).map(|peer| say(blocks.of(peer))).collect();
    let mut heard = vec![[0; 3]; n];
    // SAFETY: both vectors hold a header a rank.
    unsafe {
        let (send, recv) = (said.as_ptr().cast(), heard.as_mut_ptr().cast());
        equal(comm, call, Header::DTYPE, send, recv, 1)?;
    }
    let incoming = (1..=n).map(|step| {
        let peer = (me + step) % n;
        let [from, count, total] = heard[peer].map(|word: u64| word as usize);
        Incoming { peer, index: me, from, total, into: 0, count }
    });
    Ok(incoming.collect())
}
