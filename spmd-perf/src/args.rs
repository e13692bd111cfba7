//! The command line.

pub(crate) mod values;

use std::path::PathBuf;

use clap::error::ContextValue;
use clap::{Parser, Subcommand, ValueEnum};

use crate::bench::Bench;
use crate::elements::{Kind, Operator};
use crate::measure::Effort;
use crate::memory::Memory;
use crate::sweep::args::SweepArgs;
use values::{calls, seconds, size};

/// Measures collectives and messages on the ranks it is started with, and checks the results:
/// `spmdrun -n 2 spmd-perf allreduce --sizes 8,1K,1M`.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// What to measure
    #[arg(required_unless_present_any = ["all", "rows", "list_algorithms"])]
    bench: Option<Bench>,
    /// Measure everything
    #[arg(long, conflicts_with = "bench")]
    pub(crate) all: bool,
    /// Bytes: of each rank's contribution to a collective (to each peer in alltoall and scatter),
    /// of each message. K, M and G are powers of 1024
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "8,64,1K,8K,64K,512K,4M")]
    sizes: Vec<usize>,
    /// Measure this many calls of one bench and size, `allreduce:1M:500`; may be given repeatedly
    #[arg(long = "row", value_name = "BENCH:BYTES:CALLS", value_parser = row)]
    #[arg(conflicts_with_all = ["bench", "all", "sizes", "seconds", "iterations"])]
    rows: Vec<Task>,
    /// The element type of collectives
    #[arg(long = "type", default_value = "f64")]
    pub(crate) element: Kind,
    /// The operation of reductions
    #[arg(long, default_value = "sum")]
    pub(crate) op: Operator,
    /// The algorithm to use where it can serve a call
    #[arg(long)]
    pub(crate) algorithm: Option<String>,
    /// Name every algorithm, when it is chosen, and its cost
    #[arg(long)]
    pub(crate) list_algorithms: bool,
    /// What the buffers lie in
    #[arg(long, default_value = "vec")]
    pub(crate) memory: Memory,
    /// Seconds for each size
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    seconds: f64,
    /// Calls for each size, after a tenth as many to warm up, instead of a time
    #[arg(long, value_parser = calls, conflicts_with = "seconds")]
    iterations: Option<usize>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// After the results of --json, a line that describes hosts, network and versions
    #[arg(long, requires = "json")]
    pub(crate) describe: bool,
    /// Draw latency against size into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// What else there is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Draw results that `--json` has written, those of several runs into one picture
    Plot {
        /// Files of JSON lines
        #[arg(required = true)]
        results: Vec<PathBuf>,
        /// The SVG file
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Measure what bounds every transport here: memcpy, and a cache line between two cores.
    /// `spmdrun -n 2 --as threads --bind core spmd-perf machine`
    Machine,
    /// Enter the world and leave it: what a start costs
    Empty,
    /// Measure what plain allocation costs under `SharedAlloc`, beside the system's allocator:
    /// `spmdrun -n 1 spmd-perf allocation`, and without the launcher
    Allocation,
    /// Measure which algorithm is the fastest for which size on these ranks, and write that into
    /// the file that later runs load: `spmdrun -n 2 --bind core spmd-perf tune`
    Tune(TuneArgs),
    /// Measure over hosts, ranks on each host and sizes, a job under spmdrun for each placement and
    /// benchmark, and draw how it scales. Runs by itself, outside of spmdrun; after an interruption
    /// the same command goes on: `spmd-perf sweep --hosts n1,n2 --ranks-per-host 1,16 --out
    /// results`
    Sweep(Box<SweepArgs>),
    /// Draw the results of several sweeps beside each other, and print how they compare
    Compare {
        /// Folders of sweeps; times of the first are 1
        #[arg(required = true)]
        sweeps: Vec<PathBuf>,
        /// The folder for the pictures
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// What to measure for a tuning file.
#[derive(Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// The file to add to, or to begin; without it, that of SPMD_TUNING, else the default one
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// These collectives alone; the file then says nothing of the others
    #[arg(long, value_delimiter = ',')]
    only: Vec<Bench>,
    /// Seconds for each algorithm and size in a round
    #[arg(long, default_value_t = 0.01, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Rounds, of which the median counts; as many again where the default is not the fastest
    #[arg(long, default_value_t = 5, value_parser = calls)]
    pub(crate) rounds: usize,
}

impl TuneArgs {
    pub(crate) fn takes(&self, bench: Bench) -> bool {
        self.only.is_empty() || self.only.contains(&bench)
    }
}

/// One bench at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Task {
    pub(crate) bench: Bench,
    pub(crate) bytes: usize,
    pub(crate) effort: Effort,
}

/// Options of who starts the ranks.
const OF_LAUNCHER: [&str; 6] = ["-n", "--ranks", "--as", "--transport", "--bind", "--hostfile"];

/// What may have been meant where the command line is wrong.
fn tip(error: &clap::Error) -> Option<&'static str> {
    let is = |known: fn(&str) -> bool| {
        error.context().any(|(_, given)| matches!(given, ContextValue::String(it) if known(it)))
    };
    if is(|given| OF_LAUNCHER.contains(&given.split('=').next().unwrap_or_default())) {
        return Some("ranks are started by spmdrun: spmdrun -n 2 spmd-perf allreduce");
    }
    let file = is(|given| given.ends_with(".json") || given.ends_with(".jsonl"));
    file.then_some("--json writes to the standard output: spmd-perf allreduce --json > all.jsonl")
}

impl Args {
    /// Those of this process, which ends if they are wrong.
    pub(crate) fn of_process() -> Args {
        Args::try_parse().unwrap_or_else(|error| {
            let told = error.print();
            if let (Some(tip), Ok(())) = (tip(&error), told) {
                eprintln!("\n  tip: {tip}");
            }
            std::process::exit(error.exit_code())
        })
    }

    /// What there is to measure, in order.
    pub(crate) fn tasks(&self) -> Vec<Task> {
        let mut tasks = self.rows.clone();
        if tasks.is_empty() {
            let effort = self.iterations.map_or(Effort::Seconds(self.seconds), Effort::Iterations);
            let all = self.bench.map_or_else(|| Bench::value_variants().to_vec(), |one| vec![one]);
            for bench in all {
                // A barrier has no size.
                let sizes = if bench == Bench::Barrier { &[0][..] } else { &self.sizes };
                let sizes = sizes.iter().filter(|bytes| **bytes <= bench.most());
                tasks.extend(sizes.map(|bytes| Task { bench, bytes: *bytes, effort }));
            }
        }
        for task in &mut tasks {
            if !task.bench.moves_bytes() {
                // Whole elements.
                task.bytes = task.bytes.next_multiple_of(self.element.size());
            }
        }
        tasks
    }
}

fn row(text: &str) -> Result<Task, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [bench, bytes, iterations] = parts[..] else {
        return Err("a row has three parts, as in allreduce:1M:500".into());
    };
    let bench = Bench::from_str(bench, false)?;
    Ok(Task { bench, bytes: size(bytes)?, effort: Effort::Iterations(calls(iterations)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
        let parse = |line: &str| Args::try_parse_from(line.split(' '));
        let tasks = parse("spmd-perf reduce_scatter --sizes 1,1K").unwrap().tasks();
        assert!(tasks.iter().all(|task| task.bench == Bench::ReduceScatter));
        assert_eq!(tasks.iter().map(|task| task.bytes).collect::<Vec<_>>(), [8, 1024]);
        let tasks = parse("spmd-perf --row allreduce:1M:500 --row barrier:0:20").unwrap().tasks();
        let effort = Effort::Iterations(500);
        assert_eq!(tasks[0], Task { bench: Bench::Allreduce, bytes: 1 << 20, effort });
        assert_eq!((tasks[1].bench, tasks[1].bytes), (Bench::Barrier, 0));
        assert!(parse("spmd-perf plot a.jsonl b.jsonl --output c.svg").unwrap().command.is_some());
        let tasks = parse("spmd-perf overlap-alltoall-test --sizes 1").unwrap().tasks();
        assert_eq!(tasks[0].bench.overlap(), Some((Bench::Alltoall, true)));
        assert_eq!((tasks[0].bytes, tasks[0].bench.has_blocks()), (8, true));
        // Who sends large messages before anybody receives waits for ever.
        let tasks = parse("spmd-perf --all").unwrap().tasks();
        assert!(tasks.iter().all(|task| task.bytes <= task.bench.most()));
        let floods = tasks.iter().filter(|task| task.bench == Bench::Flood);
        assert!(floods.map(|task| task.bytes).max() > Some(0));
        assert!(parse("spmd-perf --json").is_err());
        assert!(parse("spmd-perf allreduce --row allreduce:1M:500").is_err());
        assert!(parse("spmd-perf --row allreduce:1M").is_err());
        assert!(parse("spmd-perf --row allreduce:1M:0").is_err());
    }

    #[test]
    fn what_was_meant() {
        let tip_of = |line: &str| tip(&Args::try_parse_from(line.split(' ')).unwrap_err());
        for line in ["-n 2 allreduce", "allreduce --ranks=2", "allreduce --as threads"] {
            let tip = tip_of(&format!("spmd-perf {line}"));
            assert!(tip.is_some_and(|tip| tip.contains("spmdrun")), "{line}: {tip:?}");
        }
        for line in ["allreduce --json out.jsonl", "--json out.json"] {
            let tip = tip_of(&format!("spmd-perf {line}"));
            assert!(tip.is_some_and(|tip| tip.contains("> all.jsonl")), "{line}: {tip:?}");
        }
        assert_eq!(tip_of("spmd-perf allreduce --size 3"), None);
    }
}
