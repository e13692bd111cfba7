//! Reading a trace, with all that a viewer relies on checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// The row of an event: of which process, and which of its rows.
pub type Row = (u64, u64);

/// A bar: of a call, or of a part of a task.
#[derive(Clone, Debug)]
pub struct Bar {
    pub row: Row,
    pub start: u64,
    pub end: u64,
    pub category: String,
    pub name: String,
    pub args: Value,
}

/// What a file says.
#[derive(Debug, Default)]
pub struct Trace {
    pub bars: Vec<Bar>,
    /// Rows by their names; a row belongs to a process.
    pub rows: BTreeMap<Row, String>,
    pub processes: BTreeMap<u64, String>,
    /// From row to row, with the times.
    pub arrows: Vec<((Row, u64), (Row, u64))>,
    /// How well the time of a process is known, and by how much it was shifted, in nanoseconds.
    pub errors: BTreeMap<u64, u64>,
    pub shifts: BTreeMap<u64, i64>,
    /// What has gone on beside the bars: by number the names, twice each.
    pub beside: BTreeMap<String, Vec<Bar>>,
}

/// Nanoseconds.
fn ns(time: &Value) -> u64 {
    let (whole, part) = time.as_f64().map(|us| (us.trunc(), us.fract())).expect("a time");
    1000 * whole as u64 + (1000.0 * part).round() as u64
}

impl Trace {
    pub fn read(path: &Path) -> Trace {
        let text = std::fs::read_to_string(path).unwrap();
        let events: Vec<Value> = serde_json::from_str(&text).unwrap();
        // A line for each event, which is JSON but for the comma behind it.
        let lines = text.trim_start_matches("[\n").trim_end_matches("\n]\n").lines();
        let lines = lines.map(|line| serde_json::from_str(line.trim_end_matches(',')).unwrap());
        assert_eq!(lines.collect::<Vec<Value>>(), events);
        let mut trace = Trace::default();
        let (mut starts, mut ends) = (BTreeMap::new(), BTreeMap::new());
        for event in events {
            let text = |key: &str| event[key].as_str().map(str::to_owned).unwrap_or_default();
            let row =
                (event["pid"].as_u64().expect("a pid"), event["tid"].as_u64().expect("a tid"));
            let start = ns(&event["ts"]);
            let args = event["args"].clone();
            let bar = |end| {
                let (category, name) = (text("cat"), text("name"));
                Bar { row, start, end, category, name, args: args.clone() }
            };
            match &*text("ph") {
                "M" => {
                    if text("name") == "process_labels" {
                        let error = args["clock_error_ns"].as_u64().expect("an error");
                        trace.errors.insert(row.0, error);
                        let shift = args["clock_shift_ns"].as_i64().expect("a shift");
                        trace.shifts.insert(row.0, shift);
                    }
                    let named = args["name"].as_str().map(str::to_owned);
                    let before = match &*text("name") {
                        "process_name" => trace.processes.insert(row.0, named.expect("a name")),
                        "thread_name" => trace.rows.insert(row, named.expect("a name")),
                        _ => None,
                    };
                    assert_eq!(before, None, "{event}");
                }
                "X" => trace.bars.push(bar(start + ns(&event["dur"]))),
                "b" | "e" => trace.beside.entry(text("id")).or_default().push(bar(start)),
                "s" => assert_eq!(starts.insert(text("id"), (row, start)), None, "{event}"),
                "f" => assert_eq!(ends.insert(text("id"), (row, start)), None, "{event}"),
                _ => panic!("{event}"),
            }
        }
        trace.bars.sort_by_key(|bar| bar.start);
        assert_eq!(starts.keys().collect::<Vec<_>>(), ends.keys().collect::<Vec<_>>());
        trace.arrows = starts.into_values().zip(ends.into_values()).collect();
        trace.check();
        trace
    }

    fn check(&self) {
        for bar in &self.bars {
            assert!(self.rows.contains_key(&bar.row), "a row without a name: {bar:?}");
            assert!(self.processes.contains_key(&bar.row.0), "{bar:?}");
        }
        for row in self.rows.keys() {
            let mut around: Vec<&Bar> = Vec::new();
            for bar in self.bars.iter().filter(|bar| bar.row == *row) {
                around.retain(|outer| outer.end > bar.start);
                if let Some(outer) = around.last() {
                    assert!(outer.start < bar.start && bar.end <= outer.end, "{outer:?} {bar:?}");
                }
                around.push(bar);
            }
        }
        for both in self.beside.values() {
            let [begin, end] = &both[..] else { panic!("{both:?}") };
            assert!(begin.name == end.name && begin.start <= end.start, "{both:?}");
        }
        for (from, to) in &self.arrows {
            assert!(from.1 <= to.1, "{from:?} {to:?}");
            for (row, at) in [from, to] {
                let is_in = |bar: &&Bar| bar.row == *row && (bar.start..=bar.end).contains(at);
                assert!(
                    self.bars.iter().any(|bar| is_in(&bar)),
                    "an arrow without a bar: {row:?} {at}"
                );
            }
        }
    }

    /// What was called in the rows of this name, in order.
    pub fn calls(&self, row: &str) -> Vec<String> {
        let bars = self.bars.iter().filter(|bar| self.rows[&bar.row] == row);
        let calls = bars.filter(|bar| bar.category == "call");
        calls.map(|bar| bar.args["call"].as_str().expect("a call").to_owned()).collect()
    }

    /// The bars of the tasks of this name.
    pub fn tasks(&self, name: &str) -> Vec<&Bar> {
        self.bars.iter().filter(|bar| bar.category == "task" && bar.name == name).collect()
    }

    /// The names of rows that begin like this.
    pub fn rows_of(&self, start: &str) -> BTreeSet<&str> {
        self.rows.values().map(|row| &**row).filter(|row| row.starts_with(start)).collect()
    }

    /// The innermost bar in whose row and time another one lies.
    pub fn around(&self, bar: &Bar) -> Option<&Bar> {
        let is_around =
            |outer: &&Bar| outer.row == bar.row && outer.start < bar.start && bar.end <= outer.end;
        self.bars.iter().filter(is_around).max_by_key(|outer| outer.start)
    }
}
