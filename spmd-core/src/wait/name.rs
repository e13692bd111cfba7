//! What reports call a coroutine.

/// What a report of an overflow calls a coroutine.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(super) enum Name {
    /// The virtual rank of this number.
    Rank(usize),
    Task,
}
