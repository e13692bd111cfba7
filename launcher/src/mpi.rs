//! `--transport mpi`: a job under the launcher that belongs to the MPI library.
//!
//! The job stays a [`Plan`] of one process, which is the MPI launcher: `spmdrun` starts it and
//! watches over it as over any process that holds all ranks. In the order of work: `hosts` reads
//! where ranks are to run, `linked` looks for the library of a program that is linked with one (the
//! others load the one that `spmd_mpi::find` finds), `launchers` for its launcher, `slurm` for
//! Slurm's, `probe` asks them who they are (`library`), `installation` says whether they belong
//! together (`family`), and `command` writes the command line. Ranks with a GPU find that on their host
//! (`on_gpu`).

mod command;
mod family;
pub(crate) mod hosts;
mod installation;
mod launchers;
mod library;
pub(crate) mod linked;
mod network;
mod on_gpu;
mod probe;
mod slurm;

use std::path::absolute;

use spmd_mpi::find::Here;

use crate::args::{Bind, Stdin};
use crate::environment::Environment;
use crate::error::Error;
use crate::plan::{Plan, Program};
use crate::variables::OWN;

use command::{App, MatchPattern};
pub(crate) use launchers::Kind;
pub(crate) use library::Library;
pub(crate) use network::network;
#[cfg(unix)]
pub(crate) use on_gpu::main as become_rank_on_gpu;
pub(crate) use probe::main;

/// Turns the plan of a job into that of its MPI launcher.
///
/// Errors: there is no library or no launcher for it, the hosts have too few slots, or the launcher
/// cannot do what is asked.
pub(crate) fn under(plan: Plan, environment: &Environment) -> Result<Plan, Error> {
    let each = plan.ranks_per_process;
    let hosts = hosts::share(&plan.hosts, plan.size / each, each)?;
    let paths = plan.programs.iter().map(|program| program.path.as_path());
    let library = Library::of_programs(paths)?;
    let launcher = library.launcher(&Here)?;
    if let Some(why) = &launcher.not_slurm {
        crate::report::say(&format!(
            "in this Slurm allocation, {why}; {}, the library's own launcher, starts the job",
            launcher.path.display()
        ));
    }
    // A program that is linked with its library looks for none.
    let loaded = library.abi.map(|_| library.file.as_path());
    let env = environment.under_mpi(&plan, loaded);
    let starter = plan.wanted_gpus.as_ref().map_or(Ok(Vec::new()), |wanted| {
        on_gpu::starter(&launcher.kind, wanted, plan.report_bindings)
    })?;
    let wanted = MatchPattern {
        starter,
        apps: plan.programs.iter().map(|program| app(program, each)).collect(),
        hosts,
        bind: &plan.bind,
        per_process: each,
        tag: plan.tag,
        report_bindings: plan.report_bindings,
        output_dir: plan.output_dir.as_ref().map(|dir| absolute(dir).unwrap_or(dir.clone())),
        stdin: plan.stdin,
        names: passed_on(&env),
        as_root: as_root(),
    };
    let line = command::line(&launcher.kind, &wanted)?;
    if let Some(dir) = wanted.output_dir.as_ref().filter(|_| !plan.dry_run) {
        std::fs::create_dir_all(dir)
            .map_err(|error| Error::Usage(format!("--output-dir {}: {error}", dir.display())))?;
    }
    let program = Program {
        ranks: plan.size,
        name: launcher.path.clone().into_os_string(),
        path: launcher.path,
        arguments: line.arguments,
        env: [env, line.env].concat(),
        cwd: None,
    };
    let stdin = if plan.stdin == Stdin::None { Stdin::None } else { Stdin::Rank(0) };
    Ok(Plan {
        under: Some(launcher.name),
        programs: vec![program],
        bind: Bind::None,
        report_bindings: false,
        tag: false,
        output_dir: None,
        stdin,
        ..plan
    })
}

fn app(program: &Program, each: usize) -> App<'_> {
    App {
        processes: program.ranks / each,
        path: &program.path,
        arguments: &program.arguments,
        env: &program.env,
        cwd: program.cwd.as_ref().map(|cwd| absolute(cwd).unwrap_or(cwd.clone())),
    }
}

/// The variables that a launcher passes on which does not pass on all: ours, those of Rust, and
/// where libraries lie.
fn passed_on(set: &[(String, std::ffi::OsString)]) -> Vec<String> {
    let here = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = |name: &String| {
        name.starts_with("SPMD_") || name.starts_with("RUST_") || name == "LD_LIBRARY_PATH"
    };
    let here = here.filter(|name| ours(name) && !OWN.contains(&name.as_str()));
    let mut names: Vec<String> = here.chain(set.iter().map(|(name, _)| name.clone())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Open MPI's launcher starts nothing for root unless told that it may.
fn as_root() -> bool {
    #[cfg(unix)]
    return rustix::process::geteuid().is_root();
    #[cfg(not(unix))]
    false
}
