//! What the launcher says, and the exit status of a job.

use std::fmt;
use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::process::ExitStatus;

#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, poll};
#[cfg(unix)]
use rustix::io::Errno;

use crate::error::Error;

/// Prints one line of the launcher's own on standard error, in one write, while no job runs.
pub(crate) fn say(message: &str) {
    // With standard error closed there is nobody to tell.
    #[cfg(unix)]
    let _ = write_all(rustix::stdio::stderr(), own_line(message).as_bytes());
    #[cfg(not(unix))]
    let _ = io::Write::write_all(&mut io::stderr().lock(), own_line(message).as_bytes());
}

/// A line of the launcher's own.
pub(crate) fn own_line(message: &str) -> String {
    format!("spmdrun: {}\n", one_line(message))
}

/// Prints text on standard output. Whoever reads it may have enough of it before its end.
///
/// Errors: it cannot be written, as on a disk that is full.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    #[cfg(unix)]
    let written = write_all(rustix::stdio::stdout(), text.as_bytes()).map_err(io::Error::from);
    #[cfg(not(unix))]
    let written = io::Write::write_all(&mut io::stdout().lock(), text.as_bytes());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::system("write standard output", error))
        }
        _ => Ok(()),
    }
}

/// Writes all of it, and waits where the descriptor does not: whoever made it so may be another
/// program that has it, too.
#[cfg(unix)]
pub(crate) fn write_all(to: BorrowedFd<'_>, mut text: &[u8]) -> Result<(), Errno> {
    while !text.is_empty() {
        match rustix::io::write(to, text) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => text = &text[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut writable = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
                // An interruption leads to another attempt, and so does a lack of memory.
                if poll(&mut writable, None).is_err() {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The status by which a shell would show how a process ended.
pub(crate) fn shell_status(status: ExitStatus) -> u8 {
    match (status.code(), signal(status)) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 1,
    }
}

/// How a rank's process ended, in words.
pub(crate) fn ending(status: ExitStatus) -> String {
    ending_of("its process", status)
}

/// How a process of this name ended, in words.
pub(crate) fn ending_of(who: &str, status: ExitStatus) -> String {
    match (status.code(), signal(status)) {
        (_, Some(number)) => match signal_name(number) {
            Some(name) => format!("{who} was killed by signal {number} ({name})"),
            None => format!("{who} was killed by signal {number}"),
        },
        (code, None) => format!("{who} exited with status {}", code.unwrap_or(1)),
    }
}

#[cfg(unix)]
pub(crate) fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
pub(crate) fn signal(_status: ExitStatus) -> Option<i32> {
    None
}

#[cfg(unix)]
pub(crate) fn signal_name(number: i32) -> Option<&'static str> {
    signal_hook::low_level::signal_name(number)
}

#[cfg(not(unix))]
pub(crate) fn signal_name(_number: i32) -> Option<&'static str> {
    None
}

/// The first failure of a job.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// `rank 3`, or all ranks of one process; none where ranks disagreed.
    pub(crate) who: Option<String>,
    pub(crate) why: String,
    /// The exit status that it gives the job: never 0.
    pub(crate) code: u8,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Some(who) => write!(f, "{who} failed first: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Success,
    /// Ranks failed, and others finished, as they may.
    Survived {
        first: Failure,
        finished: usize,
        size: usize,
        /// Why they may.
        why: &'static str,
    },
    Failed(Failure),
    /// It was ended by a signal to the launcher, which the ranks got too.
    Interrupted {
        signal: i32,
    },
    TimedOut {
        limit: std::time::Duration,
    },
}

impl Outcome {
    /// The exit status of the launcher.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Outcome::Success | Outcome::Survived { .. } => 0,
            Outcome::Failed(failure) => failure.code,
            Outcome::Interrupted { signal } => 128 + *signal as u8,
            Outcome::TimedOut { .. } => 124,
        }
    }

    /// The last line of a job that did not simply succeed.
    pub(crate) fn last_line(&self) -> Option<String> {
        match self {
            Outcome::Success => None,
            Outcome::Survived { first, finished, size, why } => {
                Some(format!("{first}; {finished} of {size} ranks finished ({why})"))
            }
            Outcome::Failed(failure) => Some(failure.to_string()),
            Outcome::Interrupted { signal } => Some(format!(
                "the job was ended by signal {signal} ({}) to spmdrun",
                signal_name(*signal).unwrap_or("unnamed")
            )),
            Outcome::TimedOut { limit } => {
                Some(format!("the job was ended at its time limit of {limit:?} (--timeout)"))
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn statuses_are_a_shells() {
        assert_eq!(shell_status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(shell_status(ExitStatus::from_raw(9)), 137);
        assert!(ending(ExitStatus::from_raw(9)).contains("9 (SIGKILL)"));
    }

    #[test]
    fn messages_are_one_line() {
        assert_eq!(one_line("a\n  b\n\n"), "a; b");
    }
}

/// One line for all ranks of which the same is said.
pub(crate) fn by_text(texts: impl Iterator<Item = (usize, String)>) -> Vec<String> {
    const NAMED: usize = 16;
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, text) in texts {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((text, vec![rank])),
        }
    }
    let line = |(text, ranks): (String, Vec<usize>)| {
        let named: Vec<String> = ranks.iter().take(NAMED).map(usize::to_string).collect();
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        match ranks.len().saturating_sub(NAMED) {
            0 => format!("{noun} {}: {text}", named.join(", ")),
            more => format!("{noun} {} and {more} more: {text}", named.join(", ")),
        }
    };
    groups.into_iter().map(line).collect()
}
