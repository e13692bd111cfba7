//! What is written down, as it is kept until it becomes lines of the file.

use std::fmt::Write;
use std::panic::Location;

use super::label::Label;
use crate::algorithm::Algorithm;
use crate::call::{Call, Description, Form, Kind};
use crate::element::DType;

/// A call, as it was made.
#[derive(Clone, Copy)]
pub(crate) struct TracedCall {
    kind: Kind,
    form: Form,
    way: Option<Algorithm>,
    dtype: Option<DType>,
    op: Option<&'static str>,
    count: usize,
    root: Option<usize>,
    tag: Option<u32>,
    site: &'static Location<'static>,
}

/// A task, as it begins.
#[derive(Clone, Copy, Debug)]
pub struct TracedTask {
    /// Its name, if it has one.
    pub name: Option<Label>,
    /// The line that has spawned it.
    pub site: &'static Location<'static>,
    /// The rank that it belongs to.
    pub rank: usize,
    /// For how long it has waited in a queue.
    pub queued_ns: u64,
}

/// Where something happened in a trace.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub(super) row: u32,
    pub(super) ns: u64,
}

/// How a task has ended.
#[derive(Clone, Copy, Debug)]
pub enum TaskEnd {
    /// With a value.
    Value,
    /// By an error or a panic, of its own or of a task that it needs.
    Failed,
    /// Before it began.
    Cancelled,
}

#[derive(Clone, Copy)]
pub(crate) enum What {
    Call(TracedCall),
    /// With its end, once that is known.
    Task(TracedTask, Option<TaskEnd>),
}

/// Which part of a whole that was cut.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// From 1 on.
    pub(super) number: u32,
    /// When the whole began.
    pub(super) since_ns: u64,
    pub(super) is_last: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Event {
    /// A bar, from one time to another.
    Bar { row: u32, what: What, part: Part, start_ns: u64, end_ns: u64 },
    /// What goes on beside the bars of its row, and has this number.
    Beside { row: u32, what: What, number: u64, start_ns: u64, end_ns: u64 },
    /// From the end of one bar to the start of another one.
    Arrow { number: u64, from: Moment, to: Moment },
}

impl TracedCall {
    pub(crate) fn new(call: &Call<'_>, way: Option<Algorithm>) -> TracedCall {
        let Call { kind, form, dtype, op, count, root, tag, site, .. } = *call;
        let (dtype, op) = (dtype.copied(), op.map(|op| op.name()));
        TracedCall { kind, form, way, dtype, op, count, root, tag, site }
    }
}

impl What {
    /// Its name, and what is said of it.
    fn said(&self) -> (String, String) {
        match self {
            What::Call(call) => {
                let dtype = call.dtype.map(|dtype| dtype.to_string());
                let said = Description {
                    kind: call.kind,
                    form: call.form,
                    dtype: dtype.as_deref(),
                    op: call.op,
                    count: call.count,
                    root: call.root,
                    tag: call.tag,
                    file: call.site.file(),
                    line: call.site.line(),
                    origin: None,
                };
                let mut args = format!("\"call\":\"{}\"", escaped(&said.to_string()));
                if let Some(way) = call.way {
                    let _ = write!(args, ",\"algorithm\":\"{}\"", way.name());
                }
                (said.name(), args)
            }
            What::Task(task, end) => {
                let line = format!("{}:{}", task.site.file(), task.site.line());
                let name = task.name.map_or_else(|| format!("task {line}"), |it| it.to_string());
                let (spawned, queued) = (escaped(&line), us(task.queued_ns));
                let mut args = format!(
                    "\"rank\":{},\"spawned\":\"{spawned}\",\"queued_us\":{queued}",
                    task.rank
                );
                let end = match end {
                    None => "suspended",
                    Some(TaskEnd::Value) => "value",
                    Some(TaskEnd::Failed) => "failed",
                    Some(TaskEnd::Cancelled) => "cancelled",
                };
                let _ = write!(args, ",\"end\":\"{end}\"");
                (name, args)
            }
        }
    }

    fn category(&self) -> &'static str {
        match self {
            What::Call(_) => "call",
            What::Task(..) => "task",
        }
    }
}

impl Event {
    pub(super) fn row(&self) -> u32 {
        match self {
            Event::Bar { row, .. } | Event::Beside { row, .. } => *row,
            Event::Arrow { to, .. } => to.row,
        }
    }

    /// Adds its lines.
    pub(super) fn lines(&self, pid: u32, lines: &mut Vec<String>) {
        match *self {
            Event::Bar { row, what, part, start_ns, end_ns } => {
                let ((name, mut args), cat) = (what.said(), what.category());
                if part.number > 1 || !part.is_last {
                    let _ = write!(args, ",\"part\":{}", part.number);
                    if part.is_last {
                        let all = us(end_ns.saturating_sub(part.since_ns));
                        let _ = write!(args, ",\"all_parts_us\":{all}");
                    }
                }
                let (ts, dur) = (us(start_ns), us(end_ns.saturating_sub(start_ns)));
                lines.push(format!(
                    "{{\"ts\":{ts},\"ph\":\"X\",\"dur\":{dur},\"pid\":{pid},\"tid\":{row},\
                     \"cat\":\"{cat}\",\"name\":\"{}\",\"args\":{{{args}}}}}",
                    escaped(&name)
                ));
            }
            Event::Beside { row, what, number, start_ns, end_ns } => {
                let (name, args) = what.said();
                for (ph, at) in [("b", start_ns), ("e", end_ns)] {
                    lines.push(format!(
                        "{{\"ts\":{},\"ph\":\"{ph}\",\"id\":\"0x{number:x}\",\"pid\":{pid},\
                         \"tid\":{row},\"cat\":\"started\",\"name\":\"{}\",\"args\":{{{args}}}}}",
                        us(at),
                        escaped(&name)
                    ));
                }
            }
            Event::Arrow { number, from, to } => {
                // Within the bars that it joins.
                let ends = [("s", from.row, from.ns - 1), ("f\",\"bp\":\"e", to.row, to.ns + 1)];
                for (ph, row, at) in ends {
                    lines.push(format!(
                        "{{\"ts\":{},\"ph\":\"{ph}\",\"id\":\"0x{number:x}\",\"pid\":{pid},\
                         \"tid\":{row},\"cat\":\"needs\",\"name\":\"needs\"}}",
                        us(at)
                    ));
                }
            }
        }
    }
}

/// Nanoseconds in microseconds, exactly.
pub(super) fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// A text as it stands in JSON. (The crate for that would make `x == y` ambiguous in programs of
/// users: it compares numbers with values of its own.)
pub(super) fn escaped(text: &str) -> String {
    let one = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c < ' ' => format!("\\u{:04x}", c as u32),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("a \"b\" \\ ü\n"), "a \\\"b\\\" \\\\ ü\\u000a");
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(
            [us(0), us(999), us(1_000), us(12_345_067)],
            ["0.000", "0.999", "1.000", "12345.067"]
        );
    }
}
