//! `cargo xtask versus`: this project beside Open MPI, MPICH and Intel MPI, in one run, on the
//! same cores; with `over`, what calls cost over these libraries (`over.rs`); with `--against`,
//! beside an older commit (`against.rs`).

mod against;
mod machine;
mod options;
mod over;
pub(crate) mod peers;
mod programs;
mod report;
mod rows;
mod run;

use std::path::Path;
use std::time::Instant;

use crate::tools::{self, built};
use machine::Machine;
use options::Options;
use peers::LIBRARIES;
use programs::Programs;
use report::{Report, put_all};
use rows::{Group, Row, Side};
use run::{Contestant, Score};

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
    let programs = Programs::build()?;
    let mut contestants = Vec::new();
    let mut absent = Vec::new();
    for library in &LIBRARIES {
        println!("Installing {} ..", library.name);
        match library.peer(programs.target()) {
            Ok(peer) => contestants.push(Contestant::Peer(peer)),
            Err(reason) => absent.push((library.name, reason)),
        }
    }
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
