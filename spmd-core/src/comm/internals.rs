//! What a communicator is to the other crates of this workspace, beyond what programs use.

use super::communicator::Comm;

/// A communicator as verbs, planes and measurements see it: rounds on the arena, choices of
/// algorithms, parts of it. It may change with every version.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Internals<'a>(pub(super) &'a Comm);

impl Comm {
    /// What the other crates of this workspace are written with.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn internals(&self) -> Internals<'_> {
        Internals(self)
    }
}
