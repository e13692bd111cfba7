//! `cargo xtask versus`: this project beside Open MPI, MPICH and Intel MPI, in one run, on the
//! same cores; with `over`, what calls cost over these libraries (`over.rs`); with `--against`, beside
//! an older commit (`against.rs`).

mod against;
mod machine;
mod over;
pub(crate) mod peers;
mod report;
mod rows;
mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::tools::{self, built, cargo};
use machine::Machine;
use peers::LIBRARIES;
use report::Report;
use rows::{Group, Row, Side};
use run::{Contestant, Programs, Score};

struct Options {
    rounds: usize,
    /// Rows whose titles contain this.
    only: Option<String>,
    groups: Vec<Group>,
    /// The commit to be beside, instead of other libraries.
    against: Option<String>,
    /// Where the results go.
    output: PathBuf,
}

pub(crate) fn run(words: &[&str]) -> Result<bool, String> {
    if let ["over", words @ ..] = words {
        return over::measure(words);
    }
    let options = Options::parse(words)?;
    let mut rows = rows::all();
    rows.retain(|row| options.wants(row));
    if rows.is_empty() {
        return Err("no row has this in its title".into());
    }
    if let Some(reference) = &options.against {
        return against::measure(reference, &rows, &options);
    }
    let release = build()?;
    let mut contestants = Vec::new();
    let mut absent = Vec::new();
    for library in &LIBRARIES {
        println!("Installing {} ..", library.name);
        match library.peer(release.parent().unwrap_or(&release)) {
            Ok(peer) => contestants.push(Contestant::Peer(peer)),
            Err(reason) => absent.push((library.name, reason)),
        }
    }
    let programs = Programs { release };
    contestants.extend(Side::ALL.map(|side| {
        let programs = programs.clone();
        Contestant::Ours { side, programs }
    }));

    let mut machine = Machine::look();
    let mut scores = vec![vec![Score::default(); rows.len()]; contestants.len()];
    for round in 1..=options.rounds {
        measure_round(&contestants, &options.groups, &rows, &mut scores, round, options.rounds);
        machine.measure();
    }
    machine.end();
    let report = Report { contestants, absent, rows, scores, machine, rounds: options.rounds };
    write(&report, &options.output)
}

/// Builds what is measured, and gives the folder that it is in.
fn build() -> Result<PathBuf, String> {
    let mut build = cargo(&["build", "--release", "--package", "spmd-launcher", "--package"]);
    build.args(["spmd-perf", "--bin", "spmdrun", "--bin", "spmd-perf"]);
    tools::watch(build).wrong.map_or_else(|| Ok(built("release")), Err)
}

/// Each contestant once; who begins changes from round to round.
fn measure_round(
    contestants: &[Contestant],
    groups: &[Group],
    rows: &[Row],
    scores: &mut [Vec<Score>],
    round: usize,
    rounds: usize,
) {
    for &group in groups {
        for turn in 0..contestants.len() {
            let index = (turn + round) % contestants.len();
            let start = Instant::now();
            if run::measure(&contestants[index], group, rows, &mut scores[index]) {
                let (name, ranks) = (contestants[index].name(), group.ranks());
                let seconds = start.elapsed().as_secs_f64();
                println!("round {round} of {rounds}: {name}, {ranks} ranks: {seconds:.1} s");
            }
        }
    }
}

/// Writes the table, the figures and the picture, and prints the table.
fn write(report: &Report, output: &Path) -> Result<bool, String> {
    let markdown = report.markdown();
    println!("\n{markdown}");
    let figures = format!("{:#}\n", report.json());
    let files =
        [("versus.md", markdown), ("versus.json", figures), ("lines.jsonl", report.lines())];
    put_all(output, &files)?;
    let mut plot = tools::command(built("release").join("spmd-perf"), &["plot"]);
    plot.arg(output.join("lines.jsonl")).arg("--output").arg(output.join("versus.svg"));
    let drawn = tools::watch(plot).wrong;
    println!("Table, figures and picture are {}", output.join("versus.{md,json,svg}").display());
    drawn.map_or(Ok(true), Err)
}

/// Writes files, each with its text, into a folder.
fn put_all(folder: &Path, files: &[(&str, String)]) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
    files.iter().try_for_each(|(name, text)| {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|e| format!("{} cannot be written: {e}", file.display()))
    })
}

fn number_of_rounds(value: &str) -> Result<usize, String> {
    let rounds = value.parse().ok().filter(|rounds| *rounds > 0);
    rounds.ok_or(format!("'{value}' is no number of rounds"))
}

impl Options {
    fn wants(&self, row: &Row) -> bool {
        let only = self.only.as_deref();
        self.groups.contains(&row.group) && only.is_none_or(|text| row.title().contains(text))
    }

    fn parse(words: &[&str]) -> Result<Options, String> {
        let (groups, output) = (Group::ALL.to_vec(), built("versus"));
        let mut options = Options { rounds: 5, only: None, groups, against: None, output };
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                return Err(format!("'{}' needs a value", pair[0]));
            };
            match *name {
                "--rounds" => options.rounds = number_of_rounds(value)?,
                "--against" => options.against = Some(value.to_string()),
                "--only" => options.only = Some(value.to_string()),
                "--group" => {
                    options.groups.retain(|group| group.name() == *value);
                    if options.groups.is_empty() {
                        return Err(format!("'{value}' is no group: two or sixteen"));
                    }
                }
                "--output" => {
                    // What draws the picture runs in another folder.
                    let output = std::path::absolute(value);
                    options.output = output.map_err(|error| format!("'{value}': {error}"))?;
                }
                other => return Err(format!("'{other}' is not known")),
            }
        }
        Ok(options)
    }
}
