//! Standard input for the ranks.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::args::Stdin;
use crate::error::Error;
use crate::plan::Plan;
use crate::signals;

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
    foreground_is_ours() == Some(true)
}

/// Whether the terminal's foreground is this process's group; `None` where input is from none.
fn foreground_is_ours() -> Option<bool> {
    let group = rustix::termios::tcgetpgrp(io::stdin()).ok()?;
    Some(group == rustix::process::getpgrp())
}

/// How often to look whether the launcher is back in the foreground.
const LOOK: Duration = Duration::from_millis(100);

/// Copies standard input to every pipe, until it ends or nobody reads any more. A rank that does
/// not read holds up no other before it is [`MOST`] bytes behind; then all wait until it reads on
/// or ends.
pub(crate) fn forward(pipes: Vec<ChildStdin>) -> Result<(), Error> {
    if pipes.is_empty() {
        return Ok(());
    }
    let failed = |error: io::Error| Error::system("start passing on standard input", error);
    // A handle without a buffer of its own: what a person types is passed on at once.
    let input = File::from(rustix::io::dup(rustix::stdio::stdin()).map_err(|e| failed(e.into()))?);
    let mut readers = Vec::new();
    for pipe in pipes {
        // It concerns this end alone: the rank's own reads wait as they should.
        rustix::io::ioctl_fionbio(&pipe, true).map_err(|error| failed(error.into()))?;
        readers.push(Follower { pipe, at: 0 });
    }
    let mut copy = Copy { input: Some(input), kept: VecDeque::new(), start: 0, readers };
    let builder = std::thread::Builder::new().name("stdin".into());
    let work = move || {
        signals::survive_terminal_reads();
        copy.run();
    };
    builder.spawn(work).map(drop).map_err(failed)
}

/// Bytes that are kept for the rank that is the furthest behind.
const MOST: usize = 16 << 20;

/// Standard input on its way to the ranks.
struct Copy {
    /// Until it ends; what cannot be read ends for the ranks, too.
    input: Option<File>,
    /// What some rank has not got yet.
    kept: VecDeque<u8>,
    /// How many bytes came before those.
    start: u64,
    readers: Vec<Follower>,
}

/// A rank that gets the input.
struct Follower {
    pipe: ChildStdin,
    /// How many bytes it has got.
    at: u64,
}

impl Copy {
    fn run(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        while !self.readers.is_empty() {
            let end = self.start + self.kept.len() as u64;
            if self.input.is_none() {
                // Dropping a pipe tells the rank that no more comes.
                self.readers.retain(|reader| reader.at < end);
            }
            let input = self.input.as_ref().filter(|_| self.kept.len() < MOST);
            let mut waiting: Vec<PollFd<'_>> = Vec::with_capacity(self.readers.len() + 1);
            waiting.extend(input.map(|input| PollFd::new(input, PollFlags::IN)));
            let reads = waiting.len();
            waiting.extend(self.readers.iter().map(|reader| {
                // Without a wish, too, it is told when nobody reads the pipe any more.
                let wish = if reader.at < end { PollFlags::OUT } else { PollFlags::empty() };
                PollFd::new(&reader.pipe, wish)
            }));
            if poll(&mut waiting, None).is_err() {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            let ready: Vec<bool> = waiting.iter().map(|it| !it.revents().is_empty()).collect();
            let (input, pipes) = ready.split_at(reads);
            if input == [true] {
                self.read(&mut buffer);
            }
            let mut ready = pipes.iter();
            let (kept, start) = (&self.kept, self.start);
            self.readers
                .retain_mut(|reader| ready.next() != Some(&true) || reader.follow(kept, start));
            let least = self.readers.iter().map(|reader| reader.at).min();
            let passed = least.map_or(0, |least| (least - self.start) as usize);
            self.kept.drain(..passed);
            self.start += passed as u64;
        }
    }

    fn read(&mut self, buffer: &mut [u8]) {
        let Some(input) = &mut self.input else { return };
        match input.read(buffer) {
            Ok(count) if count > 0 => self.kept.extend(&buffer[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) => {}
            // What is typed in the meantime is for others.
            Err(_) if foreground_is_ours() == Some(false) => std::thread::sleep(LOOK),
            _ => self.input = None,
        }
    }
}

impl Follower {
    /// Passes on what the pipe takes; `false` when nobody reads it any more.
    fn follow(&mut self, kept: &VecDeque<u8>, start: u64) -> bool {
        if self.at == start + kept.len() as u64 {
            // With nothing to write it is ready only because nobody reads.
            return false;
        }
        let (first, second) = kept.as_slices();
        let mut skip = (self.at - start) as usize;
        for part in [first, second] {
            let mut part = part.get(skip.min(part.len())..).unwrap_or_default();
            skip = skip.saturating_sub(first.len());
            while !part.is_empty() {
                match self.pipe.write(part) {
                    Ok(count) => {
                        self.at += count as u64;
                        part = &part[count..];
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
                }
            }
        }
        true
    }
}
