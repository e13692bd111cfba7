//! A transport that writes down every call, for a picture of who did what when.
//!
//! The file is in the trace event format that `chrome://tracing` and <https://ui.perfetto.dev>
//! show: a row for each rank, a bar for each call. It is one JSON list with a line for each call,
//! complete after every write, whoever of the job has written.

use std::any::Any;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::{Call, Description, Form, Kind};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::trace_file::TraceFile;
use crate::transport::Transport;
use crate::transport::message::{Envelope, MatchPattern, SendMode};
use crate::transport::pending::PendingSend;
use crate::transport::shared::Arrived;
use crate::transport::shared::posted::Arrivals;
use crate::transport::shared::waiter::Waiter;

/// Calls that a rank keeps before it writes them to the file.
const BATCH: usize = 4096;

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
        mode: SendMode,
        waiter: &Waiter<'_>,
    ) -> Result<PendingSend<'a>> {
        // SAFETY: the viewed buffer stays alive and unwritten until what this gives has been
        // completed or dropped (contract of `Transport::post`): it is what `inner` gives.
        unsafe { self.inner.post(to, envelope, data, mode, waiter) }
    }

    fn needs_sender(&self, to: usize) -> bool {
        self.inner.needs_sender(to)
    }

    fn take<'a>(&'a self, pattern: &MatchPattern) -> Result<Option<Arrived<'a>>> {
        self.inner.take(pattern)
    }

    fn peek(&self, pattern: &MatchPattern) -> Result<Option<Envelope>> {
        self.inner.peek(pattern)
    }

    fn send_at_once(&self, to: usize, envelope: &Envelope, data: &View<'_>) -> Result<bool> {
        self.inner.send_at_once(to, envelope, data)
    }

    fn deliver(
        &self,
        arrivals: &Arc<Arrivals>,
        take: &mut dyn FnMut(usize, Arrived<'_>),
    ) -> std::result::Result<(), (Option<usize>, Error)> {
        self.inner.deliver(arrivals, take)
    }

    fn receives(&self, arrived: &Arrived<'_>) -> Result<()> {
        self.inner.receives(arrived)
    }

    unsafe fn fetch(
        &self,
        there: Box<dyn Any + Send>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        // SAFETY: `into` is valid for writes of the envelope's bytes, and nobody else touches these
        // until this returns (contract of `Transport::fetch`): until `inner` has.
        unsafe { self.inner.fetch(there, envelope, into, waiter) }
    }

    fn refuse(&self, there: Box<dyn Any + Send>, envelope: &Envelope, waiter: &Waiter<'_>) {
        self.inner.refuse(there, envelope, waiter);
    }

    fn around(&self, call: &Call<'_>, way: Option<Algorithm>, run: &mut dyn FnMut()) {
        let start_ns = crate::transport::shared::clock_ns();
        self.inner.around(call, way, run);
        let Call { kind, form, dtype, op, count, root, tag, site, .. } = *call;
        let took_ns = crate::transport::shared::clock_ns() - start_ns;
        let (dtype, op) = (dtype.copied(), op.map(|op| op.name()));
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("\"odd\\\n");
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
    }
}
