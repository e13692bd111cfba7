//! What each kind of error tells: a struct for each, which may get more fields.

use std::io;
use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use super::Error;
use crate::buffer::Place;
use crate::fault::Fault;

/// What [`Error::PeerFailed`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{call} cannot complete: rank {rank} failed first: {}", fault.cause())]
pub struct PeerFailed {
    /// The rank that failed first, numbered in the world.
    pub rank: usize,
    /// What happened to it.
    pub fault: Fault,
    /// The call in which this rank learnt of it, with its source line.
    pub call: String,
}

/// What [`Error::Panicked`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("rank {rank} panicked: {message}")]
pub struct Panicked {
    /// Which.
    pub rank: usize,
    /// What it said.
    pub message: String,
}

/// What [`Error::TaskFailed`] tells.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{}{task} failed: {message}", before(dependent))]
pub struct TaskFailed {
    /// The task that failed first, with the line that spawned it.
    pub task: String,
    /// The task that was asked for, where it is another one, which needs that.
    pub dependent: Option<String>,
    /// What it returned, or what it said in a panic.
    pub message: String,
    /// The fault that stopped it, if it was one.
    pub fault: Option<Fault>,
    /// The error that it returned; none after a panic.
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What [`Error::Cancelled`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{}{task} was cancelled", before(dependent))]
pub struct Cancelled {
    /// The task that was cancelled, with the line that spawned it.
    pub task: String,
    /// The task that was asked for, where it is another one, which needs that.
    pub dependent: Option<String>,
}

fn before(dependent: &Option<String>) -> String {
    dependent.as_ref().map_or_else(String::new, |it| format!("{it} did not run: "))
}

/// What [`Error::Stopped`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{fault}")]
pub struct Stopped {
    /// What went wrong, naming the ranks, their calls and source lines.
    pub fault: Fault,
    /// The call in which this rank learnt of it, with its source line.
    pub call: String,
}

/// What [`Error::Length`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{call}: the {what} holds {given} elements where {expected} are needed")]
pub struct Length {
    /// The call, with its source line.
    pub call: String,
    /// Which buffer or argument.
    pub what: &'static str,
    /// How many elements it has.
    pub given: usize,
    /// How many it must have.
    pub expected: usize,
}

/// What [`Error::RankOutOfRange`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{call}: {what} {given} is outside the communicator, whose ranks are 0 to {}", size - 1)]
pub struct RankOutOfRange {
    /// The call, with its source line.
    pub call: String,
    /// Which argument.
    pub what: &'static str,
    /// The rank that was given.
    pub given: usize,
    /// The size of the communicator.
    pub size: usize,
}

/// What [`Error::Truncated`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "{call}: the message from rank {from} (tag {tag}, sent at {sent_at}) has {len} elements and the buffer holds {capacity}; \
     use recv_vec, or probe first"
)]
pub struct Truncated {
    /// The call, with its source line.
    pub call: String,
    /// Who sent the message.
    pub from: usize,
    /// Its tag.
    pub tag: u32,
    /// Its length in elements.
    pub len: usize,
    /// What the buffer holds, in elements.
    pub capacity: usize,
    /// The source line of the send.
    pub sent_at: String,
}

/// What [`Error::ElementType`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "{call}: the message from rank {from} (tag {tag}, sent at {sent_at}) carries {sent}, and the receive is of {expected}; \
     use one type on both sides"
)]
pub struct ElementType {
    /// The call, with its source line.
    pub call: String,
    /// Who sent the message.
    pub from: usize,
    /// Its tag.
    pub tag: u32,
    /// The element type that was sent.
    pub sent: String,
    /// The element type that was asked for.
    pub expected: String,
    /// The source line of the send.
    pub sent_at: String,
}

/// What [`Error::Epoch`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{call}: {why}")]
pub struct Epoch {
    /// The call, with its source line.
    pub call: String,
    /// In which epoch it was made, where that began or the last one ended, and what to do.
    pub why: String,
}

/// What [`Error::Unreceived`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "{count} message(s) to rank {rank} were never received; the first, of {len} elements from rank {from} with tag {tag}, was sent at {sent_at}; \
     receive it before the block ends, or don't send it"
)]
pub struct Unreceived {
    /// The rank they were sent to.
    pub rank: usize,
    /// How many.
    pub count: usize,
    /// Who sent the first.
    pub from: usize,
    /// Its tag.
    pub tag: u32,
    /// Its length in elements.
    pub len: usize,
    /// The source line of its send.
    pub sent_at: String,
}

/// What [`Error::Reentrant`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{call} was made {meanwhile}")]
pub struct Reentrant {
    /// The call, with its source line.
    pub call: String,
    /// Inside what, and what to do.
    pub meanwhile: &'static str,
}

/// What [`Error::Timeout`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "{call} waited for {waiting_for} longer than the limit of {limit:?} (SPMD_TIMEOUT or Spmd::timeout); \
     see what it was doing, or allow more time"
)]
pub struct Timeout {
    /// The call, with its source line.
    pub call: String,
    /// Whom it waited for.
    pub waiting_for: String,
    /// The limit.
    pub limit: Duration,
}

/// What [`Error::Argument`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{text}")]
pub struct Argument {
    /// What is wrong, and what to do.
    pub text: String,
}

/// What [`Error::MixedPlaces`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "{call}: the send buffer is on {send}, the receive buffer on {recv}; the buffers of a call are in one memory: copy one of them there first"
)]
pub struct MixedPlaces {
    /// The call, with its source line.
    pub call: String,
    /// Where its send buffer is.
    pub send: Place,
    /// Where its receive buffer is.
    pub recv: Place,
}

/// What [`Error::Unavailable`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{what} is not available: {reason}; {remedy}")]
pub struct Unavailable {
    /// What was asked for.
    pub what: String,
    /// What was looked for, and where.
    pub reason: String,
    /// What to do.
    pub remedy: String,
}

/// What [`Error::Corrupt`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "the memory shared with rank {rank} is corrupt: {what}; that process has a bug or is hostile, and the job cannot go on"
)]
pub struct Corrupt {
    /// The rank whose memory it is, numbered in the world.
    pub rank: usize,
    /// What was found there.
    pub what: &'static str,
}

/// What [`Error::Boot`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("cannot start ranks: {text}")]
pub struct Boot {
    /// What is wrong, and what to do.
    pub text: String,
}

/// What [`Error::System`] tells.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{action}: {source}")]
pub struct System {
    /// What was attempted.
    pub action: String,
    /// The system's answer.
    pub source: io::Error,
}

/// What [`Error::Library`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{library}: {call}: {text}")]
pub struct Library {
    /// Which, with its version.
    pub library: String,
    /// Its function.
    pub call: &'static str,
    /// Its words.
    pub text: String,
}

/// What [`Error::Serialize`] tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{call}: {reason}")]
pub struct Serialize {
    /// The call, with its source line.
    pub call: String,
    /// What the serialiser said.
    pub reason: String,
}

/// What [`Error::User`] tells.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{source}")]
pub struct User {
    /// That error.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
