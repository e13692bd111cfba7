//! The machine: what it is, what bounds every transport on it, and what else it does.

use std::fs;

use serde_json::{Value, json};

use super::run;
use crate::tools::{self, built};

/// Copies that spmd-perf measures, and what they are.
const COPIES: [(&str, &str); 4] = [
    ("copy_own_64kib_us", "64 KiB that a core has written itself, copied"),
    ("copy_other_64kib_us", "64 KiB that the other core has just written, copied by both at once"),
    ("copy_own_1mib_us", "1 MiB that a core has written itself, copied"),
    ("copy_other_1mib_us", "1 MiB that the other core has just written, copied by both at once"),
];

pub(super) struct Machine {
    pub(super) about: String,
    pub(super) date: String,
    /// Processes that were running besides, on average over a minute, before and after.
    load: [String; 2],
    memcpy: Vec<f64>,
    cache_line: Vec<f64>,
    /// Microseconds to copy bytes that a core, or another, has just written, by what spmd-perf
    /// calls them.
    copies: [Vec<f64>; COPIES.len()],
    failure: Option<String>,
}

impl Machine {
    pub(super) fn look() -> Machine {
        let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
        let system = said("uname", &["-srm"]);
        Machine {
            about: format!("{cores} cores of {}, {system}", processor()),
            date: said("date", &["+%Y-%m-%d"]),
            load: [load(), String::new()],
            memcpy: Vec::new(),
            cache_line: Vec::new(),
            copies: Default::default(),
            failure: None,
        }
    }

    /// Measures what bounds all, once.
    pub(super) fn measure(&mut self) {
        let options = ["-n", "2", "--as", "threads", "--bind", "core"];
        let mut command = tools::command(built("release").join("spmdrun"), &options);
        command.arg(built("release").join("spmd-perf")).arg("machine");
        match run::json_of(command) {
            Ok(line) => {
                let number = |key: &str| line.get(key).and_then(Value::as_f64);
                self.memcpy.extend(number("memcpy_1mib_gbps"));
                self.cache_line.extend(number("cache_line_one_way_ns"));
                for ((key, _), times) in COPIES.iter().zip(&mut self.copies) {
                    times.extend(number(key));
                }
            }
            Err(failure) => self.failure = Some(failure),
        }
    }

    pub(super) fn end(&mut self) {
        self.load[1] = load();
    }

    /// The rate of `memcpy` at 1 MiB, GB/s.
    pub(super) fn memcpy(&self) -> Option<f64> {
        median(&self.memcpy)
    }

    /// A cache line from one core to the other, ns.
    pub(super) fn cache_line(&self) -> Option<f64> {
        median(&self.cache_line)
    }

    pub(super) fn markdown(&self) -> String {
        let [before, after] = &self.load;
        let mut text = format!(
            "Machine: {}. Load average {before} before, {after} after; what belongs to the \
             measurement is in the second.\n\n",
            self.about
        );
        if let (Some(memcpy), Some(line)) = (self.memcpy(), self.cache_line()) {
            text.push_str(&format!(
                "- `memcpy` of 1 MiB: {memcpy:.1} GB/s\n- a cache line one way between two \
                 cores: {line:.0} ns\n"
            ));
        }
        for ((_, what), times) in COPIES.iter().zip(&self.copies) {
            if let Some(micros) = median(times) {
                text.push_str(&format!("- {what}: {micros:.1} µs\n"));
            }
        }
        if let Some(failure) = &self.failure {
            text.push_str(&format!("- its bounds could not be measured: {failure}\n"));
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "about": self.about, "date": self.date, "load_before": self.load[0],
            "load_after": self.load[1], "memcpy_1mib_gbps": self.memcpy(),
            "cache_line_one_way_ns": self.cache_line(),
            "copies_us": COPIES.iter().zip(&self.copies)
                .map(|((key, _), times)| json!({ *key: median(times) })).collect::<Vec<_>>(),
        })
    }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    model
        .map_or("an unknown processor", |name| name.trim_start_matches(['\t', ' ', ':']))
        .to_owned()
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

fn said(program: &str, arguments: &[&str]) -> String {
    let text = tools::output(tools::command(program, arguments));
    text.map_or("unknown".into(), |text| text.trim().to_owned())
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
