//! A call that cannot be started for want of memory: an error of this rank, which may try again.

#![cfg(target_os = "linux")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spmd::prelude::*;

#[test]
fn a_start_that_failed_is_tried_again() -> Result<()> {
    Spmd::new(2)
        .threads()
        .run(|ctx| {
            // Both have all else that they need.
            ctx.barrier()?;
            if ctx.rank() == 0 {
                let before = getrlimit(Resource::As);
                let none = Rlimit { current: Some(1 << 20), ..before };
                setrlimit(Resource::As, none).expect("a process may lower its own limit");
                let refused = ctx.barrier_start().map(drop);
                setrlimit(Resource::As, before).expect("up to the hard limit");
                let error = refused.expect_err("there is no memory for a stack").to_string();
                assert!(error.contains("a stack for a started call"), "{error}");
            }
            ctx.barrier()?;
            let started = (0..8).map(|_| ctx.barrier_start()).collect::<Result<Vec<_>>>()?;
            started.into_iter().try_for_each(Request::wait)
        })
        .map(drop)
}
