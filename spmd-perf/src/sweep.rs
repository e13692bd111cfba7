//! `spmd-perf sweep`: everything, in all placements. Each is a job of its own under `spmdrun`,
//! whose result is a file; what is there already is not measured again.

pub(crate) mod args;
mod compare;
mod hosts;
mod placement;
mod result;
mod run;
mod scaling;
mod table;

use std::fs;
use std::path::Path;

use args::{Carrier, SweepArgs};
pub(crate) use compare::compare;
use hosts::Hosts;
use placement::{Placement, placements};
use result::{Job, Record, Settings};
use run::Runner;
use table::Table;

/// Measures what is not there yet, and draws everything.
///
/// Errors: what was asked for makes no sense, or other results are in the way: then nothing was
/// started. Some job failed: then all others have run.
pub(crate) fn sweep(args: &SweepArgs) -> Result<(), String> {
    outside()?;
    let hosts = Hosts::new(args)?;
    let jobs = jobs(args, placements(args, &hosts)?)?;
    let mpi = jobs.iter().any(|job| job.placement.transport == Carrier::Mpi);
    let runner = Runner::new(args.timeout, mpi)?;
    let folder = &args.out;
    let known: Vec<Option<Record>> = if folder.exists() {
        jobs.iter().map(|job| job.known(folder)).collect::<Result<_, _>>()?
    } else {
        vec![None; jobs.len()]
    };
    let left: Vec<&Job> =
        jobs.iter().zip(&known).filter_map(|(job, known)| known.is_none().then_some(job)).collect();
    if args.dry_run {
        left.iter().for_each(|job| println!("{}", runner.line(job)));
        return Ok(());
    }
    check(&runner, &left)?;
    fs::create_dir_all(folder).map_err(|error| format!("--out {}: {error}", folder.display()))?;
    let _lock = lock(folder)?;

    let mut table = Table::begin(&jobs, left.len());
    let mut good = Record::all(folder)?;
    good.retain(|record| record.error.is_none());
    for job in left {
        let mut record = runner.run(job);
        let same = good.iter().find(|it| it.placement.transport == record.placement.transport);
        if let (None, Some(same)) = (&record.error, same) {
            record.error = record.differs_from(same);
        }
        record.write(&job.file(folder))?;
        table.line(&record);
        if record.error.is_none() {
            good.push(record);
        }
    }
    let pictures = scaling::draw(&[(String::new(), good)], folder)?;
    table.end(folder, &pictures)
}

/// Errors: this process is one of a world.
fn outside() -> Result<(), String> {
    const STARTED: [&str; 5] =
        ["SPMD_JOB", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"];
    match STARTED.into_iter().find(|name| std::env::var_os(name).is_some()) {
        None => Ok(()),
        Some(name) => Err(format!(
            "sweep starts jobs by itself, and was started as part of one ({name} is set); run it \
             without spmdrun, mpiexec or srun"
        )),
    }
}

/// All that there is to measure, placement by placement.
fn jobs(args: &SweepArgs, placements: Vec<Placement>) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for placement in placements {
        for &bench in &args.bench {
            let sizes = placement.sizes(bench, &args.sizes);
            if sizes.is_empty() {
                continue;
            }
            let (bind, env) = (args.bind.clone(), args.env.clone());
            let settings = Settings { sizes, seconds: args.seconds, bind, env };
            jobs.push(Job { bench, placement: placement.clone(), settings });
        }
    }
    match jobs.is_empty() {
        true => Err("nothing can be measured there: message-rate needs an even number of ranks, \
                     overlaps need shared memory, and blocks for all ranks fit into 128 MiB"
            .into()),
        false => Ok(jobs),
    }
}

/// Asks whether the largest job of each kind can be started, before one is.
fn check(runner: &Runner, jobs: &[&Job]) -> Result<(), String> {
    let mut seen = Vec::new();
    for job in jobs.iter().rev() {
        if !seen.contains(&job.placement.mode) {
            seen.push(job.placement.mode);
            runner.check(job)?;
        }
    }
    Ok(())
}

/// Keeps other sweeps out of a folder for as long as the result lives.
///
/// Errors: one is at work there.
#[cfg(unix)]
fn lock(folder: &Path) -> Result<Option<fs::File>, String> {
    let Ok(file) = fs::File::open(folder) else { return Ok(None) };
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(format!(
            "another sweep is at work in {}; wait for it, or use another --out",
            folder.display()
        )),
        // Some file systems have no locks.
        _ => Ok(Some(file)),
    }
}

#[cfg(not(unix))]
fn lock(_: &Path) -> Result<Option<fs::File>, String> {
    Ok(None)
}
