//! The ranks' output: one thread reads every pipe and writes whole lines.

use std::fs::{self, File};
use std::io::{self, IsTerminal, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::SystemTime;

use crossbeam_channel::Sender;
use rustix::event::{PollFd, PollFlags, poll};

use crate::error::Error;
use crate::lines::{Assembler, Style, split_mark};
use crate::plan::Plan;
use crate::supervise::Event;
use crate::topology::Cpus;

/// Whether output goes through the launcher. A process that is alone and needs no marks writes to
/// the launcher's own output, which it can then see to be a terminal.
pub(crate) fn captured(plan: &Plan) -> bool {
    plan.processes().nth(1).is_some()
        || plan.tag
        || plan.timestamps
        || plan.output_dir.is_some()
        || plan.show_ranks.is_some()
}

/// Everything the reading thread needs, gathered while processes are started.
pub(crate) struct Output {
    streams: Vec<Stream>,
    style: Style,
    show: Option<Cpus>,
    /// Lines come from several ranks of one process, marked by the library.
    marked: bool,
    to_files: bool,
    /// Standard output and standard error.
    sinks: [Sink; 2],
}

struct Stream {
    pipe: File,
    rank: usize,
    sink: usize,
    lines: Assembler,
    file: Option<File>,
}

#[derive(Default)]
struct Sink {
    pending: Vec<u8>,
    colour: bool,
    broken: bool,
}

/// The running thread; dropping it tells the thread to take what is there and end.
pub(crate) struct Reader {
    _stop: PipeWriter,
}

impl Output {
    pub(crate) fn new(plan: &Plan) -> Result<Output, Error> {
        if let Some(dir) = &plan.output_dir {
            fs::create_dir_all(dir).map_err(|error| unwritable(dir, error))?;
        }
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let sink = |terminal: bool| Sink { colour: colours && terminal, ..Sink::default() };
        Ok(Output {
            streams: Vec::new(),
            style: Style {
                tag: plan.tag,
                timestamps: plan.timestamps,
                width: digits(plan.size),
                process: plan.programs[0].name.to_string_lossy().into_owned(),
            },
            show: plan.show_ranks.clone(),
            marked: plan.one_process(),
            to_files: plan.output_dir.is_some(),
            sinks: [sink(io::stdout().is_terminal()), sink(io::stderr().is_terminal())],
        })
    }

    /// Makes the files of a process: before it is started, so that what cannot be written stops
    /// the job before it begins.
    pub(crate) fn files(plan: &Plan, rank: usize) -> Result<[Option<File>; 2], Error> {
        let Some(dir) = &plan.output_dir else { return Ok([None, None]) };
        let width = digits(plan.size);
        let who = if plan.one_process() { "ranks".into() } else { format!("rank-{rank:0width$}") };
        let open = |stream: &str| {
            let path = dir.join(format!("{who}.{stream}"));
            File::create(&path).map(Some).map_err(|error| unwritable(&path, error))
        };
        Ok([open("stdout")?, open("stderr")?])
    }

    /// Adds the pipes of a started process.
    pub(crate) fn add(&mut self, rank: usize, pipes: [OwnedFd; 2], files: [Option<File>; 2]) {
        for (sink, (pipe, file)) in pipes.into_iter().zip(files).enumerate() {
            let lines = Assembler::default();
            self.streams.push(Stream { pipe: File::from(pipe), rank, sink, lines, file });
        }
    }

    /// Starts the thread, which sends [`Event::OutputDone`] when every pipe has ended.
    pub(crate) fn start(mut self, events: Sender<Event>) -> Result<Reader, Error> {
        let failed = |error| Error::system("start reading output", error);
        let (stop_seen, stop) = io::pipe().map_err(failed)?;
        let work = move || {
            self.read_all(&stop_seen);
            // The receiver is gone only when the launcher is ending.
            let _ = events.send(Event::OutputDone);
        };
        std::thread::Builder::new().name("output".into()).spawn(work).map_err(failed)?;
        Ok(Reader { _stop: stop })
    }

    fn read_all(&mut self, stop: &PipeReader) {
        let mut buffer = vec![0; 64 << 10];
        let mut stopping = false;
        // A stray descendant of a rank may hold a pipe open, or write, for ever: once stopping,
        // only what is there is taken, and a pipe holds at most 16 buffers of ours.
        let mut rounds_left = 17;
        while !self.streams.is_empty() && rounds_left > 0 {
            let mut waiting: Vec<PollFd<'_>> =
                self.streams.iter().map(|s| PollFd::new(&s.pipe, PollFlags::IN)).collect();
            if !stopping {
                waiting.push(PollFd::new(stop, PollFlags::IN));
            }
            let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            match poll(&mut waiting, stopping.then_some(&at_once)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                // Short of memory: the ranks wait in the meantime.
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
            rounds_left -= usize::from(stopping);
            let mut ready: Vec<bool> = waiting.iter().map(|p| !p.revents().is_empty()).collect();
            if !stopping {
                stopping = ready.pop().unwrap_or(false);
            }
            let now = SystemTime::now();
            let mut open = Vec::with_capacity(self.streams.len());
            for (mut stream, ready) in std::mem::take(&mut self.streams).into_iter().zip(ready) {
                if !ready || self.read(&mut stream, &mut buffer, now) {
                    open.push(stream);
                }
            }
            self.streams = open;
            self.flush();
        }
        let now = SystemTime::now();
        for mut stream in std::mem::take(&mut self.streams) {
            self.end(&mut stream, now);
        }
        self.flush();
    }

    /// Reads once; says whether the stream is still open.
    fn read(&mut self, stream: &mut Stream, buffer: &mut [u8], now: SystemTime) -> bool {
        match stream.pipe.read(buffer) {
            Ok(0) => {
                self.end(stream, now);
                false
            }
            Ok(count) => {
                let Stream { rank, sink, lines, file, .. } = stream;
                let mut text = Vec::new();
                lines.push(&buffer[..count], |line| self.line(*rank, *sink, line, now, &mut text));
                save(file, *rank, &text);
                // Nobody is left to read it: closing the pipe tells the rank, as a shell's would.
                !(self.sinks[*sink].broken && file.is_none())
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    fn end(&mut self, stream: &mut Stream, now: SystemTime) {
        let Stream { rank, sink, lines, file, .. } = stream;
        let mut text = Vec::new();
        lines.finish(|line| self.line(*rank, *sink, line, now, &mut text));
        save(file, *rank, &text);
    }

    /// Puts one line where it belongs: among what is shown, in the text for the file, or both.
    fn line(&mut self, rank: usize, sink: usize, line: &[u8], now: SystemTime, text: &mut Vec<u8>) {
        let (rank, line) = if self.marked { split_mark(line) } else { (Some(rank), line) };
        if self.to_files {
            self.style.write(text, rank, now, false, line);
        }
        let shown = match (&self.show, rank) {
            (Some(ranks), Some(rank)) => ranks.contains(rank),
            (Some(_), None) => true,
            (None, _) => !self.to_files,
        };
        let sink = &mut self.sinks[sink];
        if shown && !sink.broken {
            self.style.write(&mut sink.pending, rank, now, sink.colour, line);
        }
    }

    fn flush(&mut self) {
        let [out, err] = &mut self.sinks;
        out.flush(io::stdout().lock());
        err.flush(io::stderr().lock());
    }
}

impl Sink {
    fn flush(&mut self, mut to: impl Write) {
        if !self.pending.is_empty() {
            self.broken |= to.write_all(&self.pending).and_then(|()| to.flush()).is_err();
            self.pending.clear();
        }
    }
}

fn save(file: &mut Option<File>, rank: usize, text: &[u8]) {
    if let Some(open) = file
        && let Err(error) = open.write_all(text)
    {
        crate::report::say(&format!("cannot write the output of rank {rank}: {error}"));
        *file = None;
    }
}

fn unwritable(path: &Path, error: io::Error) -> Error {
    Error::Usage(format!("--output-dir: cannot write {}: {error}", path.display()))
}

fn digits(size: usize) -> usize {
    (size - 1).to_string().len()
}
