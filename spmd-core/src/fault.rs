//! What stops ranks: the first cause, recorded once and seen by all.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;

use serde::{Deserialize, Serialize};

/// How a rank came to its end.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::Cause;
///
/// assert_eq!(Cause::Killed(11).to_string(), "its process was killed by signal 11 (SIGSEGV)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Cause {
    /// Its closure panicked, with this message and place.
    Panicked(String),
    /// Its closure returned this error.
    Returned(String),
    /// Its process exited with this status before its block was over.
    Exited(i32),
    /// Its process was killed by this signal.
    Killed(i32),
    /// It was stopped for longer than the time limit.
    TimedOut(String),
    /// Its process has ended, or its host cannot be reached any more.
    Lost,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Panicked(message) => write!(f, "it panicked: {message}"),
            Cause::Returned(error) => write!(f, "it returned an error: {error}"),
            Cause::Exited(0) => {
                write!(f, "its process exited with status 0 without returning from spmd::run")
            }
            Cause::Exited(status) => write!(f, "its process exited with status {status}"),
            Cause::Killed(signal) => {
                write!(f, "its process was killed by signal {signal}")?;
                signal_name(*signal).map_or(Ok(()), |name| write!(f, " ({name})"))
            }
            Cause::TimedOut(what) => write!(f, "it passed the time limit: {what}"),
            Cause::Lost => {
                write!(f, "its process has ended, or its host cannot be reached any more")
            }
        }
    }
}

/// The names of the signals that end processes in practice (Linux numbers).
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        _ => return None,
    })
}

/// Why ranks were stopped. The same value reaches every rank of the communicator.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::{Cause, Fault};
///
/// spmd(2, |ctx| {
///     if ctx.rank() == 1 {
///         return Err("no more data".into());
///     }
///     let error = ctx.recv(&mut [0], 1, 0).unwrap_err();
///     let cause = Cause::Returned("no more data".into());
///     assert_eq!(error.fault(), Some(&Fault::Rank { rank: 1, cause }));
///     Ok(())
/// })
/// .unwrap_err();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// A rank failed.
    Rank {
        /// Which, numbered in the world.
        rank: usize,
        /// How.
        cause: Cause,
    },
    /// The ranks' collective calls differ.
    Mismatch {
        /// One line per call, `rank 1: barrier at src/main.rs:7`.
        calls: Vec<String>,
        /// What differs.
        what: String,
    },
    /// Ranks wait for each other in a cycle.
    Deadlock {
        /// One line per call in it.
        calls: Vec<String>,
    },
    /// A rank's closure ended while others waited for it.
    Left {
        /// Which rank, numbered in the world.
        rank: usize,
        /// Who waited for it, `rank 0: barrier at src/main.rs:7`.
        waiting: String,
    },
    /// A rank's process ended before it has entered a block that others have entered.
    Absent {
        /// Which rank, numbered in the world.
        rank: usize,
        /// Who missed it, `rank 0: end of the block at src/main.rs:7`.
        waiting: String,
    },
}

impl Fault {
    /// The rank at the start of it, numbered in the world, where there is one.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::{Cause, Fault};
    ///
    /// assert_eq!(Fault::Rank { rank: 3, cause: Cause::Exited(7) }.rank(), Some(3));
    /// assert_eq!(Fault::Deadlock { calls: vec![] }.rank(), None);
    /// ```
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        match self {
            Fault::Rank { rank, .. } | Fault::Left { rank, .. } | Fault::Absent { rank, .. } => {
                Some(*rank)
            }
            _ => None,
        }
    }

    /// What happened to the rank, in words; the whole text where it is no rank's failure.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::{Cause, Fault};
    ///
    /// let fault = Fault::Rank { rank: 3, cause: Cause::Exited(7) };
    /// assert_eq!(fault.cause(), "its process exited with status 7");
    /// ```
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Fault::Rank { cause, .. } => cause.to_string(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Rank { rank, cause } => write!(f, "rank {rank} failed: {cause}"),
            Fault::Mismatch { calls, what } => {
                write!(f, "the ranks' calls do not match ({what}): {}", calls.join("; "))
            }
            Fault::Deadlock { calls } => {
                write!(
                    f,
                    "deadlock: only the ranks listed could end these waits, so change the order of \
                     their calls: {}",
                    calls.join("; ")
                )
            }
            Fault::Left { rank, waiting } => {
                write!(
                    f,
                    "rank {rank} ended its block while another rank waited for it ({waiting}); it \
                     makes a call too few, or the other one too many"
                )
            }
            Fault::Absent { rank, waiting } => {
                write!(
                    f,
                    "rank {rank} ended without entering the world once more, as other ranks did \
                     ({waiting}); all ranks call spmd::run equally often"
                )
            }
        }
    }
}

impl Fault {
    /// The same fault with its texts cut to fit into `bytes`.
    pub(crate) fn shortened(&self, bytes: usize) -> Fault {
        let cut = |text: &String, limit: usize| {
            let mut end = limit.min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            if end < text.len() { format!("{}..", &text[..end]) } else { text.clone() }
        };
        let cut_all = |calls: &Vec<String>| {
            let each = (bytes / calls.len().max(1)).max(40);
            calls.iter().take(bytes / 40).map(|call| cut(call, each - 4)).collect()
        };
        let mut fault = self.clone();
        match &mut fault {
            Fault::Rank { cause, .. } => match cause {
                Cause::Panicked(text) | Cause::Returned(text) | Cause::TimedOut(text) => {
                    *text = cut(text, bytes);
                }
                Cause::Exited(_) | Cause::Killed(_) | Cause::Lost => {}
            },
            Fault::Mismatch { calls, what } => {
                *calls = cut_all(calls);
                *what = cut(what, bytes / 4);
            }
            Fault::Deadlock { calls } => *calls = cut_all(calls),
            Fault::Left { waiting, .. } | Fault::Absent { waiting, .. } => {
                *waiting = cut(waiting, bytes);
            }
        }
        fault
    }
}

/// Says something on standard error, in one piece, as other processes may write to the same. Where
/// nobody reads it that ends nothing, least of all what is about to end the process.
pub(crate) fn print(text: std::fmt::Arguments<'_>) {
    let line = format!("spmd: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// One line per call, with the ranks (in ascending order) that make it: `ranks 0, 2: barrier at
/// src/main.rs:7`. Of many ranks, and of many calls, the first ones are told, and how many more there are.
pub(crate) fn by_call(calls: impl Iterator<Item = (usize, String)>) -> Vec<String> {
    const NAMED: usize = 8;
    const CALLS: usize = 8;
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (rank, call) in calls {
        match places.get(&call) {
            // Calls that a rank has started at one place are told once.
            Some(place) if groups[*place].1.last() == Some(&rank) => {}
            Some(place) => groups[*place].1.push(rank),
            None => {
                places.insert(call.clone(), groups.len());
                groups.push((call, vec![rank]));
            }
        }
    }
    let line = |(call, ranks): (String, Vec<usize>)| {
        let named: Vec<String> = ranks.iter().take(NAMED).map(usize::to_string).collect();
        let more = match ranks.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {}{more}: {call}", named.join(", "))
    };
    let others = groups.split_off(groups.len().min(CALLS));
    let mut lines: Vec<String> = groups.into_iter().map(line).collect();
    if !others.is_empty() {
        let ranks: usize = others.iter().map(|(_, ranks)| ranks.len()).sum();
        lines.push(format!("{ranks} more in {} other calls", others.len()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::by_call;

    #[test]
    fn of_many_calls_the_first_ones_are_told() {
        let told = by_call((0..32).map(|rank| (rank, format!("recv at line {}", rank / 2))));
        assert_eq!(told.len(), 9);
        assert_eq!(told[7], "ranks 14, 15: recv at line 7");
        assert_eq!(told[8], "16 more in 8 other calls");
    }
}
