//! Which algorithm a call takes: a default by size and ranks, or the one that the program or
//! `SPMD_FORCE` asks for, where it can serve the call.

use spmd_core::Comm;
use spmd_core::algorithm::Kind;

/// An algorithm. What it does on a call, and what that costs, stands where the call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Flat,
    Tree,
    Central,
    Hub,
    Doubling,
    Chunked,
    SingleCopy,
}

use Algorithm::*;

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Flat => "flat",
            Tree => "tree",
            Central => "central",
            Hub => "hub",
            Doubling => "doubling",
            Chunked => "chunked",
            SingleCopy => "single_copy",
        }
    }
}

/// Bytes of a block from which processes with cores of their own read it through the kernel.
pub(crate) const SINGLE_COPY: usize = 128 << 10;

/// The forced algorithm if it is one of `known` and can serve the call (`able`), else the default.
/// All ranks choose alike: the arguments agree, and so does what is forced.
#[inline]
pub(crate) fn choose(
    comm: &Comm,
    kind: Kind,
    default: Algorithm,
    known: &[Algorithm],
    able: impl Fn(Algorithm) -> bool,
) -> Algorithm {
    match comm.forced(kind) {
        None => default,
        Some(forced) => {
            let named = known.iter().copied().find(|algorithm| algorithm.name() == forced);
            named.filter(|algorithm| able(*algorithm)).unwrap_or(default)
        }
    }
}
