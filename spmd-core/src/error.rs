//! Every error that a call of the rank API can give.
//!
//! Each message says what happened, where, and what to do next. A failure that reaches a rank
//! from another one is a [`Fault`], the same value on every rank that it stops.

mod causes;
mod details;
mod from;

use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::Arc;

use crate::call::Call;
use crate::fault::Fault;
use causes::WithCauses;
pub use details::{
    Argument, Boot, Cancelled, Corrupt, ElementType, Epoch, Length, Library, MixedPlaces, Panicked,
    PeerFailed, RankOutOfRange, Reentrant, Serialize, Stopped, System, TaskFailed, Timeout,
    Truncated, Unavailable, Unreceived, User,
};

/// What the calls of this library return, and a rank's closure.
///
/// ```
/// use spmd::prelude::*;
///
/// fn main() -> Result<()> {
///     spmd(2, |_ctx| Ok(()))?;
///     Ok(())
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of the rank API did not do what it was asked.
///
/// `docs/errors.md` has the text of each variant as a user sees it, and what to do. A variant holds
/// what it tells in a box, so that an error is two words long and a call that succeeds pays nothing
/// for it; the fields are those of the struct of the variant's name in [`error`](crate::error).
///
/// ```
/// use spmd::prelude::*;
///
/// let ended = spmd(2, |ctx| {
///     if ctx.rank() == 1 {
///         return Err("no more data".into());
///     }
///     match ctx.recv(&mut [0], 1, 0) {
///         Err(Error::PeerFailed(failed)) if failed.rank == 1 => Ok(()),
///         other => panic!("{other:?}"),
///     }
/// });
/// assert_eq!(ended.unwrap_err().to_string(), "no more data");
/// ```
#[non_exhaustive]
pub enum Error {
    /// A rank that this call needed has failed: it panicked, returned an error, exited or was
    /// killed. `rank` is its rank in the world. The communicator stays stopped; its other ranks can
    /// go on with [`Comm::shrink`](crate::Comm::shrink).
    PeerFailed(Box<PeerFailed>),
    /// A rank's closure panicked.
    Panicked(Box<Panicked>),
    /// Ranks of one communicator disagree, wait for each other in a cycle, or wait for a rank
    /// that has left: a mistake in the program. The same fault is seen by all of them.
    Stopped(Box<Stopped>),
    /// A buffer has the wrong number of elements for this call.
    Length(Box<Length>),
    /// A rank or root outside the communicator.
    RankOutOfRange(Box<RankOutOfRange>),
    /// A message is longer than the buffer that should receive it. Nothing was overwritten; the
    /// message is consumed.
    Truncated(Box<Truncated>),
    /// A message carries another element type than the receive asked for. Nothing was
    /// overwritten; the message is consumed.
    ElementType(Box<ElementType>),
    /// An access to a window outside of an epoch, or a call that does not fit the epoch that it is in.
    Epoch(Box<Epoch>),
    /// Messages that nobody received when their block ended.
    Unreceived(Box<Unreceived>),
    /// A call that was made while another one was under way: from inside a user operation, or by
    /// another virtual rank on the same communicator.
    Reentrant(Box<Reentrant>),
    /// The time limit for waiting passed (`Spmd::timeout`, `SPMD_TIMEOUT`).
    Timeout(Box<Timeout>),
    /// An argument that no call can work with.
    Argument(Box<Argument>),
    /// The buffers of a call are in different memories.
    MixedPlaces(Box<MixedPlaces>),
    /// This build or this machine lacks what the call needs.
    Unavailable(Box<Unavailable>),
    /// Memory that another process writes holds what no correct rank would write.
    Corrupt(Box<Corrupt>),
    /// The environment cannot be used: an `SPMD_*` variable makes no sense, or the launcher speaks
    /// another protocol.
    Boot(Box<Boot>),
    /// The operating system refused something.
    System(Box<System>),
    /// A library beneath this one, MPI for example, refused something.
    Library(Box<Library>),
    /// A value could not be turned into bytes or back (the `_object` calls).
    Serialize(Box<Serialize>),
    /// A task, or one that it needs, has returned an error or panicked. The rank lives on.
    TaskFailed(Box<TaskFailed>),
    /// A task, or one that it needs, was cancelled.
    Cancelled(Box<Cancelled>),
    /// An error of the program itself, carried by `?` or [`Error::user`].
    User(Box<User>),
}

impl Error {
    /// What the variant holds.
    fn details(&self) -> &(dyn std::error::Error + 'static) {
        match self {
            Error::PeerFailed(it) => &**it,
            Error::Panicked(it) => &**it,
            Error::Stopped(it) => &**it,
            Error::Length(it) => &**it,
            Error::RankOutOfRange(it) => &**it,
            Error::Truncated(it) => &**it,
            Error::ElementType(it) => &**it,
            Error::Epoch(it) => &**it,
            Error::Unreceived(it) => &**it,
            Error::Reentrant(it) => &**it,
            Error::Timeout(it) => &**it,
            Error::Argument(it) => &**it,
            Error::MixedPlaces(it) => &**it,
            Error::Unavailable(it) => &**it,
            Error::Corrupt(it) => &**it,
            Error::Boot(it) => &**it,
            Error::System(it) => &**it,
            Error::Library(it) => &**it,
            Error::Serialize(it) => &**it,
            Error::TaskFailed(it) => &**it,
            Error::Cancelled(it) => &**it,
            Error::User(it) => &**it,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one piece: `main` writes it to a place where other ranks may write, too.
        f.write_str(&self.details().to_string())
    }
}

/// `{:#?}`, and so `dbg!`, shows the variant and its fields. `{:?}` is the text of `Display`, with those
/// of what is behind it: it is what users of a program see whose `main` returns an error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.alternate() {
            true => fmt::Debug::fmt(self.details(), f),
            false => fmt::Display::fmt(&self.with_causes(), f),
        }
    }
}

impl std::error::Error for Error {
    /// The program's own error of [`Error::User`], with what is behind it, or the system's of
    /// [`Error::System`].
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.details().source()
    }
}

impl Error {
    /// Wraps any error of the program's own, or a text: of whatever type that becomes a
    /// `Box<dyn Error + Send + Sync>`, as that of `anyhow` and `eyre` do. What it is made of stays behind
    /// it ([`source`](std::error::Error::source)). An error of this library, in a box, comes out of it.
    ///
    /// `?` does the same for errors of the standard library, boxed errors, texts and, with the feature
    /// `anyhow`, those of that crate.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn parse(text: &str) -> Result<i32> {
    ///     text.parse().map_err(Error::user)
    /// }
    /// assert!(parse("7x").unwrap_err().to_string().contains("invalid digit"));
    /// ```
    #[must_use]
    pub fn user(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::from(error.into())
    }

    /// The text, with those of all that is behind it: what ranks are told of another one's error, and
    /// what a program says whose `main` returns it.
    pub(crate) fn with_causes(&self) -> WithCauses<'_> {
        WithCauses(self)
    }

    /// Memory that the ranks of a call cannot reach, where planes gave these reasons.
    #[cold]
    #[doc(hidden)]
    pub fn out_of_reach(call: &Call<'_>, refused: &[String]) -> Error {
        let why = "nothing here reaches the device that its memory is on";
        Error::unavailable(
            call.to_string(),
            [&[why.into()], refused].concat().join("; "),
            "copy the data to the host first, or add a plane that does (`spmd_gpu::Staged`)".into(),
        )
    }

    /// A call on a device that the plane `only` has refused, as no other was asked.
    #[cold]
    pub(crate) fn left_to_one_plane(call: &Call<'_>, refused: &[String], only: &str) -> Error {
        let why =
            format!("SPMD_TRANSPORT={only} leaves calls on devices to the plane {only} alone");
        Error::unavailable(
            call.to_string(),
            [&[why], refused].concat().join("; "),
            format!("leave that out (`spmdrun` without --transport {only}), and others may do it"),
        )
    }

    /// The fault behind this error, where another rank or a disagreement between ranks is the
    /// reason; also if the program has put an error of its own in front of it.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::Fault;
    ///
    /// let ended = spmd(2, |ctx| ctx.recv(&mut [0], 1 - ctx.rank(), 0));
    /// assert!(matches!(ended.unwrap_err().fault(), Some(Fault::Deadlock { .. })));
    /// ```
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::PeerFailed(it) => Some(&it.fault),
            Error::Stopped(it) => Some(&it.fault),
            Error::TaskFailed(it) => it.fault.as_ref(),
            Error::User(it) => {
                causes::all(&*it.source).find_map(|cause| cause.downcast_ref::<Error>()?.fault())
            }
            _ => None,
        }
    }

    /// What a rank is told that a fault stops in `call`.
    pub(crate) fn stopped(fault: Fault, call: &Call<'_>) -> Error {
        let call = call.to_string();
        match fault {
            Fault::Rank { rank, .. } => {
                Error::PeerFailed(Box::new(PeerFailed { rank, fault, call }))
            }
            _ => Error::Stopped(Box::new(Stopped { fault, call })),
        }
    }

    /// That `what` was called wrongly at `site`.
    pub(crate) fn misuse(what: &str, site: &Location<'_>, why: impl fmt::Display) -> Error {
        Error::argument(format!("{what} at {}:{}: {why}", site.file(), site.line()))
    }

    pub(crate) fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Error {
        let (action, source) = (action.into(), source.into());
        Error::System(Box::new(System { action, source }))
    }
}

/// How the crates of this workspace make errors.
#[doc(hidden)]
impl Error {
    #[cold]
    pub fn argument(text: String) -> Error {
        Error::Argument(Box::new(Argument { text }))
    }

    #[cold]
    pub fn boot(text: String) -> Error {
        Error::Boot(Box::new(Boot { text }))
    }

    #[cold]
    pub fn corrupt(rank: usize, what: &'static str) -> Error {
        Error::Corrupt(Box::new(Corrupt { rank, what }))
    }

    #[cold]
    pub fn epoch(call: &Call<'_>, why: String) -> Error {
        Error::Epoch(Box::new(Epoch { call: call.to_string(), why }))
    }

    #[cold]
    pub fn length(call: &Call<'_>, what: &'static str, given: usize, expected: usize) -> Error {
        let call = call.to_string();
        Error::Length(Box::new(Length { call, what, given, expected }))
    }

    #[cold]
    pub fn library(library: String, call: &'static str, text: String) -> Error {
        Error::Library(Box::new(Library { library, call, text }))
    }

    #[cold]
    pub fn serialize(call: &Call<'_>, reason: String) -> Error {
        Error::Serialize(Box::new(Serialize { call: call.to_string(), reason }))
    }

    /// That a task failed, with what it returned or said in a panic.
    #[cold]
    pub fn task_failed(
        (task, dependent): (String, Option<String>),
        message: String,
        source: Option<Arc<Error>>,
    ) -> Error {
        let fault = source.as_ref().and_then(|error| error.fault().cloned());
        let source = source.map(|error| error as Arc<dyn std::error::Error + Send + Sync>);
        Error::TaskFailed(Box::new(TaskFailed { task, dependent, message, fault, source }))
    }

    #[cold]
    pub fn cancelled((task, dependent): (String, Option<String>)) -> Error {
        Error::Cancelled(Box::new(Cancelled { task, dependent }))
    }

    #[cold]
    pub fn unavailable(what: String, reason: String, remedy: String) -> Error {
        Error::Unavailable(Box::new(Unavailable { what, reason, remedy }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
