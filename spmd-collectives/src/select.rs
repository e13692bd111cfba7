//! Which algorithm a call takes: a default by size and ranks, or the one that the program,
//! `SPMD_FORCE` or a tuning file asks for, where it can serve the call. Which there are, and what
//! they cost, is the table [`internal::CHOICES`](spmd_core::internal::CHOICES).

use spmd_core::Comm;
pub(crate) use spmd_core::internal::Algorithm;
use spmd_core::internal::{Kind, candidates};

/// Bytes of a block from which processes with cores of their own read it through the kernel.
pub(crate) const SINGLE_COPY: usize = 512 << 10;

/// The algorithm that a rule names for a call of so many bytes ([`internal::Size`](spmd_core::internal::Size)), if
/// it can serve the call (`able`), else the default. All ranks choose alike: the arguments agree,
/// and so do the rules.
#[inline]
pub(crate) fn choose(
    comm: &Comm,
    kind: Kind,
    bytes: usize,
    default: Algorithm,
    able: impl Fn(Algorithm) -> bool,
) -> Algorithm {
    debug_assert!(
        candidates(kind).iter().any(|candidate| candidate.algorithm == default),
        "{kind:?}: {default:?}"
    );
    if comm.internals().has_rules() { by_rule(comm, kind, bytes, default, &able) } else { default }
}

#[cold]
fn by_rule(
    comm: &Comm,
    kind: Kind,
    bytes: usize,
    default: Algorithm,
    able: &dyn Fn(Algorithm) -> bool,
) -> Algorithm {
    // Callers know only what the table has for this kind: of others they must not be asked.
    let listed = |it: &Algorithm| candidates(kind).iter().any(|has| has.algorithm == *it);
    let ruled = comm.internals().rule(kind, bytes).filter(listed);
    let choice = ruled.filter(|algorithm| able(*algorithm)).unwrap_or(default);
    comm.internals().note_choice(choice);
    choice
}
