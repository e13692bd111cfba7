//! Which algorithm a call takes: a default by size and ranks, or the one that the program or
//! `SPMD_FORCE` asks for, where it can serve the call.

use spmd_core::Comm;
use spmd_core::algorithm::Kind;

/// The name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice(pub(crate) &'static str);

/// The forced algorithm if it is one of `names` and can serve (`able`), else the default. All
/// ranks choose alike: the arguments agree, and so does what is forced.
#[inline]
pub(crate) fn choose(
    comm: &Comm,
    kind: Kind,
    default: &'static str,
    names: &[&'static str],
    able: impl Fn(&str) -> bool,
) -> Choice {
    match comm.forced(kind) {
        None => Choice(default),
        Some(forced) => {
            let name = names.iter().find(|name| **name == forced && able(name));
            Choice(name.copied().unwrap_or(default))
        }
    }
}
