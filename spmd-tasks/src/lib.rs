//! Tasks inside the ranks of `spmd`: pieces of work that a rank spawns, that need each other's results,
//! and that workers of its process carry out while the rank goes on.
//!
//! ```
//! use spmd::prelude::*;
//!
//! let sums = spmd(2, |ctx| {
//!     let a = ctx.spawn(|| Ok((0..1000u64).sum::<u64>()));
//!     let b = ctx.spawn(|| Ok(42));
//!     let both = ctx.spawn_after((&a, &b), |a, b| Ok(a + b));
//!     both.fetch().copied()
//! })?;
//! assert_eq!(sums, [499_542; 2]);
//! # Ok::<(), Error>(())
//! ```
//!
//! The ranks of a process share its workers, of which there are as many as its share of cores. A task
//! that has begun stays on its worker; one that has to wait, for another task or in a call on a
//! communicator of its own, is suspended, and the worker goes on with others. An error or a panic of a
//! task is its outcome: what needs it does not run, and [`Task::fetch`] tells what came first.

mod about;
mod access;
mod accesses;
mod arrays;
mod arrivals;
mod channel;
mod choice;
mod data;
mod datadeps;
mod drivers;
mod failure;
mod granting;
mod graph;
mod group;
mod header;
mod inner;
mod input;
mod inputs;
mod job;
mod join;
mod latch;
mod ledger;
mod lock;
mod mutable;
mod node;
mod objects;
mod options;
mod order;
mod place;
mod placed;
mod placement;
mod placing;
mod pool;
mod processor;
mod rank;
mod reduce;
mod region;
mod regions;
mod remote;
mod request;
mod scope;
mod sequence;
mod spawn;
mod spawn_here;
mod stock;
mod stream;
mod task;
mod turns;
mod view;
mod watch;
mod wide;
mod work;
mod workers;

pub use about::Priority;
pub use access::{Read, ReadAll, Write, WriteAll};
pub use accesses::Accesses;
pub use arrays::{DataMatrix, DataRange, DataSlice, DataTile};
pub use channel::{Receiver, Sender, channel};
pub use data::Data;
pub use datadeps::DataDeps;
pub use graph::TaskGraph;
pub use inputs::Inputs;
pub use join::join;
pub use mutable::{Mutable, Shard};
pub use options::{OfRank, RetriedTask, TaskOptions, processor_here, resource_ids};
pub use placed::Placed;
pub use placement::Scope;
pub use processor::Processor;
pub use reduce::Reduce;
pub use remote::function::RemoteFn;
pub use scope::{ScopedTask, TaskScope};
pub use sequence::Sequence;
pub use spawn::Tasks;
pub use spawn_here::{
    datadeps, is_cancelled, rank_here, scope, spawn, spawn_after, spawn_any, spawn_on,
    spawn_sequential, task, with_scope,
};
pub use stream::{StreamEnds, StreamReceiver, StreamSender};
pub use task::{Completed, Task};
pub use view::View;

/// What [`remote!`] needs where it is used.
#[doc(hidden)]
pub mod internal {
    pub use inventory::submit;

    pub use crate::remote::function::{Known, name_of, run};
    pub use crate::remote::spawn::HOOK;
}
