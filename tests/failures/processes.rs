//! Process ranks that fail in every way, while the others reduce much data.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use spmd::prelude::*;

use crate::job::{BOUND, DEED, Ended, Job, exit_with, say, say_arena, wait_until};
use crate::support::is_process_rank;

/// What rank 1 does.
fn deed(name: &str, ctx: &Ctx) -> Result<()> {
    let signal = |signal| {
        kill_process(getpid(), signal).expect("a process may signal itself");
        std::thread::sleep(Duration::from_secs(100));
    };
    say(name);
    match name {
        "panic" => panic!("deliberate"),
        "bomb" => std::panic::panic_any(Bomb),
        "err" => return Err("deliberate".into()),
        "ok" => return Ok(()),
        "exit" => std::process::exit(7),
        "exit 0" => std::process::exit(0),
        "kill" => signal(Signal::KILL),
        "abort" => std::process::abort(),
        "segv" => touch_forbidden_memory(),
        "stop" => signal(Signal::STOP),
        "operation" => {
            let mut data = vec![1.0; 200_000];
            ctx.allreduce_in_place(&mut data, sum_or_panic(true))?;
        }
        "caught" => {
            let mut data = vec![1.0; 200_000];
            let call = || ctx.allreduce_in_place(&mut data, sum_or_panic(true));
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
            assert!(caught.is_err(), "{caught:?}");
        }
        other => return Err(format!("no such deed: {other}").into()),
    }
    Ok(())
}

/// What a panic carries may panic when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any(Bomb);
        }
    }
}

/// All ranks make their operation here, so that it is the same one.
fn sum_or_panic(panics: bool) -> Op<impl Fn(f64, f64) -> f64 + Sync> {
    Op::new(move |a: f64, b: f64| if panics { panic!("deliberate") } else { a + b })
}

/// Dies of SIGSEGV.
fn touch_forbidden_memory() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing one. The
    // page is there and aligned, so the write is defined as far as Rust goes; the processor
    // refuses it, which is the point.
    unsafe {
        let page =
            mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::empty(), MapFlags::PRIVATE);
        page.expect("a page can be reserved").cast::<u8>().write_volatile(1);
    }
}

#[test]
#[ignore = "the program of the other tests"]
fn program() {
    if !is_process_rank() {
        return;
    }
    let name = std::env::var(DEED).expect("set by the test");
    if name == "kill first" {
        // Before any rank has entered the world, which the others do nevertheless.
        // SAFETY: to ignore a signal touches no memory.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
        std::thread::sleep(Duration::from_millis(500));
        if std::env::var("SPMD_RANK").is_ok_and(|rank| rank == "1") {
            say(&name);
            kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let result = run(|ctx| {
        let mut data = vec![1.0; 200_000];
        ctx.allreduce_in_place(&mut data, Sum)?;
        if ctx.rank() == 0 {
            say_arena();
        }
        match name.as_str() {
            "wait" => {
                say("ready");
                std::thread::sleep(Duration::from_secs(100));
            }
            name if ctx.rank() == 1 => return deed(name, ctx),
            _ => {}
        }
        // Of a failed operation every rank's own is told apart by its number alone.
        match name.as_str() {
            "operation" | "caught" => ctx.allreduce_in_place(&mut data, sum_or_panic(false)),
            _ => ctx.allreduce_in_place(&mut data, Sum),
        }
    });
    exit_with(result.map(drop));
}

fn fail(deed: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let variables: Vec<_> = variables.iter().copied().chain([(DEED, deed)]).collect();
    Job::start("processes::program", arguments, &variables).end()
}

/// The survivors' errors, which they must have got soon after rank 1 did its deed.
fn survivors(ended: &Ended, ranks: usize) -> Vec<String> {
    let said = ended.said();
    let failed = said.iter().find(|said| said.rank == 1).expect("rank 1 says what it does").at;
    let others: Vec<_> = said.iter().filter(|said| said.rank != 1).collect();
    assert_eq!(others.len(), ranks - 1, "{ended:?}");
    for said in &others {
        let after = Duration::from_millis(said.at.saturating_sub(failed) as u64);
        assert!(after < BOUND, "{after:?}: {said:?}");
    }
    others.into_iter().map(|said| said.text.clone()).collect()
}

#[test]
fn every_way_to_fail() {
    let ways = [
        ("panic", 101, "it panicked: deliberate at tests/failures/processes.rs:"),
        ("operation", 101, "it panicked: deliberate at tests/failures/processes.rs:"),
        // The block fails, whatever the rank makes of it.
        ("caught", 1, "it panicked: deliberate at tests/failures/processes.rs:"),
        ("err", 1, "it returned an error: deliberate"),
        ("exit", 7, "its process exited with status 7"),
        ("exit 0", 1, "its process exited with status 0"),
        ("kill", 128 + 9, "its process was killed by signal 9 (SIGKILL)"),
        ("abort", 128 + 6, "its process was killed by signal 6 (SIGABRT)"),
        ("segv", 128 + 11, "its process was killed by signal 11 (SIGSEGV)"),
    ];
    for (deed, code, cause) in ways {
        for ranks in [2, 4] {
            let ended = fail(deed, &["-n", &ranks.to_string()], &[]);
            for error in survivors(&ended, ranks) {
                assert!(
                    error.contains(&format!("rank 1 failed first: {cause}")),
                    "{deed}: {error}"
                );
                assert!(
                    error.starts_with("allreduce_in_place of 200000 f64 with "),
                    "{deed}: {error}"
                );
            }
            assert_eq!(ended.code, Some(code), "{deed}: {ended:?}");
            let last = format!("spmdrun: rank 1 failed first: {cause}");
            assert!(ended.last_line().starts_with(&last), "{deed}: {ended:?}");
            let panics = cause.starts_with("it panicked");
            assert_eq!(ended.err.contains("spmd: rank 1 panics:"), panics, "{deed}: {ended:?}");
        }
    }
}

/// The others are told before anything of it is dropped. What becomes of the process then is up to
/// whoever catches it, here the harness.
#[test]
fn a_panic_that_panics_when_dropped() {
    let ended = fail("bomb", &["-n", "3"], &[]);
    for error in survivors(&ended, 3) {
        assert!(error.contains("rank 1 failed first: it panicked"), "{error}");
    }
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
}

#[test]
fn a_rank_that_dies_before_any_has_entered() {
    let ended = fail("kill first", &["-n", "2", "--grace", "2s"], &[]);
    for error in survivors(&ended, 2) {
        assert!(
            error.contains("rank 1 failed first: its process was killed by signal 9"),
            "{error}"
        );
    }
    assert_eq!(ended.code, Some(137), "{ended:?}");
    assert!(ended.last_line().starts_with("spmdrun: rank 1 failed first: "), "{ended:?}");
}

#[test]
fn a_rank_that_returns_early() {
    let ended = fail("ok", &["-n", "3"], &[]);
    let texts = survivors(&ended, 3);
    for error in texts {
        assert!(error.contains("rank 1 ended its block while another rank waited"), "{error}");
    }
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    assert!(ended.last_line().contains("rank 1"), "{ended:?}");
}

#[test]
fn a_large_job() {
    let ended = fail("kill", &["-n", "24"], &[]);
    for error in survivors(&ended, 24) {
        assert!(
            error.contains("rank 1 failed first: its process was killed by signal 9"),
            "{error}"
        );
    }
    assert_eq!(ended.code, Some(137), "{ended:?}");
}

#[test]
fn a_stopped_rank_and_the_time_limit_of_the_job() {
    let ended = fail("stop", &["-n", "3", "--timeout", "700ms", "--grace", "300ms"], &[]);
    assert_eq!(ended.code, Some(124), "{ended:?}");
    assert!(ended.last_line().contains("time limit of 700ms"), "{ended:?}");
    assert!(
        ended.err.contains("allreduce_in_place of 200000 f64 with Sum at tests/failures"),
        "{ended:?}"
    );
    assert!(ended.err.contains("waiting for rank 1"), "{ended:?}");
    assert!(ended.took < BOUND + Duration::from_secs(1), "{ended:?}");
}

#[test]
fn a_stopped_rank_and_the_time_limit_of_calls() {
    let ended = fail("stop", &["-n", "3", "--grace", "300ms"], &[("SPMD_TIMEOUT", "0.5")]);
    let said = ended.said();
    let timed_out = |text: &str| text.contains("longer than the limit of 500ms");
    assert!(said.iter().any(|said| said.rank != 1 && timed_out(&said.text)), "{ended:?}");
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    assert!(ended.took < BOUND + Duration::from_secs(1), "{ended:?}");
}

#[test]
fn a_launcher_that_is_killed() {
    for turn in 0..3 {
        let job = Job::start("processes::program", &["-n", "3"], &[(DEED, "wait")]);
        // The first time before the ranks have started, then when they have.
        wait_until("the job runs", || turn == 0 || job.processes().len() == 5);
        let launcher = rustix::process::Pid::from_raw(job.pid() as i32).expect("it has a number");
        kill_process(launcher, Signal::KILL).expect("it is there");
        let ended = job.end();
        assert_eq!(ended.code, None, "{ended:?}");
        assert!(ended.took < BOUND + Duration::from_secs(1), "{ended:?}");
    }
}
