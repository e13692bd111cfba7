//! Why a job was not started.

use std::io;

/// Every reason for which the launcher refuses or fails to start a job. The message is one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// What was asked for makes no sense or is not in this build.
    #[error("{0}")]
    Usage(String),
    /// The program exists and cannot be run.
    #[error("{0}")]
    NotExecutable(String),
    /// There is no such program.
    #[error("{0}")]
    NotFound(String),
    /// The build under `cargo spmdrun` failed; cargo has said why.
    #[error("{0}")]
    Build(String),
    /// The operating system refused something.
    #[error("cannot {action}: {source}{remedy}")]
    System { action: String, source: io::Error, remedy: &'static str },
    /// The job's shared memory could not be made.
    #[error(transparent)]
    Core(#[from] spmd_core::Error),
}

impl Error {
    /// The exit status of `spmdrun`: 2 for usage, 126 and 127 as a shell gives them.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::NotExecutable(_) => 126,
            Error::NotFound(_) => 127,
            Error::Build(_) | Error::System { .. } | Error::Core(_) => 1,
        }
    }

    /// An error of the operating system, where there is nothing to advise beyond its own words.
    pub(crate) fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::System { action: action.into(), source: source.into(), remedy: "" }
    }
}

/// Refuses what was asked for.
pub(crate) fn usage<T>(message: String) -> Result<T, Error> {
    Err(Error::Usage(message))
}
