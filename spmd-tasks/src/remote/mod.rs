//! Tasks on other ranks.
//!
//! Ranks of one process share its workers, so that a task for another rank is one for them. Of ranks that are
//! processes each has a communicator for this, made before the rank's closure, one thread that receives on
//! it and one that sends (`service.rs`): so no task and no rank waits for room in another one's ring, and
//! those that receive always do. What is asked for is run as a task in a scope of its own, and the answer
//! sent when that has been left; so once all ranks have told the first one that their own tasks are over,
//! there is nothing under way anywhere. What is cancelled is called off where it runs (`errand.rs`).
//! At the start each sends bytes to its neighbour and back, to know what a task's way there takes (`spread.rs`).

pub(crate) mod errand;
pub(crate) mod function;
pub(crate) mod messages;
pub(crate) mod service;
pub(crate) mod spawn;
mod spread;
