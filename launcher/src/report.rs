//! What the launcher says, and the exit status of a job.

use std::fmt;
use std::io::Write;
use std::process::ExitStatus;

/// Prints one line of the launcher's own on standard error, in one write.
pub(crate) fn say(message: &str) {
    let line = format!("spmdrun: {}\n", one_line(message));
    // With standard error closed there is nobody to tell.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Prints text on standard output. Whoever reads it may have enough of it before its end.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
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

    /// Whether the job was ended from outside.
    pub(crate) fn told_to_end(&self) -> bool {
        matches!(self, Outcome::Interrupted { .. } | Outcome::TimedOut { .. })
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
