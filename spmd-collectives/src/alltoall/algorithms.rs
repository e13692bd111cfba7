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
/// As [`Arena`](spmd_core::args::Arena): `send` and `recv` are a block for each rank, all of one
/// length, the same or apart.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    // SAFETY: all is as `dispatch` asks for it, on the host, with a block of one length for each
    // rank in `send` and in `recv`, which are the same or apart (this function's contract). `equal`
    // is given a copy of `send` if they are the same.
    unsafe { sending_a_copy(args, comm.size(), |args| equal(comm, call, args)) }
}

/// Everybody shows its blocks and reads those for it, at once from all peers. Small ones lie in
/// the payloads: one meeting; large ones are read in place: two. n reads a rank, of a block each.
///
/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send` and `recv` are a block for each rank, all of one
/// length, apart.
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
        // SAFETY: `send` holds `total` elements, and `recv`, apart from it, has room for as many
        // (this function's contract), in which each block of `incoming` has a place of its own.
        // Payloads are chosen only where `send` fits into one.
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
/// As [`Arena`](spmd_core::args::Arena): `send` and `recv` are blocks for each rank, apart;
/// `incoming` goes where those of `recv` start.
unsafe fn varying(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let exchange = Exchange::of_ranks(args, comm.size(), counts(args));
    let largest = args.incoming.iter().map(|block| block.total).max().unwrap_or(0);
    let choice = choose_by_size(comm, args, largest.saturating_mul(args.size()));
    let segment = (choice != SingleCopy).then(|| comm.internals().segment());
    let incoming = args.incoming.iter().copied();
    comm.internals().collective(call, |round| {
        // SAFETY: `send` holds all of its blocks, and `recv`, apart from it, has one where each of
        // `incoming` goes (this function's contract). If that is of another length, `counts` has
        // found it, which ends the exchange before a byte moves. Payloads are chosen only where the
        // largest buffer of all ranks fits into one.
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
    let single = match comm.internals().shares_cores() {
        true => bytes / comm.size() >= SHARED_SINGLE_COPY && comm.internals().reads_private(),
        false => bytes / comm.size() >= SINGLE_COPY && comm.internals().prefers_private(),
    };
    let default = match fits {
        true => Flat,
        false if single => SingleCopy,
        false => Chunked,
    };
    choose(comm, args.collective.kind, bytes, default, |it| match it {
        SingleCopy => comm.internals().reads_private(),
        _ => fits || it == Chunked,
    })
}
