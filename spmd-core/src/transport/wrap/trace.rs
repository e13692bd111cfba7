//! A transport that writes down every call, for a picture of who did what when.
//!
//! The file is in the trace event format that `chrome://tracing` and <https://ui.perfetto.dev>
//! show: a row for each rank, a bar for each call.

use std::fs::File;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::{Call, Description, Kind};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::transport::Transport;
use crate::transport::message::{Arrived, Envelope, Manner, Pending, Wanted};
use crate::transport::shared::agents::Waiter;

/// Calls that a rank keeps before it writes them to the file.
const BATCH: usize = 4096;

/// The file that all ranks of a job write to.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    file: File,
}

impl TraceFile {
    /// Opens the file: anew, or, where others of the same job write to it (`shared`), to add to
    /// what is there.
    ///
    /// Errors: it cannot be written.
    pub(crate) fn open(path: &Path, shared: bool) -> Result<TraceFile> {
        let system = |error| Error::system(format!("writing the trace {}", path.display()), error);
        let mut file = File::options().create(true).append(true).open(path).map_err(system)?;
        if !shared {
            file.set_len(0).map_err(system)?;
        }
        if !shared || file.metadata().map_err(system)?.len() == 0 {
            // The format allows for a list without an end.
            file.write_all(b"[\n").map_err(system)?;
        }
        Ok(TraceFile { path: path.into(), file })
    }

    /// One write a batch: those of several processes do not mix.
    fn write(&self, text: &str) {
        if let Err(error) = (&self.file).write_all(text.as_bytes()) {
            eprintln!("spmd: the trace {} is not complete: {error}", self.path.display());
        }
    }
}

/// One call, as it was made.
#[derive(Clone, Copy)]
struct Event {
    kind: Kind,
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
        let text: String = events.drain(..).map(|event| event.line(self.rank)).collect();
        self.file.write(&text);
    }
}

impl Event {
    fn line(&self, rank: usize) -> String {
        let dtype = self.dtype.map(|dtype| dtype.to_string());
        let call = Description {
            kind: self.kind,
            dtype: dtype.as_deref(),
            op: self.op,
            count: self.count,
            root: self.root,
            tag: self.tag,
            file: self.site.file(),
            line: self.site.line(),
        };
        let (name, what) = (self.kind.name(), escaped(&call.to_string()));
        let (start, took) = (self.start_ns as f64 / 1e3, self.took_ns as f64 / 1e3);
        let pid = std::process::id();
        let way =
            self.way.map_or_else(String::new, |way| format!(",\"algorithm\":\"{}\"", way.name()));
        format!(
            "{{\"name\":\"{name}\",\"ph\":\"X\",\"ts\":{start:.3},\"dur\":{took:.3},\"pid\":{pid},\
             \"tid\":{rank},\"args\":{{\"call\":\"{what}\"{way}}}}},\n"
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
        let Call { kind, dtype, op, count, root, tag, site, .. } = *call;
        let took_ns = crate::transport::shared::clock_ns() - start_ns;
        let op = op.map(|op| op.name());
        let event = Event { kind, way, dtype, op, count, root, tag, site, start_ns, took_ns };
        let mut events = self.events.lock();
        events.push(event);
        if events.len() >= BATCH {
            self.write(&mut events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("a \"b\" \\ ü\n"), "a \\\"b\\\" \\\\ ü\\u000a");
    }
}
