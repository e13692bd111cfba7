//! The ranks' output: one thread reads every pipe and puts what comes, line by line, on the
//! launcher's streams.

pub(crate) mod files;
mod repeats;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::Sender;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::Error;
use crate::event::Event;
use crate::lines::{Assembler, Piece, Style, split_mark};
use crate::plan::Plan;
use crate::streams::Streams;
use crate::topology::Cpus;
use repeats::{At, Repeats};

/// Whether output goes through the launcher. A process that is alone and needs no marks writes to
/// the launcher's own output, which it can then see to be a terminal.
pub(crate) fn captured(plan: &Plan) -> bool {
    plan.processes().nth(1).is_some()
        || plan.tag
        || plan.timestamps
        || plan.output_dir.is_some()
        || plan.show_ranks.is_some()
}

/// How long a part of a line waits for the line's end, or for a moment in which nobody else prints.
const PART: Duration = Duration::from_millis(50);
/// How long it waits while others print, whose lines then break it.
const PART_AMONG_OTHERS: Duration = Duration::from_millis(500);
/// How often a pipe is read once the job is over. It holds at most 16 buffers of ours, and what has
/// it open by then may write for ever.
const LAST_READS: usize = 17;
/// Bytes that unfinished lines take in all. Where they would take more, parts of lines do not wait.
const UNFINISHED: usize = 32 << 20;

/// Everything the reading thread needs, gathered while processes are started.
pub(crate) struct Output {
    sources: Vec<Source>,
    marks: Marks,
}

/// What is done to lines, and where they go.
struct Marks {
    style: Style,
    show: Option<Cpus>,
    /// Lines come from several ranks of one process, marked by the library.
    marked: bool,
    to_files: bool,
    /// Whether standard output and standard error show colours.
    colours: [bool; 2],
    streams: Streams,
    /// What processes have written alike, unless all of it is wanted.
    repeats: Option<RefCell<Repeats>>,
}

/// What one process writes to one stream.
struct Source {
    pipe: File,
    /// Differs from that of every other source.
    number: usize,
    rank: usize,
    /// Standard output (0) or standard error (1).
    stream: usize,
    /// Whether anything of it may be shown.
    shown: bool,
    lines: Assembler,
    /// Whose line it is in.
    line_of: Option<usize>,
    /// In which error that others write as well.
    at: At,
    file: Option<File>,
    /// How often it is read from now on, once the job is over.
    reads_left: usize,
}

/// The running thread; dropping it tells the thread to take what is there and end.
pub(crate) struct Reader {
    stop: Arc<AtomicBool>,
    streams: Streams,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.streams.bell().ring();
    }
}

impl Output {
    pub(crate) fn new(plan: &Plan, streams: &Streams) -> Result<Output, Error> {
        files::folder(plan)?;
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let marks = Marks {
            style: Style {
                tag: plan.tag,
                timestamps: plan.timestamps,
                width: plan.digits(),
                process: plan.programs[0].file_name(),
            },
            show: plan.show_ranks.clone(),
            marked: plan.one_process() && plan.size > 1,
            to_files: plan.output_dir.is_some(),
            colours: [io::stdout().is_terminal(), io::stderr().is_terminal()]
                .map(|terminal| colours && terminal),
            streams: streams.clone(),
            repeats: (!plan.verbose).then(RefCell::default),
        };
        Ok(Output { sources: Vec::new(), marks })
    }

    /// Adds the pipes of a started process.
    pub(crate) fn add(&mut self, rank: usize, pipes: [OwnedFd; 2], files: [Option<File>; 2]) {
        let shown = self.marks.marked || self.marks.shows(Some(rank));
        for (stream, (pipe, file)) in pipes.into_iter().zip(files).enumerate() {
            self.sources.push(Source {
                pipe: File::from(pipe),
                number: self.sources.len(),
                rank,
                stream,
                shown,
                lines: Assembler::default(),
                line_of: None,
                at: At::default(),
                file,
                reads_left: LAST_READS,
            });
        }
    }

    /// Starts the thread, which sends [`Event::OutputDone`] when every pipe has ended.
    pub(crate) fn start(mut self, events: Sender<Event>) -> Result<Reader, Error> {
        let stop = Arc::<AtomicBool>::default();
        let reader = Reader { stop: stop.clone(), streams: self.marks.streams.clone() };
        let work = move || {
            self.read_all(&stop);
            // The receiver is gone only when the launcher is ending.
            let _ = events.send(Event::OutputDone);
        };
        let failed = |error| Error::system("start reading output", error);
        std::thread::Builder::new().name("output".into()).spawn(work).map_err(failed)?;
        Ok(reader)
    }

    fn read_all(&mut self, stop: &AtomicBool) {
        let mut buffer = vec![0; 64 << 10];
        while !self.sources.is_empty() {
            // Asked before the looks, so that no stroke of the bell that follows it is missed.
            let stopping = stop.load(Ordering::Acquire);
            let room = [0, 1].map(|stream| self.marks.streams.page(stream).has_room());
            let next = self.pass_on(room);
            let ready = self.wait(room, stopping, next);
            if stopping && !ready.contains(&Some(true)) && !ready.contains(&None) {
                break;
            }
            let now = SystemTime::now();
            let marks = &self.marks;
            let mut unfinished: usize = self.sources.iter().map(|it| it.lines.memory()).sum();
            let mut ready = ready.into_iter();
            self.sources.retain_mut(|source| {
                // Of many that are ready, the first ones may have taken the room.
                if ready.next() != Some(Some(true)) || !source.has_room(marks) {
                    return true;
                }
                source.reads_left -= usize::from(stopping);
                unfinished -= source.lines.memory();
                let open = source.read(marks, &mut buffer, now);
                if unfinished + source.lines.memory() > UNFINISHED {
                    source.give(marks, now, |lines, each| lines.pass_on(each));
                }
                unfinished += source.lines.memory();
                if !open || source.reads_left == 0 {
                    source.end(marks, now);
                }
                open && source.reads_left > 0
            });
        }
        let now = SystemTime::now();
        self.sources.iter_mut().for_each(|source| source.end(&self.marks, now));
        let told = self.marks.repeats.as_ref().map(|repeats| repeats.borrow().told());
        told.iter().flatten().for_each(|line| self.marks.streams.say(line));
    }

    /// Waits until something can be read, or until this time, and says of each source whether it
    /// can be; nothing of one for which there is no room. When `stopping` it waits for room alone.
    fn wait(&self, room: [bool; 2], stopping: bool, until: Option<Instant>) -> Vec<Option<bool>> {
        let bell = self.marks.streams.bell();
        let mut waiting = vec![PollFd::new(bell.descriptor(), PollFlags::IN)];
        let wanted = |source: &Source| !source.shown || room[source.stream];
        waiting.extend(
            self.sources
                .iter()
                .filter(|source| wanted(source))
                .map(|source| PollFd::new(&source.pipe, PollFlags::IN)),
        );
        let all = waiting.len() > self.sources.len();
        let limit = match (stopping && all, until) {
            (true, _) => Some(Duration::ZERO),
            (false, until) => until.map(|at| at.saturating_duration_since(Instant::now())),
        };
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut waiting, limit.as_ref()) {
            Ok(_) => {}
            Err(error) => {
                if error != Errno::INTR {
                    // Short of memory: the ranks wait in the meantime.
                    std::thread::sleep(Duration::from_millis(10));
                }
                return vec![None; self.sources.len()];
            }
        }
        let mut ready = waiting.iter().map(|polled| !polled.revents().is_empty());
        if ready.next() == Some(true) {
            bell.hear();
        }
        self.sources.iter().map(|source| if wanted(source) { ready.next() } else { None }).collect()
    }

    /// Passes on parts of lines that have waited long enough. Returns when the next one will have.
    fn pass_on(&mut self, room: [bool; 2]) -> Option<Instant> {
        let now = Instant::now();
        let mut next = None;
        for source in &mut self.sources {
            let Some(since) = source.lines.waits_since() else { continue };
            if source.shown && !room[source.stream] {
                continue;
            }
            let others = self.marks.streams.page(source.stream).disturbed(source.number);
            let quiet = others.map_or(since, |last| last.max(since)) + PART;
            let due = quiet.min(since + PART_AMONG_OTHERS);
            if now >= due {
                source.give(&self.marks, SystemTime::now(), |lines, each| lines.pass_on(each));
            } else {
                next = next.into_iter().chain([due]).min();
            }
        }
        next
    }
}

impl Source {
    fn has_room(&self, marks: &Marks) -> bool {
        !self.shown || marks.streams.page(self.stream).has_room()
    }

    /// Reads once; says whether there is more to come.
    fn read(&mut self, marks: &Marks, buffer: &mut [u8], now: SystemTime) -> bool {
        match self.pipe.read(buffer) {
            Ok(0) => false,
            Ok(count) => {
                let (read, at) = (&buffer[..count], Instant::now());
                self.give(marks, now, |lines, each| lines.push(read, at, each));
                // Nobody is left to read it: closing the pipe tells the rank, as a shell's would.
                !(marks.streams.page(self.stream).has_no_reader() && self.file.is_none())
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    fn end(&mut self, marks: &Marks, now: SystemTime) {
        self.give(marks, now, |lines, each| lines.finish(each));
    }

    /// Puts what `act` gives where it belongs: among what is shown, into the file, or both.
    fn give(
        &mut self,
        marks: &Marks,
        now: SystemTime,
        act: impl FnOnce(&mut Assembler, &mut dyn FnMut(Piece<'_>)),
    ) {
        let Source { lines, file, line_of, at, number, rank, stream, .. } = self;
        let mut text = Vec::new();
        let mut page = marks.streams.page(*stream);
        act(lines, &mut |piece| {
            let marked = if marks.marked { split_mark(piece.text) } else { (None, piece.text) };
            let begins = piece.begins || marked.0.is_some();
            if begins {
                *line_of = if marks.marked { marked.0 } else { Some(*rank) };
            }
            let (of, part) = (*line_of, marked.1);
            if marks.to_files && file.is_some() {
                if begins {
                    // A rank's line within another's, of which only a part was given.
                    text.extend((!piece.begins).then_some(b'\n'));
                    marks.style.begin(&mut text, of, now, false);
                }
                text.extend_from_slice(part);
                text.extend(piece.ends.then_some(b'\n'));
            }
            // Of a process with several ranks, `main` prints once.
            let is_new = |repeats: &RefCell<Repeats>| {
                *stream == 0
                    || !begins
                    || !piece.ends
                    || repeats.borrow_mut().shows(at, *rank, part)
            };
            if marks.shows(of) && marks.repeats.as_ref().is_none_or(is_new) {
                let colour = marks.colours[*stream];
                let begin = |out: &mut Vec<u8>| marks.style.begin(out, of, now, colour);
                page.put(*number, begins, begin, part, piece.ends);
            }
        });
        drop(page);
        marks.streams.send(*stream);
        if let Some(open) = file
            && let Err(error) = open.write_all(&text)
        {
            let what = format!("cannot write the output of rank {rank}: {error}; its rest is lost");
            marks.streams.lose(what);
            *file = None;
        }
    }
}

impl Marks {
    /// Whether a line of this rank is shown.
    fn shows(&self, rank: Option<usize>) -> bool {
        match (&self.show, rank) {
            (Some(ranks), Some(rank)) => ranks.contains(rank),
            (Some(_), None) => true,
            (None, _) => !self.to_files,
        }
    }
}
