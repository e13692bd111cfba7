//! The command line: options, the programs between `:`, and errors of one line each.

mod pages;
mod spellings;
mod values;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, ValueEnum};
use clap_complete::Shell;

use crate::error::Error;
use crate::topology::Cpus;
use values::stdin;
pub(crate) use values::{
    Bind, Stdin, bind, bytes, duration, named, positive_duration, rank_count, resources, seconds,
};

const AFTER_HELP: &str = "\
Examples:
  spmdrun -n 4 ./app input.dat               four processes
  spmdrun -n 1000 --as virtual ./app         a thousand virtual ranks in one process
  spmdrun -n 1 ./master : -n 8 ./worker      two programs in one world
  spmdrun -n 4 --bind 0-3,4-7 ./app          rank i on the i-th item of the list, in turn
  spmdrun --as gpus ./app                    a process for each GPU, and near it
  spmdrun -n 64 --hostfile hosts ./app       64 processes on several hosts, under MPI
  spmdrun --as gpus --host a:4,b:4 ./app     eight ranks, each with a GPU of its host
  spmdrun -n 4 --debug-rank 3 ./app          rank 3 under gdb, in a window of its own
  spmdrun --doctor                           what this machine offers
  spmdrun --doctor ./app                     and with which MPI a program would run

Environment: SPMD_RANKS, SPMD_AS, SPMD_TRANSPORT, SPMD_BIND and SPMD_GRACE give the options of
these names where the command line does not. Ctrl-\\ (SIGQUIT) prints what every rank is doing;
a second Ctrl-C or SIGTERM kills the job.

Exit status: 0, or that of the rank that failed first (128 + N where signal N killed it), 124 at
the time limit, 126 and 127 where the program cannot be run or found, 2 for wrong usage, 1 where
the system refuses something or output of a job that went well is lost. Under MPI it is that of the
MPI launcher.";

/// What the ranks of the job run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One process per rank
    Processes,
    /// Threads of one process
    Threads,
    /// Coroutines of one process; for programs that keep no reference in a thread-local (crate
    /// scoped-tls) across a call of spmd
    Virtual,
    /// One process per rank, each with a GPU, by CUDA_VISIBLE_DEVICES
    Gpus,
}

/// What carries data between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Shared memory; MPI where hosts are given
    Auto,
    /// Shared memory
    Shm,
    /// MPI: processes under the launcher of an MPI library
    Mpi,
    /// NCCL alone for data of GPUs; for all else as auto
    Nccl,
}

/// What a failed rank does to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFailure {
    /// They end too
    End,
    /// They go on; the job succeeds if any finishes
    Continue,
}

/// The options of one program; each program between `:` has its own.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProgramOptions {
    /// How many ranks; without it, one per usable core
    #[arg(short = 'n', long, value_name = "N", value_parser = rank_count, display_order = 0)]
    pub(crate) ranks: Option<usize>,
    /// Set a variable for the ranks, or insist that one of the launcher's is passed on
    #[arg(short = 'x', long, value_name = "K=V|K")]
    pub(crate) env: Vec<String>,
    /// Start the ranks in this directory (a relative program path keeps its meaning)
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

/// The options of the whole job.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobOptions {
    /// What ranks run as [default: processes]
    #[arg(long = "as", value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    /// What carries data between ranks [default: auto]
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<Transport>,
    /// Under MPI: how many thread or virtual ranks (--as; threads if not said) each process holds
    #[arg(help_heading = "Hosts and CPUs", long, value_name = "K", value_parser = rank_count)]
    pub(crate) ranks_per_process: Option<usize>,
    /// With --as gpus: how many ranks share a GPU [default: 1]
    #[arg(help_heading = "GPUs", long, value_name = "K", value_parser = rank_count)]
    pub(crate) ranks_per_gpu: Option<usize>,
    /// With --as gpus: use these of each host only, such as 0,2-3, by the driver's numbers
    /// [default: all]
    #[arg(help_heading = "GPUs", long, value_name = "LIST", value_parser = Cpus::parse_ranks)]
    pub(crate) gpus: Option<Cpus>,
    /// What each process has for tasks, such as gpu=(0,1),(2,3) or license=2;cpu=4 (may be repeated)
    #[arg(long, value_name = "WHAT", value_parser = resources)]
    pub(crate) resources: Vec<String>,
    /// Start on these hosts, under MPI: names, each with `:N` where it has room for N ranks only
    #[arg(
        help_heading = "Hosts and CPUs",
        short = 'H',
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "hostfile"
    )]
    pub(crate) host: Vec<String>,
    /// Start on the hosts in this file, under MPI: one a line, as NAME, NAME:N or NAME slots=N
    #[arg(help_heading = "Hosts and CPUs", long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// Bind ranks: none, core, numa, or a list such as 0,1,4-7 whose i-th item is for rank i, in
    /// turn [default: none]
    #[arg(help_heading = "Hosts and CPUs", long, value_name = "WHERE", value_parser = bind)]
    pub(crate) bind: Option<Bind>,
    /// Print the CPUs of every rank
    #[arg(help_heading = "Hosts and CPUs", long)]
    pub(crate) report_bindings: bool,
    /// Begin every line of output with the rank that printed it
    #[arg(help_heading = "Input and output", long)]
    pub(crate) tag: bool,
    /// Begin every line of output with the time of day (UTC)
    #[arg(help_heading = "Input and output", long)]
    pub(crate) timestamps: bool,
    /// Write output to files there, one per process and stream, instead of showing it
    #[arg(help_heading = "Input and output", long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Show the output of these ranks only, such as 0,4-7
    #[arg(help_heading = "Input and output", long, value_name = "LIST", value_parser = Cpus::parse_ranks)]
    pub(crate) show_ranks: Option<Cpus>,
    /// Tell process ranks their place as Open MPI does, too (OMPI_COMM_WORLD_RANK, ..), for scripts
    /// that read it there; programs linked with an MPI may then believe that mpirun has started them
    #[arg(long)]
    pub(crate) openmpi_env: bool,
    /// Which rank reads standard input: a rank, all or none
    #[arg(help_heading = "Input and output", long, value_name = "RANK", default_value = "0", value_parser = stdin)]
    pub(crate) stdin: Stdin,
    /// End the job after this long (90, 500ms, 1.5m, 2h), with status 124
    #[arg(help_heading = "How the job ends", long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Option<Duration>,
    /// How long ranks may take to end after a failure before SIGTERM, and then before SIGKILL
    /// [default: 2s]
    #[arg(help_heading = "How the job ends", long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// What a failed rank does to the others
    #[arg(help_heading = "How the job ends", long, value_name = "WHAT", default_value = "end")]
    pub(crate) on_failure: OnFailure,
    /// Show each failed rank's error, also where others print the same
    #[arg(help_heading = "Input and output", short = 'v', long)]
    pub(crate) verbose: bool,
    /// Write down what every rank and task does when, for https://ui.perfetto.dev
    #[arg(help_heading = "To look at it", long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Run these ranks under gdb, such as 3 or 0,4-7: each in a window of tmux or of the desktop, or
    /// as you start it
    #[arg(help_heading = "To look at it", long, value_name = "LIST", value_parser = Cpus::parse_ranks)]
    pub(crate) debug_rank: Option<Cpus>,
    /// Print what would be started, and start nothing
    #[arg(help_heading = "To look at it", long)]
    pub(crate) dry_run: bool,
    /// Say what this machine offers and what is missing, for the program if one is named, and
    /// start nothing
    #[arg(help_heading = "To look at it", long)]
    pub(crate) doctor: bool,
    /// Print what a shell needs to complete these options, for its start-up files
    #[arg(help_heading = "To look at it", long, value_name = "SHELL")]
    pub(crate) completions: Option<Shell>,
    /// Print this as a page for man
    #[arg(help_heading = "To look at it", long)]
    pub(crate) man: bool,
    /// For who is used to it: there may be more ranks than cores in any case
    #[arg(long, hide = true)]
    pub(crate) oversubscribe: bool,
}

/// Start the ranks of a program and supervise them
#[derive(Parser, Debug)]
#[command(name = "spmdrun", version, after_help = AFTER_HELP)]
#[command(override_usage = "spmdrun [OPTIONS] APP [ARGS]... [: -n N APP [ARGS]...]...")]
struct First {
    #[command(flatten)]
    program: ProgramOptions,
    #[command(flatten)]
    job: JobOptions,
    /// The program and its arguments
    #[arg(value_name = "APP", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// A program after the first `:`.
#[derive(Parser, Debug)]
#[command(name = "spmdrun", disable_help_flag = true)]
struct Further {
    #[command(flatten)]
    program: ProgramOptions,
    #[arg(value_name = "APP", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// One program of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) options: ProgramOptions,
    pub(crate) command: Vec<OsString>,
}

/// What the command line asks for.
pub(crate) enum Request {
    /// Print this text: help or the version.
    Print(String),
    /// Examine the machine, and these programs.
    Doctor(Vec<OsString>),
    Run(Box<JobOptions>, Vec<Section>),
}

/// Reads `spmdrun`'s arguments, without the program's own name.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Request, Error> {
    let mut parts = arguments.split(|argument| argument == OsStr::new(":"));
    let own = spellings::translated(parts.next().unwrap_or_default(), &First::command())?;
    let first = match First::try_parse_from(with_name(&own)) {
        Ok(first) => first,
        Err(error) => return refuse(error, ""),
    };
    let mut sections = vec![Section { options: first.program, command: first.command }];
    for (index, part) in parts.enumerate() {
        let place = format!("in program {}, after `:`: ", index + 2);
        let own = spellings::translated(part, &Further::command())?;
        match Further::try_parse_from(with_name(&own)) {
            Ok(further) => {
                sections.push(Section { options: further.program, command: further.command })
            }
            Err(error) => return refuse(error, &place),
        }
    }
    let page = match first.job.completions {
        Some(shell) => Some(pages::completions(shell, First::command())),
        None => first.job.man.then(|| pages::man(First::command())),
    };
    if let Some(text) = page {
        return Ok(Request::Print(String::from_utf8_lossy(&text).into_owned()));
    }
    if first.job.doctor {
        let names = sections.into_iter().filter_map(|section| section.command.into_iter().next());
        return Ok(Request::Doctor(names.collect()));
    }
    Ok(Request::Run(Box::new(first.job), sections))
}

fn with_name(part: &[OsString]) -> impl Iterator<Item = OsString> {
    std::iter::once(OsString::from("spmdrun")).chain(part.iter().cloned())
}

/// Turns clap's answer into text to print, or into an error of one line.
pub(crate) fn refuse(error: clap::Error, place: &str) -> Result<Request, Error> {
    if !error.use_stderr() {
        return Ok(Request::Print(error.render().to_string()));
    }
    let text = error.render().to_string();
    let told: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    let told = told.join("; ");
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    Err(Error::Usage(format!("{place}{told} (see --help)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn options_after_the_program_are_its_own() {
        let Ok(Request::Run(job, sections)) = parse(words("-n 2 app --tag -n 9 : -n 3 other -x"))
        else {
            panic!("refused")
        };
        assert!(!job.tag);
        assert_eq!(sections[0].options.ranks, Some(2));
        assert_eq!(sections[0].command, words("app --tag -n 9"));
        assert_eq!(sections[1].options.ranks, Some(3));
        assert_eq!(sections[1].command, words("other -x"));
    }

    #[test]
    fn errors_are_one_line() {
        for line in ["-n 0 app", "--rnks 3 app", "--as clouds app", "-n 1 app : --tag app"] {
            let Err(error) = parse(words(line)) else { panic!("{line} was accepted") };
            let text = error.to_string();
            assert!(!text.contains('\n') && !text.is_empty(), "{text}");
        }
    }
}
