//! Worlds of several processes without common memory, all in this one, joined by queues in its
//! memory (`spmd-loopback`): what ranks do over MPI, without one, and what networks and processes
//! do at their worst, by chance that comes from a seed.

#![cfg(target_os = "linux")]

mod failures;
mod matrix;
#[path = "../support/mistakes.rs"]
mod mistakes;
#[path = "../support/one_failure.rs"]
mod one_failure;
#[path = "../support/survival.rs"]
mod survival;
mod survive;
#[path = "../support/use_all.rs"]
mod use_all;

use std::time::Duration;

use spmd_loopback::Job;

/// Processes, ranks of each, and whether these are virtual ranks.
type Shape = (usize, usize, bool);

/// Processes with one rank and with several, threads and virtual ranks.
const SHAPES: [Shape; 5] =
    [(4, 1, false), (2, 2, false), (3, 2, false), (2, 3, true), (3, 2, true)];

/// A job of this shape, in which nothing unusual happens.
fn quiet((processes, each, coroutines): Shape) -> Job {
    let job = Job::new(processes, each);
    if coroutines { job.virtual_ranks() } else { job }
}

/// A job of this shape, over a network on which everything takes its time.
fn slow(shape: Shape, seed: u64) -> Job {
    quiet(shape).seed(seed).delay(Duration::from_micros(200))
}
