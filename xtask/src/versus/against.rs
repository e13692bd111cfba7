//! `cargo xtask versus --against REF`: this checkout beside an older commit, built beside it, row
//! by row in turn. Peers are not needed; where MPI libraries can be had, calls over them are
//! compared, too.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::options::Options;
use super::over;
use super::peers::{LIBRARIES, Peer};
use super::programs::Programs;
use super::report::put_all;
use super::rows::{Group, Row, Side};
use super::run::{self, Contestant, Score};
use crate::tools::{self, built, cargo};

/// A row is slower from this ratio on, of its time to that of the older commit.
const SLOWER: f64 = 1.03;

/// The same row of both.
struct Pair {
    row: Row,
    /// The older commit, and this checkout.
    contestants: [Contestant; 2],
    scores: [Score; 2],
}

/// Measures, prints the table and writes it, with the figures. Whether no row is slower.
pub(super) fn measure(reference: &str, rows: &[Row], options: &Options) -> Result<bool, String> {
    let commit = commit_of(reference)?;
    let older = Programs { release: build_older(&commit)? };
    let both = [older, Programs::build()?];
    let mut pairs: Vec<Pair> = rows.iter().flat_map(|row| pairs_of(row, &both)).collect();
    let peers = LIBRARIES.iter().filter(|it| it.standard).filter_map(|library| {
        let peer = library.peer(both[1].target());
        peer.map_err(|reason| println!("{} is absent: {reason}", library.name)).ok()
    });
    let over = peers.flat_map(|peer| pairs_over(&peer, &both));
    pairs.extend(over.filter(|pair| options.wants(&pair.row)));
    for round in 0..options.rounds {
        println!("round {} of {}", round + 1, options.rounds);
        pairs.iter_mut().for_each(|pair| pair.measure(round));
    }
    // By chance, or because they are.
    let slower = pairs.iter_mut().filter(|pair| pair.is_slower());
    for pair in slower {
        println!("once more: {}", pair.title());
        (0..2 * options.rounds).for_each(|round| pair.measure(round));
    }
    let text = report(reference, &commit, &pairs);
    println!("\n{text}");
    let figures: Vec<Value> = pairs.iter().map(Pair::json).collect();
    let figures = format!("{:#}\n", json!({ "against": commit, "rows": figures }));
    put_all(&options.output, &[("against.md", text), ("against.json", figures)])?;
    Ok(!pairs.iter().any(Pair::is_slower))
}

fn commit_of(reference: &str) -> Result<String, String> {
    let name = format!("{reference}^{{commit}}");
    let commit = tools::output(tools::command("git", &["rev-parse", "--verify", &name]));
    let commit = commit.map(|text| text.trim().to_owned());
    commit.ok_or(format!("git knows no commit '{reference}'"))
}

/// Builds what is measured as it was at a commit, below the target folder, where it stays.
fn build_older(commit: &str) -> Result<PathBuf, String> {
    let folder = built("against").join(&commit[..12]);
    let source = folder.join("source");
    if !source.exists() {
        let part = folder.join("part");
        let _ = fs::remove_dir_all(&part);
        fs::create_dir_all(&part)
            .map_err(|error| format!("{} cannot be made: {error}", part.display()))?;
        let archive = folder.join("source.tar");
        let mut pack = tools::command("git", &["archive", "--format=tar", "--output"]);
        pack.arg(&archive).arg(commit);
        let mut unpack = tools::command("tar", &["-xf"]);
        unpack.arg(&archive).arg("-C").arg(&part);
        for command in [pack, unpack] {
            tools::watch(command).wrong.map_or(Ok(()), Err)?;
        }
        let _ = fs::remove_file(&archive);
        fs::rename(&part, &source).map_err(|error| format!("{}: {error}", source.display()))?;
    }
    let target = folder.join("target");
    let mut build = cargo(&["build", "--release", "--package", "spmd-launcher", "--package"]);
    build.args(["spmd-perf", "--bin", "spmdrun", "--bin", "spmd-perf"]);
    build.current_dir(&source).env("CARGO_TARGET_DIR", &target);
    tools::watch(build).wrong.map_or_else(|| Ok(target.join("release")), Err)
}

/// The row on each side that takes part in it.
fn pairs_of<'a>(row: &'a Row, both: &'a [Programs; 2]) -> impl Iterator<Item = Pair> + 'a {
    let sides = Side::ALL.into_iter().filter(|side| row.target(*side).is_some());
    sides.map(|side| {
        Pair::new(row, both.clone().map(|programs| Contestant::Ours { side, programs }))
    })
}

/// The rows over a library: a rank in each of two processes, and several in each of four.
fn pairs_over(peer: &Peer, both: &[Programs; 2]) -> Vec<Pair> {
    let pair = |row: &Row, each, mode| {
        let over =
            |programs: Programs| Contestant::Over { peer: peer.clone(), each, mode, programs };
        Pair::new(row, both.clone().map(over))
    };
    let flat = over::pair_rows();
    let flat = flat.iter().map(|row| pair(row, 1, "threads"));
    let hybrid = over::hybrid_rows();
    let modes = ["virtual", "threads"].into_iter();
    flat.chain(modes.flat_map(|mode| hybrid.iter().map(move |row| pair(row, 4, mode)))).collect()
}

impl Pair {
    fn new(row: &Row, contestants: [Contestant; 2]) -> Pair {
        Pair { row: row.clone(), contestants, scores: Default::default() }
    }

    /// Each once; who begins changes from round to round.
    fn measure(&mut self, round: usize) {
        for turn in 0..2 {
            let of = (turn + round) % 2;
            let (row, score) = (&self.row, &mut self.scores[of]);
            let (rows, scores) = (std::slice::from_ref(row), std::slice::from_mut(score));
            run::measure(&self.contestants[of], row.group, rows, scores);
        }
    }

    /// The time of this checkout ÷ that of the older commit: the median over the rounds, the least
    /// and the greatest.
    fn ratios(&self) -> Option<[f64; 3]> {
        let [before, now] = &self.scores;
        if before.failure.is_some() || now.failure.is_some() {
            return None;
        }
        let rounds = now.micros.iter().zip(&before.micros);
        let mut ratios: Vec<f64> = rounds.map(|(now, before)| now / before).collect();
        ratios.sort_by(f64::total_cmp);
        Some([*ratios.get(ratios.len() / 2)?, *ratios.first()?, *ratios.last()?])
    }

    /// Also if it fails now and did not before.
    fn is_slower(&self) -> bool {
        let breaks = self.scores[1].failure.is_some() && self.scores[0].failure.is_none();
        breaks || self.ratios().is_some_and(|[ratio, ..]| ratio > SLOWER)
    }

    fn title(&self) -> String {
        let group = match self.row.group {
            Group::Two => "2 ranks",
            Group::Sixteen => "16 ranks",
        };
        format!("{} ({}, {group})", self.row.title(), self.contestants[1].name())
    }

    fn json(&self) -> Value {
        let [before, now] = &self.scores;
        json!({ "row": self.title(), "before_us": before.micros, "now_us": now.micros })
    }
}

fn report(reference: &str, commit: &str, pairs: &[Pair]) -> String {
    let mut text = format!("# Against {reference} ({})\n\n", &commit[..12]);
    text.push_str("| | before | now | now ÷ before | of the rounds | |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for pair in pairs {
        let cells = pair.scores.each_ref().map(over::cell).join(" | ");
        let (ratio, range) = match pair.ratios() {
            Some([ratio, least, most]) => (format!("{ratio:.3}"), format!("{least:.2}–{most:.2}")),
            None => ("–".into(), "–".into()),
        };
        let mark = if pair.is_slower() { "slower" } else { "" };
        let _ = writeln!(text, "| {} | {cells} | {ratio} | {range} | {mark} |", pair.title());
    }
    let ratios: Vec<f64> = pairs.iter().filter_map(|pair| Some(pair.ratios()?[0])).collect();
    if !ratios.is_empty() {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let slower = pairs.iter().filter(|pair| pair.is_slower()).count();
        let _ = writeln!(
            text,
            "\nGeometric mean of {} rows: {mean:.3}; slower by more than {:.0} %: {slower}.",
            ratios.len(),
            (SLOWER - 1.0) * 100.0
        );
    }
    text
}
