//! What was found, and whether that is enough.

/// One thing that was looked at.
pub(super) struct Finding {
    pub(super) what: &'static str,
    pub(super) state: State,
    pub(super) found: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Good,
    /// Absent or restricted, and no job needs it.
    Limited,
    /// Process ranks, or the programs that are named, cannot run without it.
    Broken,
}

pub(super) fn good(what: &'static str, found: String) -> Finding {
    Finding { what, state: State::Good, found }
}

pub(super) fn broken(what: &'static str, found: String) -> Finding {
    Finding { what, state: State::Broken, found }
}

pub(super) fn limited(what: &'static str, found: String) -> Finding {
    Finding { what, state: State::Limited, found }
}
