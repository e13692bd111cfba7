use clap::Parser;

use super::*;
use crate::args::{Args, Command};

/// The arguments of a sweep with this command line.
fn args(line: &str) -> SweepArgs {
    let words = ["spmd-perf", "sweep", "--out", "there"].into_iter().chain(line.split_whitespace());
    match Args::try_parse_from(words).unwrap().command {
        Some(Command::Sweep(args)) => *args,
        other => panic!("{other:?}"),
    }
}

fn of(line: &str) -> Result<Vec<Placement>, String> {
    let args = args(line);
    placements(&args, &Hosts::new(&args)?)
}

#[track_caller]
fn names(line: &str) -> Vec<String> {
    of(line).unwrap().iter().map(Placement::name).collect()
}

#[test]
fn hosts_by_ranks_by_what_ranks_are() {
    assert_eq!(names("--ranks-per-host 2,2"), ["shm-1x2-processes"]);
    assert_eq!(
        names("--ranks-per-host 2,4 --as processes,virtual"),
        ["shm-1x2-processes", "shm-1x2-virtual2", "shm-1x4-processes", "shm-1x4-virtual4"]
    );
    assert_eq!(
        names("--hosts a,b,c --ranks-per-host 1,4"),
        ["mpi-2x1-processes", "mpi-3x1-processes", "mpi-1x4-processes", "mpi-2x4-processes"]
            .into_iter()
            .chain(["mpi-3x4-processes"])
            .collect::<Vec<_>>()
    );
    assert_eq!(
        names("--hosts a,b --host-counts 2 --ranks-per-host 8 --ranks-per-process 2,8"),
        ["mpi-2x8-processes", "mpi-2x8-threads2", "mpi-2x8-threads8"]
    );
    assert_eq!(
        names("--hosts a:4,b:8 --as threads"),
        ["mpi-1x2-threads2", "mpi-1x4-threads4", "mpi-2x2-threads2", "mpi-2x4-threads4"]
    );
    assert_eq!(
        names("--transport mpi --ranks-per-host 4 --ranks-per-process 2"),
        ["mpi-1x4-processes", "mpi-1x4-threads2"]
    );
}

#[test]
fn what_spmdrun_is_told() {
    let options = |line: &str| of(line).unwrap().pop().unwrap().options().join(" ");
    assert_eq!(options("--ranks-per-host 4"), "--transport shm -n 4 --as processes");
    assert_eq!(
        options("--hosts a,b --ranks-per-host 4 --ranks-per-process 2"),
        "--transport mpi -n 8 --as threads --ranks-per-process 2 --host a:4,b:4"
    );
}

#[test]
fn what_does_not_go_together() {
    for (line, words) in [
        ("--hosts a,b --transport shm", "joins no hosts"),
        ("--ranks-per-process 2", "--transport mpi"),
        ("--hosts a,b --host-counts 3", "there are 2 hosts"),
        ("--hosts a:2,b:4 --ranks-per-host 4", "some host has 2 slots"),
        ("--hosts a --as processes --ranks-per-process 2", "--as threads"),
        ("--hosts a --ranks-per-host 4 --ranks-per-process 3", "divides none"),
        ("--ranks-per-host 1", "one rank alone"),
        ("--ranks-per-host 2,1", "--ranks-per-host 1 is measured nowhere"),
        ("--hosts a,b --as threads --ranks-per-host 1,4", "--ranks-per-host 1 is measured nowhere"),
        ("--hosts a,b --host-counts 1,2 --ranks-per-host 1", "--host-counts 1 is measured nowhere"),
        (
            "--hosts a,b --as processes,virtual --ranks-per-host 1",
            "--as virtual is measured nowhere",
        ),
        ("--hosts a=b:x", "is not a host"),
        ("--hostfile /no/such/file", "cannot read the hostfile"),
    ] {
        let told = of(line).unwrap_err();
        assert!(told.contains(words), "{line}: {told}");
    }
}

#[test]
fn sizes_that_fit() {
    let placement = of("--hosts a,b --ranks-per-host 32").unwrap().pop().unwrap();
    let sizes = |bench| placement.sizes(bench, &[8, 2 << 20, 4 << 20]);
    assert_eq!(sizes(Bench::Allreduce), [8, 2 << 20, 4 << 20]);
    assert_eq!(sizes(Bench::Alltoall), [8, 2 << 20]);
    assert_eq!(sizes(Bench::Barrier), [0]);
    let odd = of("--ranks-per-host 3").unwrap().pop().unwrap();
    assert!(odd.sizes(Bench::MessageRate, &[8]).is_empty());
}
