//! Windows over MPI: parts that are mapped, parts that are reached by requests, and both.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spmd::prelude::*;
use spmd_conformance::windows;

use crate::mistakes::is_last;
use crate::support::{Mpi, across_to_its_end};
use crate::{FLAT, everywhere, most};

#[test]
fn every_call_of_windows() -> Result<()> {
    let places = [(4, 1, "threads"), (2, 2, "threads"), (2, 2, "virtual")];
    everywhere("windows::every_call_of_windows", most(&places), &[], windows::all)
}

/// A step does not hold up a process that others may ask for something.
#[test]
fn windows_are_served_during_barriers() -> Result<()> {
    let test = "windows::windows_are_served_during_barriers";
    everywhere(test, &[FLAT], &[], windows::used_during_barriers)
}

/// Keeps every second process from opening files, so that it maps no part, and nobody maps its own.
fn with_some_that_cannot_map(ctx: &Ctx) -> Result<()> {
    let before = getrlimit(Resource::Nofile);
    let each = std::env::var("SPMD_RANKS_PER_PROCESS").ok().and_then(|it| it.parse().ok());
    let mut all = Vec::new();
    if ctx.rank() / each.unwrap_or(1) % 2 == 1 {
        let few = Rlimit { current: Some(256), maximum: before.maximum };
        setrlimit(Resource::Nofile, few).expect("a process may lower its own limit");
        all.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
    }
    ctx.barrier()?;
    windows::all(ctx)?;
    ctx.barrier()?;
    setrlimit(Resource::Nofile, before).expect("up to the hard limit");
    Ok(())
}

/// What some access directly and others by requests is the same memory.
#[test]
fn windows_of_which_some_parts_cannot_be_mapped() -> Result<()> {
    let places = [(4, 1, "threads"), (3, 2, "virtual")];
    let test = "windows::windows_of_which_some_parts_cannot_be_mapped";
    everywhere(test, &places, &[], with_some_that_cannot_map)
}

/// Processes that a library takes for ones of several hosts share no memory.
#[test]
fn windows_over_several_hosts() -> Result<()> {
    let test = "windows::windows_over_several_hosts";
    let hosts = [("MPIR_CVAR_NOLOCAL", "1")];
    for mpi in Mpi::all().into_iter().filter(|mpi| mpi.name == "mpich") {
        crate::cluster(test, &mpi, (3, 1, "threads"), &hosts, |ctx| {
            assert_eq!(ctx.split_host()?.size(), 1);
            windows::all(ctx)
        })?;
    }
    Ok(())
}

/// A process need not do anything for those of its host that access its part.
#[test]
fn a_process_that_is_elsewhere_holds_nobody_up() -> Result<()> {
    let places = [FLAT, (2, 2, "threads")];
    everywhere("windows::a_process_that_is_elsewhere_holds_nobody_up", &places, &[], |ctx| {
        let (last, n) = (ctx.size() - 1, 1 << 17);
        let window = ctx.window::<u64>(n)?;
        // Rank 0, where that lies, is there.
        window.lock_all()?;
        ctx.barrier()?;
        if ctx.rank() == 0 {
            let start = Instant::now();
            let mut all = vec![0; n];
            for turn in 0..100 {
                window.put(&vec![turn; n], last, 0)?;
                window.flush(last)?;
                assert_eq!(window.fetch_and_op(1, last, 7, Sum)?, turn);
                window.get(&mut all, last, 0)?;
                assert!(all.iter().enumerate().all(|(at, it)| *it == turn + u64::from(at == 7)));
            }
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        } else if is_last(ctx) {
            thread::sleep(Duration::from_secs(3));
        }
        ctx.barrier()?;
        if is_last(ctx) {
            assert_eq!((window.read(..)?[7], window.read(8..9)?[0]), (100, 99));
        }
        window.unlock_all()
    })
}

/// How many descriptors this process has, and how many bytes it has mapped.
fn kept() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = pages.split(' ').next().and_then(|all| all.parse::<usize>().ok());
    (descriptors, pages.expect("it starts with a number") * rustix::param::page_size())
}

/// What is shared goes with the window.
#[test]
fn windows_leave_nothing() -> Result<()> {
    everywhere("windows::windows_leave_nothing", &[FLAT, (2, 2, "virtual")], &[], |ctx| {
        let n = 4 << 20;
        let make = || {
            let window = ctx.window::<u8>(n)?;
            window.fence()?;
            window.put(&vec![1; n], ctx.size() - 1 - ctx.rank(), 0)?;
            window.free()
        };
        make()?;
        let before = kept();
        for _ in 0..100 {
            make()?;
        }
        // That all have dropped the last ones may not be known yet.
        let after = kept();
        let more = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        assert!(more.0 < 20 && more.1 < 40 * n, "{before:?}, then {after:?}");
        ctx.barrier()
    })
}

/// Who accesses the part of a process that is gone is told, though the memory is still there.
#[test]
fn a_process_that_is_killed_among_accesses() -> Result<()> {
    let test = "windows::a_process_that_is_killed_among_accesses";
    for mpi in Mpi::all() {
        for place in [(3, 1, "threads"), (2, 2, "threads")] {
            let start = Instant::now();
            let body = |ctx: &Ctx| {
                let window = ctx.window::<u64>(3000)?;
                window.lock_all()?;
                ctx.barrier()?;
                if is_last(ctx) {
                    thread::sleep(Duration::from_millis(300));
                    rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::KILL,
                    )
                    .expect("it is this process");
                }
                let last = ctx.size() - 1;
                loop {
                    window.put(&[1; 3000], last, 0)?;
                    window.get(&mut [0; 3000], last, 0)?;
                    window.fetch_and_op(1, last, 0, Sum)?;
                    window.flush(last)?;
                }
                #[expect(unreachable_code, reason = "it says what the loop would give")]
                Ok(())
            };
            let Some(ran) = across_to_its_end(test, &mpi, place, &[], body)? else { continue };
            assert!(ran.code != Some(0), "{}, {place:?}: {ran:?}", mpi.name);
            assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        }
    }
    Ok(())
}
