//! `cargo xtask versus over`: what calls cost over MPI. Each library's own loop of a call beside
//! the same loop over that library, and several ranks in each of a few processes beside as many
//! processes.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::options::number_of_rounds;
use super::peers::{LIBRARIES, Peer};
use super::programs::Programs;
use super::report::{put_all, time};
use super::rows::{Group, Row};
use super::run::{self, Contestant, Score};
use crate::tools::built;

/// What a call may cost more than the library's own, in µs, where it is about latency, and as a
/// share of it, where it is about data.
const MORE: f64 = 0.05;
const SHARE: f64 = 0.03;
/// The time of a call of ranks in few processes ÷ that of the fastest library's processes.
const HYBRID: f64 = 0.2;

const KIB: usize = 1 << 10;
const CALLS: [&str; 5] = ["allreduce", "broadcast", "reduce", "allgather", "alltoall"];
/// Calls of windows, each with a flush.
const ACCESSES: [&str; 2] = ["put", "get"];
/// Bytes, and how many calls are measured.
const SIZES: [(usize, usize); 4] =
    [(8, 20_000), (4 * KIB, 10_000), (64 * KIB, 1000), (1024 * KIB, 200)];

/// Measures, prints the table and writes it, with the figures.
pub(super) fn measure(words: &[&str]) -> Result<bool, String> {
    let (mut rounds, mut output) = (5, built("versus"));
    for pair in words.chunks(2) {
        match pair {
            ["--rounds", value] => rounds = number_of_rounds(value)?,
            ["--output", value] => output = PathBuf::from(value),
            _ => return Err(format!("'{}' is not known, or lacks its value", pair[0])),
        }
    }
    let programs = Programs::build()?;
    let mut peers = Vec::new();
    for library in &LIBRARIES {
        match library.peer(programs.target()) {
            Ok(peer) => peers.push(peer),
            Err(reason) => println!("{} is absent: {reason}", library.name),
        }
    }
    let mut pairs: Vec<Table> =
        peers.iter().filter(|it| it.is_standard()).map(|it| pair(it, &programs)).collect();
    let mut hybrid = Table::new(hybrid_rows(), hybrids(&peers, &programs));
    for round in 1..=rounds {
        pairs.iter_mut().chain([&mut hybrid]).for_each(|table| table.measure(round, rounds));
    }
    let mut text = String::from("# spmd over MPI\n");
    pairs.iter().for_each(|table| table.write_overhead(&mut text));
    hybrid.write_ratios(&mut text, peers.len());
    let figures: Vec<Value> = pairs.iter().chain([&hybrid]).map(Table::json).collect();
    println!("\n{text}");
    put_all(&output, &[("over.md", text), ("over.json", format!("{:#}\n", json!(figures)))])?;
    Ok(true)
}

/// Those who make the same calls, and what came out: of each, of each call.
struct Table {
    rows: Vec<Row>,
    contestants: Vec<Contestant>,
    scores: Vec<Vec<Score>>,
}

/// A library, and ours over it.
fn pair(peer: &Peer, programs: &Programs) -> Table {
    let (peer, programs) = (peer.clone(), programs.clone());
    let over = Contestant::Over { peer: peer.clone(), each: 1, mode: "threads", programs };
    Table::new(pair_rows(), vec![Contestant::Peer(peer), over])
}

/// All libraries, and ours with four ranks in each of four processes.
fn hybrids(peers: &[Peer], programs: &Programs) -> Vec<Contestant> {
    let standard = || peers.iter().filter(|peer| peer.is_standard());
    let over = |mode| {
        move |peer: &Peer| {
            let (peer, programs) = (peer.clone(), programs.clone());
            Contestant::Over { peer, each: 4, mode, programs }
        }
    };
    let ours = ["virtual", "threads"].into_iter().flat_map(|mode| standard().map(over(mode)));
    peers.iter().cloned().map(Contestant::Peer).chain(ours).collect()
}

fn row(group: Group, bench: &'static str, bytes: usize, iterations: usize) -> Row {
    Row { group, bench, bytes, iterations, targets: Vec::new() }
}

pub(super) fn pair_rows() -> Vec<Row> {
    let two = |bench, bytes, iterations| row(Group::Two, bench, bytes, iterations);
    let latencies = [two("latency", 8, 20_000), two("latency", KIB, 10_000)];
    let mut rows = latencies.to_vec();
    rows.push(two("barrier", 0, 20_000));
    for (bytes, iterations) in SIZES {
        rows.extend(CALLS.map(|bench| two(bench, bytes, iterations)));
    }
    for (bytes, iterations) in [SIZES[0], SIZES[3]] {
        rows.extend(ACCESSES.map(|bench| two(bench, bytes, iterations)));
    }
    rows.push(two("fetch-and-add", 8, 20_000));
    rows
}

pub(super) fn hybrid_rows() -> Vec<Row> {
    vec![row(Group::Sixteen, "barrier", 0, 400), row(Group::Sixteen, "allreduce", 8, 400)]
}

impl Table {
    fn new(rows: Vec<Row>, contestants: Vec<Contestant>) -> Table {
        let scores = vec![vec![Score::default(); rows.len()]; contestants.len()];
        Table { rows, contestants, scores }
    }

    /// Each once; who begins changes from round to round.
    fn measure(&mut self, round: usize, rounds: usize) {
        let group = self.rows[0].group;
        for turn in 0..self.contestants.len() {
            let index = (turn + round) % self.contestants.len();
            println!("round {round} of {rounds}: {}", self.contestants[index].name());
            run::measure(&self.contestants[index], group, &self.rows, &mut self.scores[index]);
        }
    }

    /// What a call costs more than the library's own: the median over the rounds.
    fn more(&self, row: usize) -> Option<(f64, f64)> {
        let [theirs, ours] = [0, 1].map(|index| &self.scores[index][row].micros);
        let mut more: Vec<f64> = ours.iter().zip(theirs).map(|(ours, own)| ours - own).collect();
        more.sort_by(f64::total_cmp);
        Some((more.get(more.len() / 2).copied()?, self.scores[0][row].median()?))
    }

    fn write_overhead(&self, text: &mut String) {
        let name = self.contestants[0].name();
        let _ = writeln!(text, "\n## Beside {name}: two ranks on two cores\n");
        let _ = writeln!(text, "| | {name} | spmd over it | more | asked | met |");
        let _ = writeln!(text, "| --- | --- | --- | --- | --- | --- |");
        for (index, row) in self.rows.iter().enumerate() {
            let cells = [0, 1].map(|of| cell(&self.scores[of][index])).join(" | ");
            let _ = write!(text, "| {} | {cells} ", row.title());
            let _ = match self.more(index) {
                None => writeln!(text, "| – | – | – |"),
                Some((more, _)) if row.bytes < 4 * KIB => {
                    let met = yes(more <= MORE);
                    writeln!(text, "| {:.0} ns | ≤ {:.0} ns | {met} |", more * 1e3, MORE * 1e3)
                }
                Some((more, own)) => {
                    let (share, met) = (more / own * 100.0, yes(more <= SHARE * own));
                    writeln!(text, "| {share:.1} % | ≤ {:.0} % | {met} |", SHARE * 100.0)
                }
            };
        }
    }

    /// Each of ours beside the fastest of the first `peers`.
    fn write_ratios(&self, text: &mut String, peers: usize) {
        text.push_str("\n## 16 ranks on two cores: processes, or four ranks in each of four\n\n");
        let titles: Vec<String> = self.rows.iter().map(Row::title).collect();
        let _ = writeln!(text, "| | {} |", titles.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(self.rows.len() + 1));
        let times = |of: usize| self.scores[of].iter().map(Score::median);
        for (index, contestant) in self.contestants.iter().enumerate() {
            let mut cells = Vec::new();
            for (row, ours) in times(index).enumerate() {
                let best = (0..peers).filter_map(|of| self.scores[of][row].median());
                let ratio = ours.zip(best.min_by(f64::total_cmp)).map(|(ours, best)| ours / best);
                let ratio = ratio.filter(|_| index >= peers);
                let told = ratio.map_or(String::new(), |ratio| {
                    format!(" ({ratio:.2} of the best, asked ≤ {HYBRID}: {})", yes(ratio <= HYBRID))
                });
                cells.push(cell(&self.scores[index][row]) + &told);
            }
            let _ = writeln!(text, "| {} | {} |", contestant.name(), cells.join(" | "));
        }
    }

    fn json(&self) -> Value {
        let of = |(contestant, scores): (&Contestant, &Vec<Score>)| {
            let rows = self.rows.iter().zip(scores);
            let rows = rows.map(|(row, score)| json!({ "row": row.title(), "us": score.micros }));
            json!({ "name": contestant.name(), "rows": rows.collect::<Vec<_>>() })
        };
        self.contestants.iter().zip(&self.scores).map(of).collect()
    }
}

pub(super) fn cell(score: &Score) -> String {
    match (&score.failure, score.median()) {
        (Some(failure), _) => failure.replace('|', "/"),
        (None, Some(micros)) => time(micros),
        (None, None) => "–".into(),
    }
}

fn yes(met: bool) -> &'static str {
    if met { "yes" } else { "no" }
}
