//! The launcher of `spmd` programs: `spmdrun`, and `cargo spmdrun`.
//!
//! This library holds what the two binaries share; it has no other use. In the order of a job:
//! `args` reads the command line, `plan` checks it and finds the programs, `place` says which CPUs
//! each rank may use (`topology`), `environment` what it finds in its environment (`variables`),
//! `mpi` puts the job under an MPI library's own launcher where that is asked for, `run` goes from
//! start to end: `job` makes what the ranks share, `spawn` starts the processes (`process`) under
//! the care of a `watchdog`, `debugger` attaches to those that are debugged, `input` and `output` (`lines`) carry their streams to and from the
//! launcher's own (`streams`), `signals` and `alarm` make an `event` of what happens, by which
//! `supervise` watches over the job to the end, and `report` says how it went.

#![cfg_attr(not(unix), allow(dead_code, reason = "process ranks need Unix; see `portable`"))]

#[cfg(unix)]
mod alarm;
mod args;
mod cargo;
#[cfg(unix)]
mod debugger;
mod doctor;
mod dry_run;
mod environment;
mod error;
#[cfg(unix)]
mod event;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gpus;
#[cfg(unix)]
mod input;
mod job;
#[cfg(unix)]
mod lines;
mod mpi;
#[cfg(unix)]
mod output;
mod place;
mod plan;
#[cfg(not(unix))]
mod portable;
#[cfg(unix)]
mod process;
mod report;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod spawn;
#[cfg(unix)]
mod streams;
#[cfg(unix)]
mod supervise;
mod topology;
mod variables;
#[cfg(unix)]
mod watchdog;

use std::ffi::OsString;
use std::process::ExitCode;

use spmd_core::internal::unknown_variables;

use crate::args::{Request, Transport};
use crate::environment::Environment;
use crate::error::Error;
use crate::place::Places;
use crate::plan::Plan;

/// What `spmdrun` does, from its arguments to its exit status.
pub fn spmdrun() -> ExitCode {
    enter(args::parse)
}

/// What `cargo spmdrun` does: the same, after building the program with cargo.
pub fn cargo_spmdrun() -> ExitCode {
    enter(cargo::parse)
}

fn enter(parse: impl FnOnce(Vec<OsString>) -> Result<Request, Error>) -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = watchdog::main() {
        return code;
    }
    #[cfg(unix)]
    if let Some(code) = debugger::become_rank() {
        return code;
    }
    #[cfg(unix)]
    if let Some(code) = mpi::become_rank_on_gpu() {
        return code;
    }
    #[cfg(unix)]
    signals::survive_file_limits();
    if let Some(code) = mpi::main() {
        return code;
    }
    let done = parse(std::env::args_os().skip(1).collect()).and_then(carry_out);
    ExitCode::from(done.unwrap_or_else(|error| {
        report::say(&error.to_string());
        error.status()
    }))
}

fn carry_out(request: Request) -> Result<u8, Error> {
    let plan = match request {
        Request::Print(text) => {
            report::print(&text)?;
            return Ok(0);
        }
        Request::Doctor(names) => return doctor::examine(&names),
        Request::Run(job, sections) => Plan::new(*job, sections)?,
    };
    if plan.under.is_none() {
        let names = std::env::vars_os().map(|(name, _)| name);
        unknown_variables(names).iter().for_each(|warning| report::say(warning));
    }
    let environment = Environment::new(&plan)?;
    let plan = match plan.transport {
        Transport::Mpi => mpi::under(plan, &environment)?,
        _ => plan,
    };
    let places = Places::new(&plan.bind, plan.size)?;
    if plan.report_bindings {
        places.report(&plan);
    }
    if plan.dry_run {
        let job = job::create(&plan)?;
        report::print(&dry_run::describe(&plan, &places, &environment, job.as_ref()))?;
        return Ok(0);
    }
    run(&plan, &places, &environment)
}

#[cfg(not(unix))]
use portable::run;
#[cfg(unix)]
use run::run;
