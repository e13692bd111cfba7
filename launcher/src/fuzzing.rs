//! What reads text from outside, for the fuzzer in `fuzz/`. None of it may panic, whatever it is
//! given.

use std::ffi::OsString;

use crate::args::{self, Request};
use crate::error::Error;
use crate::mpi::hosts;
use crate::place::Places;
use crate::plan::Plan;

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

/// A command line of `spmdrun`, as far as nothing is started.
pub fn arguments(words: Vec<OsString>) {
    if let Err(error) = planned(words) {
        assert!(!error.to_string().is_empty());
    }
}

fn planned(words: Vec<OsString>) -> Result<(), Error> {
    let Request::Run(mut job, sections) = args::parse(words)? else { return Ok(()) };
    // Its text is read above, and what it names may never end.
    job.hostfile = None;
    let plan = Plan::new(*job, sections)?;
    assert!(plan.size > 0);
    if plan.size <= 64 {
        Places::new(&plan.bind, plan.size)?;
    }
    Ok(())
}
