//! Ranks with a GPU each, in processes of their own environment.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::process::Command;

use spmd_gpu::probe;

pub const NAMED: [&str; 4] = ["--exact", "--ignored", "--nocapture", "--quiet"];

/// Runs a test of this file in an environment with these changes; ranks that are threads.
pub fn threads(test: &str, changes: &[(&str, &str)]) -> crate::support::Ran {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.arg(test).args(NAMED).env("SPMD_STANDIN_CARDS", "8").envs(changes.iter().copied());
    crate::support::finish(&mut command)
}

/// The same as processes, with a card each.
pub fn processes(ranks: usize, test: &str, changes: &[(&str, &str)]) -> crate::support::Ran {
    let ranks = &ranks.to_string();
    let mut job = crate::support::spmdrun(&["--as", "gpus", "-n", ranks]);
    job.arg(std::env::current_exe().expect("a test knows its own path")).arg(test).args(NAMED);
    job.env("SPMD_STANDIN_CARDS", ranks).envs(changes.iter().copied());
    crate::support::finish(&mut job)
}

/// The same in worlds of MPI, each process on a host of its own, as far as the library is told, where there is such a
/// library.
pub fn processes_over_mpi(
    ranks: usize,
    test: &str,
    changes: &[(&str, &str)],
) -> Vec<crate::support::Ran> {
    let ranks = &ranks.to_string();
    let all = crate::support::Mpi::all();
    let worlds = all.iter().filter(|mpi| mpi.name == "mpich").map(|mpi| {
        let mut world = mpi.spmdrun(&["--as", "gpus", "--transport", "mpi", "-n", ranks]);
        world
            .arg(std::env::current_exe().expect("a test knows its own path"))
            .arg(test)
            .args(NAMED);
        world.env("SPMD_STANDIN_CARDS", ranks).env("MPIR_CVAR_NOLOCAL", "1");
        world.envs(changes.iter().copied());
        crate::support::finish(&mut world)
    });
    worlds.collect()
}

/// Whether there are a GPU and NCCL, of whatever kind. Says so where they are not.
pub fn nccl() -> bool {
    let here = probe();
    crate::card::is_here(here.ready().and(here.nccl.map(drop)))
}
