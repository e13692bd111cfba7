//! The rows of a trace, and their names.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::Mutex;

use super::clocks::Alignment;
use super::event::{escaped, us};

/// Rows that are no rank's have numbers from here on.
const OTHERS: u32 = 1 << 24;

/// The rows of a process. One that nobody needs any more is used again under the same name.
pub(super) struct Rows {
    pid: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By name, how often it is there.
    named: HashMap<String, usize>,
    free: HashMap<String, Vec<u32>>,
    others: u32,
    process_is_named: bool,
    /// Lines that are not in the file yet.
    lines: Vec<String>,
}

impl Rows {
    pub(super) fn new(pid: u32) -> Rows {
        Rows { pid, state: Mutex::default() }
    }

    /// A row with this name; the first one has this number, if one is given.
    pub(super) fn open(&self, name: &str, number: Option<u32>) -> u32 {
        let mut state = self.state.lock();
        if let Some(row) = state.free.get_mut(name).and_then(Vec::pop) {
            return row;
        }
        let before = *state.named.entry(name.into()).and_modify(|count| *count += 1).or_insert(0);
        let row = number.filter(|_| before == 0).unwrap_or_else(|| {
            state.others += 1;
            OTHERS + state.others
        });
        let (what, shown) = ("thread_name", escaped(name));
        state.lines.push(self.line(what, row, &format!("\"name\":\"{shown}\"")));
        state.lines.push(self.line("thread_sort_index", row, &format!("\"sort_index\":{row}")));
        row
    }

    pub(super) fn close(&self, name: &str, row: u32) {
        self.state.lock().free.entry(name.into()).or_default().push(row);
    }

    /// Calls the process by its ranks, if that was not done before.
    pub(super) fn name_process(&self, ranks: &Range<usize>) {
        let mut state = self.state.lock();
        if !state.process_is_named {
            state.process_is_named = true;
            let (first, last) = (ranks.start, ranks.end.saturating_sub(1));
            let name = match first == last {
                true => format!("rank {first}"),
                false => format!("ranks {first} to {last}"),
            };
            let named = format!("\"name\":\"{name}\"");
            state.lines.push(self.line("process_name", 0, &named));
            let sorted = format!("\"sort_index\":{first}");
            state.lines.push(self.line("process_sort_index", 0, &sorted));
        }
    }

    /// Says how well the time of the process is known.
    pub(super) fn label(&self, alignment: &Alignment) -> String {
        let (error, shift) = alignment.error_and_shift_ns();
        let label = format!("its host's clock is aligned to within {} us", us(error));
        let numbers = format!("\"clock_error_ns\":{error},\"clock_shift_ns\":{shift}");
        self.line("process_labels", 0, &format!("\"labels\":\"{label}\",{numbers}"))
    }

    fn line(&self, what: &str, row: u32, args: &str) -> String {
        let pid = self.pid;
        format!(
            "{{\"ts\":0,\"ph\":\"M\",\"pid\":{pid},\"tid\":{row},\"name\":\"{what}\",\"args\":{{{args}}}}}"
        )
    }

    /// What the file is to say of rows that are new.
    pub(super) fn take_names(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().lines)
    }
}
