//! What came out: a table for people, figures for programs, lines for the picture.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::machine::Machine;
use super::programs::our_settings;
use super::rows::{Group, Row, Side};
use super::run::{Contestant, Score};

pub(super) struct Report {
    pub(super) contestants: Vec<Contestant>,
    /// Libraries that could not be had, and why.
    pub(super) absent: Vec<(&'static str, String)>,
    pub(super) rows: Vec<Row>,
    /// Of each contestant, of each row.
    pub(super) scores: Vec<Vec<Score>>,
    pub(super) machine: Machine,
    pub(super) rounds: usize,
}

/// A row for one kind of our ranks.
struct Comparison<'a> {
    row: &'a Row,
    side: Side,
    target: f64,
    ours: &'a Score,
    peers: Vec<(&'a str, &'a Score)>,
}

impl Comparison<'_> {
    /// Our time ÷ the best peer's. For bandwidth, which is bytes by time, that is the peer's ÷
    /// ours.
    fn ratio(&self) -> Option<f64> {
        let peers = self.peers.iter().filter_map(|(_, score)| score.median());
        Some(self.ours.median()? / peers.min_by(f64::total_cmp)?)
    }

    fn met(&self) -> Option<bool> {
        self.ratio().map(|ratio| ratio <= self.target)
    }

    fn markdown(&self) -> String {
        let mut line = format!("| {} ", self.row.title());
        for (_, score) in &self.peers {
            let _ = write!(line, "| {} ", cell(self.row, score));
        }
        let ratio = self.ratio().map_or("–".into(), |ratio| format!("{ratio:.2}"));
        let met = match self.met() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "–",
        };
        let ours = cell(self.row, self.ours);
        let _ = writeln!(line, "| {ours} | {ratio} | ≤ {:.2} | {met} |", self.target);
        line
    }

    fn json(&self) -> Value {
        let peers = self.peers.iter().map(|(name, score)| (name.to_string(), figures(score)));
        json!({
            "group": self.row.group.name(), "row": self.row.title(), "bench": self.row.bench,
            "bytes": self.row.bytes, "iterations": self.row.iterations,
            "as": self.side.mode(), "memory": self.side.memory(), "ours": figures(self.ours),
            "peers": Value::Object(peers.collect()), "ratio": self.ratio(),
            "target": self.target, "met": self.met(),
        })
    }
}

/// The median, or why there is none; as a rate where users look at that.
fn cell(row: &Row, score: &Score) -> String {
    match (&score.failure, score.median()) {
        (Some(failure), _) => failure.replace('|', "/"),
        (None, Some(micros)) => row.rate(micros).unwrap_or_else(|| time(micros) + &hidden(score)),
        (None, None) => "–".into(),
    }
}

/// The share of a call that a computation has hidden, if it was measured beside one.
fn hidden(score: &Score) -> String {
    let share = score.median_line().and_then(|line| line.get("hidden")?.as_f64());
    share.map_or(String::new(), |share| format!(", {:.0} % hidden", share * 100.0))
}

fn figures(score: &Score) -> Value {
    json!({
        "median_us": score.median(), "rounds_us": score.micros, "failure": score.failure,
    })
}

pub(super) fn time(micros: f64) -> String {
    let (value, unit) = match micros {
        0.1..1000.0 => (micros, "µs"),
        1000.0.. => (micros / 1e3, "ms"),
        _ => (micros * 1e3, "ns"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

impl Report {
    fn comparisons(&self, group: Group, side: Side) -> Vec<Comparison<'_>> {
        let ours = self
            .contestants
            .iter()
            .position(|one| matches!(one, Contestant::Ours { side: of, .. } if *of == side));
        let rows = self.rows.iter().enumerate().filter(|(_, row)| row.group == group);
        let compared = rows.filter_map(|(index, row)| {
            let target = row.target(side)?;
            let peers = self.peers().map(|(name, scores)| (name, &scores[index])).collect();
            Some(Comparison { row, side, target, ours: &self.scores[ours?][index], peers })
        });
        compared.collect()
    }

    fn peers(&self) -> impl Iterator<Item = (&str, &Vec<Score>)> {
        let pairs = self.contestants.iter().zip(&self.scores);
        pairs.filter_map(|(contestant, scores)| match contestant {
            Contestant::Peer(peer) => Some((peer.name.as_str(), scores)),
            _ => None,
        })
    }

    fn all(&self) -> impl Iterator<Item = Comparison<'_>> {
        let kinds = Group::ALL.into_iter().flat_map(|group| Side::ALL.map(|side| (group, side)));
        kinds.flat_map(|(group, side)| self.comparisons(group, side))
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "# spmd beside MPI, {}\n\nEach figure is the median over {} interleaved runs of the \
             median time of a call on the slowest rank; the ratio is that of spmd ÷ that of the \
             best of the others. Of rates, the best other's ÷ that of spmd.\n",
            self.machine.date, self.rounds
        );
        for group in Group::ALL {
            for side in Side::ALL {
                self.write_table(&mut text, group, side);
            }
        }
        let met = self.all().filter(|comparison| comparison.met() == Some(true)).count();
        let _ = writeln!(text, "\n{met} of {} targets are met.\n", self.all().count());
        for (library, reason) in &self.absent {
            let _ = writeln!(text, "**{library} is absent**: {reason}\n");
        }
        text.push_str(&self.machine.markdown());
        self.write_bounds(&mut text);
        self.write_settings(&mut text);
        text
    }

    fn write_table(&self, text: &mut String, group: Group, side: Side) {
        let comparisons = self.comparisons(group, side);
        if comparisons.is_empty() {
            return;
        }
        let peers: Vec<&str> = self.peers().map(|(name, _)| name).collect();
        let heads: String = peers.iter().map(|name| format!("| {name} ")).collect();
        let _ = writeln!(text, "\n## {}: {}\n", title_case(group.title()), side.title());
        let _ = writeln!(text, "| {heads}| spmd | ratio | asked | met |");
        let _ = writeln!(text, "|{}", " --- |".repeat(peers.len() + 5));
        comparisons.iter().for_each(|comparison| text.push_str(&comparison.markdown()));
    }

    /// Thread ranks against what the machine can do.
    fn write_bounds(&self, text: &mut String) {
        let threads = self.comparisons(Group::Two, Side::Threads);
        let of = |title: &str| {
            let found = threads.iter().find(|comparison| comparison.row.title() == title);
            found.and_then(|comparison| comparison.ours.median())
        };
        if let (Some(barrier), Some(line)) = (of("barrier"), self.machine.cache_line()) {
            let share = barrier * 1e3 / (2.0 * line);
            let _ = writeln!(
                text,
                "- barrier of two threads: {share:.2} of two such ways (asked: ≤ 1)"
            );
        }
        if let (Some(micros), Some(rate)) = (of("broadcast of 1 MiB"), self.machine.memcpy()) {
            let share = f64::from(1 << 20) / micros / 1e3 / rate;
            let _ = writeln!(
                text,
                "- broadcast of 1 MiB to a thread: {share:.2} of `memcpy` (asked: ≥ 0.70)"
            );
        }
    }

    fn write_settings(&self, text: &mut String) {
        text.push_str("\n## How each was started\n\n| | | |\n| --- | --- | --- |\n");
        for group in Group::ALL {
            for contestant in &self.contestants {
                let settings = match contestant {
                    Contestant::Peer(peer) => peer.settings(group),
                    Contestant::Ours { side, .. } if self.comparisons(group, *side).is_empty() => {
                        continue;
                    }
                    Contestant::Ours { side, .. } => our_settings(*side, group),
                    Contestant::Over { .. } => continue,
                };
                if self.rows.iter().any(|row| row.group == group) {
                    let (title, name) = (group.title(), contestant.name());
                    let _ = writeln!(text, "| {title} | {name} | `{settings}` |");
                }
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        let absent = self.absent.iter();
        json!({
            "rounds": self.rounds,
            "machine": self.machine.json(),
            "absent": absent.map(|(name, why)| json!({ "name": name, "reason": why }))
                .collect::<Vec<_>>(),
            "rows": self.all().map(|comparison| comparison.json()).collect::<Vec<_>>(),
        })
    }

    /// What `spmd-perf plot` draws: the middle one of each contestant's lines.
    pub(super) fn lines(&self) -> String {
        let scores = self.scores.iter().flatten();
        scores.filter_map(Score::median_line).map(|line| format!("{line}\n")).collect()
    }
}

fn title_case(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().to_string() + letters.as_str())
}

/// Writes files, each with its text, into a folder.
pub(super) fn put_all(folder: &Path, files: &[(&str, String)]) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
    files.iter().try_for_each(|(name, text)| {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|e| format!("{} cannot be written: {e}", file.display()))
    })
}
