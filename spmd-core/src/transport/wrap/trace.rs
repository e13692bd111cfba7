//! A transport that writes down every call, for a picture of who did what when.
//!
//! The file is in the trace event format that `chrome://tracing` and <https://ui.perfetto.dev>
//! show: a row for each rank, a bar for each call. It is one JSON list with a line for each call,
//! complete after every write, whoever of the job has written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::{Call, Description, Form, Kind};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::fault::say;
use crate::transport::Transport;
use crate::transport::message::{Arrived, Envelope, Manner, Pending, Wanted};
use crate::transport::shared::agents::Waiter;

/// Calls that a rank keeps before it writes them to the file.
const BATCH: usize = 4096;

/// The file that all ranks of a job write to.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    /// Locked against other ranks of this process; the file's own lock is against other processes.
    file: Mutex<File>,
}

/// A trace without calls.
const EMPTY: &str = "[\n]\n";
/// The end of every other one.
const END: &str = "\n]\n";

impl TraceFile {
    /// Opens the file: anew, or, where others of the same job write to it (`shared`), to add to
    /// the list that is there.
    ///
    /// Errors: it cannot be written.
    pub(crate) fn open(path: &Path, shared: bool) -> Result<TraceFile> {
        let system = |error| Error::system(format!("writing the trace {}", path.display()), error);
        let mut options = File::options();
        let file = options.create(true).truncate(false).read(true).write(true).open(path);
        let mut file = file.map_err(system)?;
        locked(&mut file, |file| {
            if !shared {
                file.set_len(0)?;
            }
            if file.metadata()?.len() == 0 { file.write_all(EMPTY.as_bytes()) } else { Ok(()) }
        })
        .map_err(system)?;
        Ok(TraceFile { path: path.into(), file: Mutex::new(file) })
    }

    /// Adds lines to the list, which they take a comma and an end of line between.
    fn write(&self, lines: &str) {
        if lines.is_empty() {
            return;
        }
        if let Err(error) = locked(&mut self.file.lock(), |file| add(file, lines)) {
            say(format_args!("the trace {} is not complete: {error}", self.path.display()));
        }
    }
}

/// Does something with the file that other processes must not do meanwhile, where the file system
/// can see to that.
fn locked(file: &mut File, work: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let has_lock = file.lock().is_ok();
    let outcome = work(file);
    if has_lock {
        file.unlock()?;
    }
    outcome
}

fn add(file: &mut File, lines: &str) -> io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    let (before, start) = match length == EMPTY.len() as u64 {
        true => ("", 2),
        false => (",\n", length.saturating_sub(END.len() as u64)),
    };
    let mut end = String::new();
    file.seek(SeekFrom::Start(length.saturating_sub(END.len() as u64)))?;
    file.read_to_string(&mut end)?;
    if end != END {
        return Err(io::Error::other("something else has been written to it"));
    }
    file.seek(SeekFrom::Start(start))?;
    file.write_all(format!("{before}{lines}{END}").as_bytes())
}

/// One call, as it was made.
#[derive(Clone, Copy)]
struct Event {
    kind: Kind,
    form: Form,
    way: Option<Algorithm>,
    dtype: Option<DType>,
    op: Option<&'static str>,
    count: usize,
    root: Option<usize>,
    tag: Option<u32>,
    site: &'static Location<'static>,
    start_ns: u64,
    took_ns: u64,
}

/// Writes down the calls of one rank.
pub(crate) struct Traced {
    inner: Arc<dyn Transport>,
    rank: usize,
    file: Arc<TraceFile>,
    events: Mutex<Vec<Event>>,
}

impl Traced {
    pub(crate) fn new(inner: Arc<dyn Transport>, rank: usize, file: Arc<TraceFile>) -> Traced {
        Traced { inner, rank, file, events: Mutex::default() }
    }

    fn write(&self, events: &mut Vec<Event>) {
        let lines: Vec<String> = events.drain(..).map(|event| event.line(self.rank)).collect();
        self.file.write(&lines.join(",\n"));
    }
}

impl Event {
    fn line(&self, rank: usize) -> String {
        let dtype = self.dtype.map(|dtype| dtype.to_string());
        let call = Description {
            kind: self.kind,
            form: self.form,
            dtype: dtype.as_deref(),
            op: self.op,
            count: self.count,
            root: self.root,
            tag: self.tag,
            file: self.site.file(),
            line: self.site.line(),
            origin: None,
        };
        let (name, what) = (call.name(), escaped(&call.to_string()));
        let (start, took) = (self.start_ns as f64 / 1e3, self.took_ns as f64 / 1e3);
        let pid = std::process::id();
        let way =
            self.way.map_or_else(String::new, |way| format!(",\"algorithm\":\"{}\"", way.name()));
        format!(
            "{{\"name\":\"{name}\",\"ph\":\"X\",\"ts\":{start:.3},\"dur\":{took:.3},\"pid\":{pid},\
             \"tid\":{rank},\"args\":{{\"call\":\"{what}\"{way}}}}}"
        )
    }
}

/// A text as it stands in JSON. (The crate for that would make `x == y` ambiguous in programs of
/// users: it compares numbers with values of its own.)
fn escaped(text: &str) -> String {
    let one = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c < ' ' => format!("\\u{:04x}", c as u32),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}

impl Drop for Traced {
    fn drop(&mut self) {
        let mut events = std::mem::take(self.events.get_mut());
        self.write(&mut events);
    }
}

impl Transport for Traced {
    unsafe fn post<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        manner: Manner,
        waiter: &Waiter<'_>,
    ) -> Result<Pending<'a>> {
        // SAFETY: as the caller promises.
        unsafe { self.inner.post(to, envelope, data, manner, waiter) }
    }

    fn take<'a>(&'a self, wanted: &Wanted) -> Result<Option<Arrived<'a>>> {
        self.inner.take(wanted)
    }

    fn peek(&self, wanted: &Wanted) -> Result<Option<Envelope>> {
        self.inner.peek(wanted)
    }

    fn around(&self, call: &Call<'_>, way: Option<Algorithm>, run: &mut dyn FnMut()) {
        let start_ns = crate::transport::shared::clock_ns();
        self.inner.around(call, way, run);
        let Call { kind, form, dtype, op, count, root, tag, site, .. } = *call;
        let took_ns = crate::transport::shared::clock_ns() - start_ns;
        let op = op.map(|op| op.name());
        let event = Event { kind, form, way, dtype, op, count, root, tag, site, start_ns, took_ns };
        let mut events = self.events.lock();
        events.push(event);
        if events.len() >= BATCH {
            self.write(&mut events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("a \"b\" \\ ü\n"), "a \\\"b\\\" \\\\ ü\\u000a");
    }

    #[test]
    fn the_list_is_whole_after_every_write() {
        let name = format!("spmd-trace-{}-\"odd\\\n", std::process::id());
        let path = std::env::temp_dir().join(name);
        let read = || std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "[1").unwrap();
        let first = TraceFile::open(&path, false).unwrap();
        assert_eq!(read(), "[\n]\n");
        first.write("1");
        let second = TraceFile::open(&path, true).unwrap();
        second.write("2,\n3");
        first.write("");
        first.write("4");
        assert_eq!(read(), "[\n1,\n2,\n3,\n4\n]\n");
        // Nothing is added to what is no trace.
        std::fs::write(&path, "mine").unwrap();
        first.write("5");
        assert_eq!(read(), "mine");
        std::fs::remove_file(&path).unwrap();
    }
}
