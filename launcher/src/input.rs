//! Standard input for the ranks.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;

use crossbeam_channel::{Sender, unbounded};

use crate::args::Stdin;
use crate::error::Error;
use crate::plan::Plan;

/// How each process gets its input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// It reads the launcher's own.
    Inherit,
    /// The launcher reads and passes on.
    Pipe,
    /// There is none.
    Nothing,
}

impl Feed {
    pub(crate) fn of(plan: &Plan, rank: usize) -> Feed {
        let chosen = match plan.stdin {
            Stdin::None => false,
            Stdin::All => true,
            Stdin::Rank(reader) => reader == rank || plan.one_process(),
        };
        let alone = plan.stdin != Stdin::All || plan.processes().nth(1).is_none();
        match (chosen, io::stdin().is_terminal()) {
            (false, _) => Feed::Nothing,
            // Ranks run in process groups of their own, which a terminal lets write but not read.
            (true, true) if in_foreground() => Feed::Pipe,
            (true, true) => Feed::Nothing,
            (true, false) if alone => Feed::Inherit,
            (true, false) => Feed::Pipe,
        }
    }

    pub(crate) fn stdio(self) -> Stdio {
        match self {
            Feed::Inherit => Stdio::inherit(),
            Feed::Pipe => Stdio::piped(),
            Feed::Nothing => Stdio::null(),
        }
    }
}

/// Reading a terminal from the background would stop the launcher.
fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Copies standard input to every pipe, until it ends or nobody reads any more. Each pipe has a
/// thread and a queue of its own: a rank that does not read holds up no other.
pub(crate) fn forward(pipes: Vec<ChildStdin>) -> Result<(), Error> {
    if pipes.is_empty() {
        return Ok(());
    }
    let failed = |error| Error::system("start passing on standard input", error);
    let mut queues = Vec::new();
    for mut pipe in pipes {
        let (sender, receiver) = unbounded::<Arc<[u8]>>();
        let work = move || {
            for data in receiver {
                if pipe.write_all(&data).is_err() {
                    break;
                }
            }
        };
        spawn("stdin writer", work).map_err(failed)?;
        queues.push(sender);
    }
    // An input that cannot be read ends for the ranks: dropping the queues closes their pipes.
    spawn("stdin reader", || drop(copy(queues))).map_err(failed)
}

fn copy(mut queues: Vec<Sender<Arc<[u8]>>>) -> io::Result<()> {
    // A handle without a buffer of its own: what a person types is passed on at once.
    let mut input = File::from(rustix::io::dup(rustix::stdio::stdin())?);
    let mut buffer = vec![0; 64 << 10];
    while !queues.is_empty() {
        let count = match input.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let data: Arc<[u8]> = buffer[..count].into();
        queues.retain(|queue| count > 0 && queue.send(data.clone()).is_ok());
    }
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = std::thread::Builder::new().name(name.into()).stack_size(64 << 10);
    builder.spawn(work).map(drop)
}
