//! The table of all algorithms of collectives, and their names.

pub use crate::call::Kind;

/// An algorithm. What it does on a call stands where the call is, in `spmd-collectives`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Algorithm {
    Flat,
    Tree,
    Central,
    Combining,
    Doubling,
    Chunked,
    SingleCopy,
}

use Algorithm::*;

impl Algorithm {
    /// As in `SPMD_FORCE`.
    pub fn name(self) -> &'static str {
        match self {
            Flat => "flat",
            Tree => "tree",
            Central => "central",
            Combining => "combining",
            Doubling => "doubling",
            Chunked => "chunked",
            SingleCopy => "single_copy",
        }
    }
}

/// A collective that more than one algorithm can serve.
#[derive(Debug)]
pub struct Choice {
    /// The call.
    pub kind: Kind,
    /// The bytes by which it chooses.
    pub by: Size,
    /// Its algorithms: no other is ever chosen.
    pub candidates: &'static [Candidate],
}

/// The bytes by which a call chooses its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// What one rank contributes, or its longest block.
    One,
    /// The blocks of all ranks together, as one of them sends them.
    All,
    /// None: all ranks know no size that they agree on. It counts as 0.
    Unknown,
}

/// An algorithm of one collective, and what it costs: `n` ranks, `b` bytes of a rank's data, `s` of
/// a segment, `k` segments.
#[derive(Debug)]
pub struct Candidate {
    /// Which.
    pub algorithm: Algorithm,
    /// When it is chosen by default.
    pub chosen: &'static str,
    /// How often a rank waits for others.
    pub steps: &'static str,
    /// What a rank reads from others' memory, and what it copies once more.
    pub bytes: &'static str,
}

const fn candidate(
    algorithm: Algorithm,
    chosen: &'static str,
    steps: &'static str,
    bytes: &'static str,
) -> Candidate {
    Candidate { algorithm, chosen, steps, bytes }
}

const fn choice(kind: Kind, by: Size, candidates: &'static [Candidate]) -> Choice {
    Choice { kind, by, candidates }
}

/// Every collective that has a choice. `docs/algorithms.md` holds the same, with explanations.
pub const CHOICES: &[Choice] = &[
    choice(Kind::Broadcast, Size::One, BROADCAST),
    choice(Kind::Reduce, Size::One, REDUCE),
    choice(Kind::Allreduce, Size::One, ALLREDUCE),
    choice(Kind::Gather, Size::One, GATHER),
    choice(Kind::Gatherv, Size::Unknown, GATHERV),
    choice(Kind::Allgather, Size::One, ALLGATHER),
    choice(Kind::Allgatherv, Size::One, ALLGATHER),
    choice(Kind::Scatter, Size::All, SCATTER),
    choice(Kind::Scatterv, Size::All, SCATTER),
    choice(Kind::Alltoall, Size::All, ALLTOALL),
    choice(Kind::Alltoallv, Size::All, ALLTOALL),
    choice(Kind::ReduceScatter, Size::All, REDUCE_SCATTER),
    choice(Kind::ReduceScatterv, Size::All, REDUCE_SCATTER),
    choice(Kind::Scan, Size::One, SCAN),
    choice(Kind::Exscan, Size::One, SCAN),
    choice(Kind::NeighborAllgather, Size::All, NEIGHBORS),
    choice(Kind::NeighborAlltoall, Size::All, NEIGHBORS),
    choice(Kind::NeighborAlltoallv, Size::All, NEIGHBORS),
];

const COMBINING: &str =
    "virtual ranks on the block's communicator, b ≤ 48, workers with a power of two of ranks";

const BROADCAST: &[Candidate] = &[
    candidate(
        Combining,
        "virtual ranks on the block's communicator, b ≤ 48",
        "1; the root does not wait",
        "b",
    ),
    candidate(
        Flat,
        "b ≤ 4096, n ≤ 16, but not virtual ranks of a block",
        "1; the root does not wait",
        "b",
    ),
    candidate(Tree, "b ≤ 4096, other ranks", "1 meeting", "b"),
    candidate(
        Chunked,
        "b > 4096",
        "2 meetings; staged: 1 meeting, and k steps",
        "b; the root copies b if staged",
    ),
];

const REDUCE: &[Candidate] = &[
    candidate(Combining, COMBINING, "1 meeting", "b; the last of a worker: b of each of its ranks"),
    candidate(Flat, "b ≤ 4096, n ≤ 16", "1; only the root waits", "root: (n − 1) b"),
    candidate(Tree, "b ≤ 4096, more ranks", "2 log₂ n", "up to b log₂ n; root: b more"),
    candidate(
        Chunked,
        "b > 4096",
        "2 meetings; staged: k + 2; two processes: 1 meeting, and k steps",
        "b; staged: b (n − 1) / n copied, root: 2 b",
    ),
];

const ALLREDUCE: &[Candidate] = &[
    candidate(Combining, COMBINING, "1 meeting", "b; the last of a worker: b of each of its ranks"),
    candidate(Flat, "b ≤ 4096, n ≤ 16 (virtual ranks: 4)", "1 meeting", "n b"),
    candidate(
        Central,
        "virtual ranks on the block's communicator, b ≤ 4096, n b ≤ 32 KiB",
        "1 meeting",
        "the last to arrive: n b; the others: b",
    ),
    candidate(Tree, "b ≤ 4096, more ranks", "2 log₂ n", "up to b log₂ n, and b"),
    candidate(
        Chunked,
        "b > 4096",
        "2 meetings; in shared memory 3; staged: k + 2",
        "2 b (n − 1) / n; staged: b (n − 1) / n copied",
    ),
];

const GATHER: &[Candidate] = &[
    candidate(
        Flat,
        "b ≤ 4096, n ≤ 16, but not virtual ranks of a block",
        "1; only the root waits",
        "root: (n − 1) b",
    ),
    candidate(Tree, "b ≤ 4096, other ranks", "1 meeting", "root: (n − 1) b"),
    candidate(
        Chunked,
        "otherwise",
        "2 meetings; staged: 1 meeting, and k steps",
        "root: (n − 1) b; staged: b copied",
    ),
];

const GATHERV: &[Candidate] = &[
    candidate(
        Flat,
        "n ≤ 16",
        "1 meeting if all blocks are ≤ 4096 bytes, else as chunked",
        "root: the blocks of all",
    ),
    candidate(
        Chunked,
        "otherwise",
        "2 meetings; staged: 1 meeting, and k steps",
        "root: (n − 1) b; staged: b copied",
    ),
];

const ALLGATHER: &[Candidate] = &[
    candidate(Flat, "b ≤ 4096", "1 meeting", "(n − 1) b"),
    candidate(
        SingleCopy,
        "processes with cores of their own that may read each other's memory, b ≥ 524288, n² b < 2²⁶",
        "2 meetings",
        "(n − 1) b, through the kernel",
    ),
    candidate(Chunked, "b > 4096", "2 meetings; staged: k + 1", "(n − 1) b; staged: b copied"),
];

const SCATTER: &[Candidate] = &[
    candidate(
        Flat,
        "all blocks together ≤ 4096, n ≤ 16, but not virtual ranks of a block",
        "1; the root does not wait",
        "b",
    ),
    candidate(Tree, "all blocks together ≤ 4096, other ranks", "1 meeting", "b"),
    candidate(
        Chunked,
        "otherwise",
        "2 meetings; staged: 1 meeting, and ⌈n b / s⌉ steps",
        "b; staged: the root copies all blocks",
    ),
];

const ALLTOALL: &[Candidate] = &[
    candidate(Flat, "all blocks together ≤ 4096", "1 meeting", "n b"),
    candidate(
        SingleCopy,
        "processes that may read each other's memory, b ≥ 524288 (where they share cores: 32768)",
        "2 meetings",
        "(n − 1) b, through the kernel",
    ),
    candidate(Chunked, "otherwise", "2 meetings; staged: ⌈n b / s⌉ + 1", "n b; staged: n b copied"),
];

const REDUCE_SCATTER: &[Candidate] = &[
    candidate(Flat, "all blocks together ≤ 4096", "1 meeting", "n b"),
    candidate(Chunked, "otherwise", "2 meetings; staged: ⌈n b / s⌉ + 1", "n b; staged: n b copied"),
];

const SCAN: &[Candidate] = &[
    candidate(Flat, "b ≤ 4096, n ≤ 16 (virtual ranks of a block: 64)", "1 meeting", "up to n b"),
    candidate(Doubling, "b log₂ n ≤ 4096, more ranks", "log₂ n, and 1 meeting", "b log₂ n"),
    candidate(Chunked, "otherwise", "3 meetings; staged: 2 k + 2", "2 b; staged: b copied"),
];

const NEIGHBORS: &[Candidate] = &[
    candidate(
        Flat,
        "what a rank sends ≤ 4096 bytes in all",
        "1 meeting",
        "a block for each neighbour",
    ),
    candidate(
        Chunked,
        "otherwise, and the blocks of neighbor_alltoallv",
        "2 meetings; staged: ⌈bytes sent / s⌉ + 1",
        "a block for each neighbour; staged: what it sends copied",
    ),
];

/// The algorithms of a call; none where it has no choice.
pub fn candidates(kind: Kind) -> &'static [Candidate] {
    CHOICES.iter().find(|choice| choice.kind == kind).map_or(&[], |choice| choice.candidates)
}

/// The algorithm with this name, of the call with that one. Errors: what is wrong with them, and
/// the right names.
pub fn find(call: &str, algorithm: &str) -> Result<(Kind, Algorithm), String> {
    let Some(kind) = Kind::named(call) else {
        let names: Vec<_> = CHOICES.iter().map(|choice| choice.kind.name()).collect();
        return Err(format!(
            "no call is named {call}; those with a choice are {}",
            names.join(", ")
        ));
    };
    let mut known = candidates(kind).iter().map(|candidate| candidate.algorithm);
    known.find(|known| known.name() == algorithm).map(|known| (kind, known)).ok_or_else(|| {
        let names: Vec<_> =
            candidates(kind).iter().map(|candidate| candidate.algorithm.name()).collect();
        match &names[..] {
            [] => format!("{call} has one algorithm, and no choice"),
            _ => format!("the algorithms of {call} are {}", names.join(", ")),
        }
    })
}
