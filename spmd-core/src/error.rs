//! Every error that a call of the rank API can give.
//!
//! Each message says what happened, where, and what to do next. A failure that reaches a rank
//! from another one is a [`Fault`], the same value on every rank that it stops.

use std::fmt;
use std::io;
use std::panic::Location;
use std::time::Duration;

use crate::call::Call;
use crate::fault::Fault;

/// What the calls of this library return, and a rank's closure.
///
/// ```
/// # use spmd_core::{Result, spmd};
/// fn main() -> Result<()> {
///     spmd(2, |_ctx| Ok(()))?;
///     Ok(())
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of the rank API did not do what it was asked.
///
/// `docs/errors.md` has the text of each variant as a user sees it, and what to do.
///
/// ```
/// # use spmd_core::{Error, spmd};
/// let ended = spmd(2, |ctx| {
///     if ctx.rank() == 1 {
///         return Err("no more data".into());
///     }
///     match ctx.recv(&mut [0], 1, 0) {
///         Err(Error::PeerFailed { rank: 1, .. }) => Ok(()),
///         other => panic!("{other:?}"),
///     }
/// });
/// assert_eq!(ended.unwrap_err().to_string(), "no more data");
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank that this call needed has failed: it panicked, returned an error, exited or was
    /// killed. `rank` is its rank in the world. The communicator stays stopped; its other ranks can
    /// go on with [`Comm::shrink`](crate::Comm::shrink).
    #[error("{call} cannot complete: rank {rank} failed first: {}", fault.cause())]
    PeerFailed {
        /// The rank that failed first, numbered in the world.
        rank: usize,
        /// What happened to it.
        fault: Box<Fault>,
        /// The call in which this rank learnt of it, with its source line.
        call: String,
    },
    /// A rank's closure panicked.
    #[error("rank {rank} panicked: {message}")]
    Panicked {
        /// Which.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// Ranks of one communicator disagree, wait for each other in a circle, or wait for a rank
    /// that has left: a mistake in the program. The same fault is seen by all of them.
    #[error("{fault}")]
    Stopped {
        /// What went wrong, naming the ranks, their calls and source lines.
        fault: Box<Fault>,
        /// The call in which this rank learnt of it, with its source line.
        call: String,
    },
    /// A buffer has the wrong number of elements for this call.
    #[error("{call}: the {what} holds {given} elements where {expected} are needed")]
    Length {
        /// The call, with its source line.
        call: String,
        /// Which buffer or argument.
        what: &'static str,
        /// How many elements it has.
        given: usize,
        /// How many it must have.
        expected: usize,
    },
    /// A rank or root outside the communicator.
    #[error("{call}: {what} {given} is outside the communicator, whose ranks are 0 to {}", size - 1)]
    RankOutOfRange {
        /// The call, with its source line.
        call: String,
        /// Which argument.
        what: &'static str,
        /// The rank that was given.
        given: usize,
        /// The size of the communicator.
        size: usize,
    },
    /// A message is longer than the buffer that should receive it. Nothing was overwritten; the
    /// message is consumed.
    #[error(
        "{call}: the message from rank {from} (tag {tag}, sent at {sent_at}) has {len} elements and the buffer holds {capacity}; \
         use recv_vec, or probe first"
    )]
    Truncated {
        /// The call, with its source line.
        call: String,
        /// Who sent the message.
        from: usize,
        /// Its tag.
        tag: u32,
        /// Its length in elements.
        len: usize,
        /// What the buffer holds, in elements.
        capacity: usize,
        /// The source line of the send.
        sent_at: String,
    },
    /// A message carries another element type than the receive asked for. Nothing was
    /// overwritten; the message is consumed.
    #[error(
        "{call}: the message from rank {from} (tag {tag}, sent at {sent_at}) carries {sent}, and the receive is of {expected}; \
         use one type on both sides"
    )]
    ElementType {
        /// The call, with its source line.
        call: String,
        /// Who sent the message.
        from: usize,
        /// Its tag.
        tag: u32,
        /// The element type that was sent.
        sent: String,
        /// The element type that was asked for.
        expected: String,
        /// The source line of the send.
        sent_at: String,
    },
    /// Messages that nobody received when their block ended.
    #[error(
        "{count} message(s) to rank {rank} were never received; the first, of {len} elements from rank {from} with tag {tag}, was sent at {sent_at}; \
         receive it before the block ends, or don't send it"
    )]
    Unreceived {
        /// The rank they were sent to.
        rank: usize,
        /// How many.
        count: usize,
        /// Who sent the first.
        from: usize,
        /// Its tag.
        tag: u32,
        /// Its length in elements.
        len: usize,
        /// The source line of its send.
        sent_at: String,
    },
    /// A call that was made while another one was under way: from inside a user operation, or by
    /// another virtual rank on the same communicator.
    #[error("{call} was made {meanwhile}")]
    Reentrant {
        /// The call, with its source line.
        call: String,
        /// Inside what, and what to do.
        meanwhile: &'static str,
    },
    /// The time limit for waiting passed (`Spmd::timeout`, `SPMD_TIMEOUT`).
    #[error(
        "{call} waited for {waiting_for} longer than the limit of {limit:?} (SPMD_TIMEOUT or Spmd::timeout); \
         see what it was doing, or allow more time"
    )]
    Timeout {
        /// The call, with its source line.
        call: String,
        /// Whom it waited for.
        waiting_for: String,
        /// The limit.
        limit: Duration,
    },
    /// An argument that no call can work with.
    #[error("{0}")]
    Argument(String),
    /// This build or this machine lacks what the call needs.
    #[error("{what} is not available: {reason}; {remedy}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// What was looked for, and where.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// Memory that another process writes holds what no correct rank would write.
    #[error(
        "the memory shared with rank {rank} is corrupt: {what}; that process has a bug or is hostile, and the job cannot go on"
    )]
    Corrupt {
        /// The rank whose memory it is, numbered in the world.
        rank: usize,
        /// What was found there.
        what: &'static str,
    },
    /// The environment cannot be used: an `SPMD_*` variable makes no sense, or the launcher speaks
    /// another protocol.
    #[error("cannot start ranks: {0}")]
    Boot(String),
    /// The operating system refused something.
    #[error("{action}: {source}")]
    System {
        /// What was attempted.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A library beneath this one, MPI for example, refused something.
    #[error("{library}: {call}: {text}")]
    Library {
        /// Which, with its version.
        library: String,
        /// Its function.
        call: &'static str,
        /// Its words.
        text: String,
    },
    /// A value could not be turned into bytes or back (the `_object` calls).
    #[error("{call}: {reason}")]
    Serialize {
        /// The call, with its source line.
        call: String,
        /// What the serialiser said.
        reason: String,
    },
    /// An error of the program itself, carried by `?` or [`Error::user`].
    #[error("{0}")]
    User(Box<dyn std::error::Error + Send + Sync>),
}

/// A program whose `main` returns an error prints its `Debug` form: the same text as `Display`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one piece: `main` writes it to a place where other ranks may write, too.
        f.write_str(&self.to_string())
    }
}

impl Error {
    /// Wraps any error of the program's own, for types without a `From` conversion.
    ///
    /// ```
    /// # use spmd_core::{Error, Result};
    /// fn parse(text: &str) -> Result<i32> {
    ///     text.parse().map_err(Error::user)
    /// }
    /// assert!(parse("7x").unwrap_err().to_string().contains("invalid digit"));
    /// ```
    pub fn user(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::User(Box::new(error))
    }

    /// Memory that the ranks of a call cannot reach.
    #[cold]
    pub(crate) fn out_of_reach(call: &Call<'_>) -> Error {
        Error::Unavailable {
            what: call.to_string(),
            reason: "nothing here reaches the device that its memory is on".into(),
            remedy: "copy the data to the host first".into(),
        }
    }

    /// The fault behind this error, where another rank or a disagreement between ranks is the
    /// reason.
    ///
    /// ```
    /// # use spmd_core::fault::Fault;
    /// # use spmd_core::spmd;
    /// let ended = spmd(2, |ctx| ctx.recv(&mut [0], 1 - ctx.rank(), 0));
    /// assert!(matches!(ended.unwrap_err().fault(), Some(Fault::Deadlock { .. })));
    /// ```
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::PeerFailed { fault, .. } | Error::Stopped { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// What a rank is told that a fault stops in `call`.
    pub(crate) fn stopped(fault: Fault, call: &Call<'_>) -> Error {
        let (fault, call) = (Box::new(fault), call.to_string());
        match &*fault {
            Fault::Rank { rank, .. } => Error::PeerFailed { rank: *rank, fault, call },
            _ => Error::Stopped { fault, call },
        }
    }

    /// That `what` was called wrongly at `site`.
    pub(crate) fn misuse(what: &str, site: &Location<'_>, why: impl fmt::Display) -> Error {
        Error::Argument(format!("{what} at {}:{}: {why}", site.file(), site.line()))
    }

    pub(crate) fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::System { action: action.into(), source: source.into() }
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Error {
        Error::User(text.into())
    }
}

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error::User(text.into())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::User(Box::new(error))
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::User(error)
    }
}

impl From<fmt::Error> for Error {
    fn from(error: fmt::Error) -> Error {
        Error::User(Box::new(error))
    }
}
