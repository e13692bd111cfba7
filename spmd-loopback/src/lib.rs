//! Several processes of ranks in one process of the system's, joined by queues in its memory:
//! worlds without common memory for tests, which need no MPI and can be looked into by sanitizers.
//!
//! ```
//! use spmd_collectives::Allreduce;
//! use spmd_core::Sum;
//! use spmd_loopback::Job;
//!
//! // Three processes of two ranks each.
//! let sums = Job::new(3, 2).run(|ctx| ctx.allreduce_value(ctx.rank(), Sum)).results()?;
//! assert_eq!(sums, [15; 6]);
//! # Ok::<(), spmd_core::Error>(())
//! ```
//!
//! What a network may do comes from a seed: delays, packets of different senders in any order,
//! connections that are cut, processes that are killed. Of one sender packets stay in order, as
//! MPI's messages do. Collective steps of the processes are carried out by plain loops.
//!
//! A process that ends takes its ranks with it and leaves the others alone. As its ranks are
//! threads of the test's process, which can be in the middle of anything, they stay where they next
//! use the fabric, with all that lies on their stacks; they cost nothing but memory until the test
//! ends.

mod consensus;
mod fabric;
mod job;
mod meetings;
mod net;
mod packets;
mod payloads;
mod plan;
mod processes;
mod sets;
mod steps;
mod transfers;

pub use job::{Handle, Job};
pub use plan::{EarlyEnd, Outcome, ProcessEnd};
