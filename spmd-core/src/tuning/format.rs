//! What tuning files call things.

use crate::mode::Mode;

/// The version of the format.
pub(super) const VERSION: usize = 1;

/// The name of a place, and a number of ranks.
pub(super) type Key = (&'static str, usize);

pub(super) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Threads => "threads",
        Mode::Virtual => "virtual",
        Mode::Processes => "processes",
    }
}

pub(super) fn mode_named(name: &str) -> Option<&'static str> {
    [Mode::Threads, Mode::Virtual, Mode::Processes]
        .map(mode_name)
        .into_iter()
        .find(|it| *it == name)
}
