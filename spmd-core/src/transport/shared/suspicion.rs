//! What a search for cycles of waits has found so far (`deadlock.rs`).

use std::time::Instant;

use super::agents::Wait;

/// Waits that depend on each other only.
pub(super) struct Suspicion {
    /// When all of them had been seen.
    pub(super) since: u64,
    pub(super) waits: Vec<Wait>,
}

/// Searches that come to all ranks of this process.
#[derive(Default)]
pub(super) struct Wide {
    /// What the last one has found: whoever begins, a search that comes to all finds the same.
    pub(super) earlier: Option<Suspicion>,
    /// When the next one may begin.
    pub(super) next: Option<Instant>,
    /// A rank that the last one has found to act, and that is looked at first.
    pub(super) acted: usize,
}
