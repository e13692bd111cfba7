//! What reads text from outside, for the fuzzer in `fuzz/`. None of it may panic, whatever it is
//! given.

use std::ffi::OsString;

use crate::mpi::hosts;

/// A hostfile, and how ranks are shared out to its hosts.
pub fn hostfile(text: &str) {
    let Ok(hosts) = hosts::from_text(text, "hosts") else { return };
    let _ = hosts::slots(&hosts);
    for (processes, each) in [(1, 1), (7, 2), (usize::MAX, 3)] {
        if let Ok(shares) = hosts::share(&hosts, processes, each) {
            assert!(shares.iter().all(|(_, count)| *count > 0));
        }
    }
}

/// A command line of `spmdrun`.
pub fn arguments(words: Vec<OsString>) {
    if let Err(error) = crate::args::parse(words) {
        assert!(!error.to_string().is_empty());
    }
}
