//! The algorithms of alltoall and alltoallv.

use spmd_core::internal::{Args, Call, Collective, Incoming, Kind, PAYLOAD, SingleRank};
use spmd_core::{Comm, Result};

use crate::data::sending_a_copy;
use crate::exchange::{CountsCheck, Exchange};
use crate::select::Algorithm::{self, *};
use crate::select::{SINGLE_COPY, choose};

pub(super) const ALLTOALL: Collective =
    Collective { kind: Kind::Alltoall, single_rank: SingleRank::Copies, arena };
pub(super) const ALLTOALLV: Collective =
    Collective { kind: Kind::Alltoallv, single_rank: SingleRank::Copies, arena: varying };

/// # Safety
/// As [`dispatch`](spmd_core::dispatch::dispatch): `send` and `recv` are equal blocks for each
/// rank, the same or apart.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    // SAFETY: as the caller promises.
    unsafe { sending_a_copy(args, comm.size(), |args| equal(comm, call, args)) }
}

/// Everybody shows its blocks and reads those for it, at once from all peers. Small ones lie in
/// the payloads: one meeting; large ones are read in place: two. n reads a rank, of a block each.
///
/// # Safety
/// As [`dispatch`](spmd_core::dispatch::dispatch): `send` and `recv` are equal blocks for each
/// rank, apart.
unsafe fn equal(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (n, me) = (comm.size(), comm.rank());
    let exchange = Exchange::of_ranks(args, n, CountsCheck::Implied);
    let (total, count) = (exchange.total, args.send.blocks.longest());
    let incoming = (1..=n).map(|step| {
        let peer = (me + step) % n;
        Incoming { peer, side: 0, index: me, from: me * count, total, into: peer * count, count }
    });
    let choice = choose_by_size(comm, args, total * args.size());
    let segment = (choice != SingleCopy).then(|| comm.internals().segment());
    comm.internals().collective(call, |round| {
        // SAFETY: as the caller promises.
        unsafe {
            match choice {
                Flat => exchange.through_payloads(round, incoming),
                _ => {
                    let at = |index| (index * count, count);
                    exchange.through_buffers(round, segment, n, at, incoming)
                }
            }
        }
    })
}

/// As [`equal`], with the blocks that the ranks have told each other. The largest buffer decides
/// for all ranks where they lie.
///
/// # Safety
/// As [`dispatch`](spmd_core::dispatch::dispatch): `send` and `recv` are blocks for each rank,
/// apart; `incoming` goes where those of `recv` start.
unsafe fn varying(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let exchange = Exchange::of_ranks(args, comm.size(), counts(args));
    let largest = args.incoming.iter().map(|block| block.total).max().unwrap_or(0);
    let choice = choose_by_size(comm, args, largest.saturating_mul(args.size()));
    let segment = (choice != SingleCopy).then(|| comm.internals().segment());
    let incoming = args.incoming.iter().copied();
    comm.internals().collective(call, |round| {
        // SAFETY: as the caller promises; blocks of other lengths than `recv` has room for end the
        // exchange before a byte moves.
        unsafe {
            match choice {
                Flat => exchange.through_payloads(round, incoming),
                _ => {
                    let at = |rank: usize| args.send.blocks.of(rank);
                    exchange.through_buffers(round, segment, comm.size(), at, incoming)
                }
            }
        }
    })
}

/// Whether what peers send is what this rank takes.
pub(crate) fn counts(args: &Args<'_>) -> CountsCheck {
    let takes = |block: &Incoming| (*block, args.recv.blocks.of(block.peer).1);
    CountsCheck::of(args.incoming.iter().map(takes))
}

/// As [`SINGLE_COPY`], where a segment would cost a switch between ranks that share cores.
const SHARED_SINGLE_COPY: usize = 32 << 10;

fn choose_by_size(comm: &Comm, args: &Args<'_>, bytes: usize) -> Algorithm {
    let fits = bytes <= PAYLOAD;
    let least = if comm.internals().shares_cores() { SHARED_SINGLE_COPY } else { SINGLE_COPY };
    let default = match fits {
        true => Flat,
        false if bytes / comm.size() >= least && comm.internals().reads_private() => SingleCopy,
        false => Chunked,
    };
    choose(comm, args.collective.kind, bytes, default, |it| match it {
        SingleCopy => comm.internals().reads_private(),
        _ => fits || it == Chunked,
    })
}
