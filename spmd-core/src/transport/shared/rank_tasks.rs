//! What a rank has of its tasks.

use std::any::Any;

use crate::error::Error;
use crate::wait::tasks::Sleeper;

/// What runs tasks of a rank.
pub trait RankTasks: Any + Send + Sync {
    /// Whether all tasks are over that the rank has spawned.
    fn all_over(&self) -> bool;
    /// Who is woken when they are.
    fn sleeper(&self) -> &Sleeper;
    /// Whether a task of this process runs, or could.
    fn may_act(&self) -> bool;
    /// On which communicator a thread waits, if nothing else is to be done, for what other ranks ask of
    /// this one's tasks.
    fn listens_on(&self) -> Option<u64>;
    /// The rank's own thread sleeps from now on.
    fn leaves_core(&self);
    /// It does not any more.
    fn needs_core(&self);
    /// The rank has no task left, and needs nobody else's: called once, with that so.
    fn parts(&self);
    /// Whether no rank needs this one for its tasks any more.
    fn is_parted(&self) -> bool;
    /// No task begins any more, and those that wait for another one give up.
    fn give_up(&self);
    /// The rank leaves the block: its own agent calls this, when all are over.
    fn ends(&self);
    /// What went wrong without anybody knowing, first.
    fn take_failure(&self) -> Option<Error>;
}
