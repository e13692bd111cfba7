//! `#[spmd::test]`: a test for each number of ranks in each place.

mod support;

use std::process::Command;

use spmd::Mode;
use spmd::prelude::*;

/// Neighbours' sums, on one rank, on two, and on an odd number.
#[spmd::test(ranks = [1, 2, 5], places = [threads, virtual_ranks, processes])]
fn sums(ctx: &Ctx) -> Result<()> {
    let n = ctx.size();
    assert_eq!(ctx.allreduce_value(ctx.rank(), Sum)?, n * (n - 1) / 2);
    Ok(())
}

#[spmd::test]
fn without_result(ctx: &Ctx) {
    assert!(matches!(ctx.size(), 1 | 2 | 5) && ctx.mode() != Mode::Processes);
}

#[spmd::test(ranks = [3], places = [processes])]
fn in_processes(ctx: &Ctx) -> Result<usize> {
    assert_eq!((ctx.size(), ctx.mode()), (3, Mode::Processes));
    Ok(ctx.rank())
}

#[spmd::test(ranks = [2])]
#[should_panic(expected = "rank 1 has a reason")]
fn panics(ctx: &Ctx) -> Result<()> {
    assert!(ctx.rank() != 1, "rank 1 has a reason");
    ctx.barrier()
}

/// Other tests have this one run, as one that fails.
#[spmd::test(ranks = [2], places = [threads, processes])]
#[ignore = "it fails"]
fn fails(ctx: &Ctx) -> Result<()> {
    if ctx.rank() == 1 {
        return Err("this rank wants to fail".into());
    }
    ctx.barrier()
}

#[spmd::test(ranks = [2], places = [processes])]
#[ignore = "where there is no `spmdrun`, it cannot panic"]
#[should_panic(expected = "a reason of one process")]
fn panics_in_a_process(ctx: &Ctx) -> Result<()> {
    assert!(ctx.rank() != 1, "a reason of one process");
    ctx.barrier()
}

#[spmd::test(ranks = [1])]
#[cfg(test)]
fn is_there(_: &Ctx) {}

#[spmd::test]
#[cfg(not(test))]
fn is_not_there(_: &Ctx) {
    this_does_not_compile();
}

mod inside {
    use super::*;

    #[spmd::test(ranks = [2], places = [threads, processes])]
    fn modules_are_part_of_the_name(ctx: &Ctx) -> Result<()> {
        ctx.barrier()
    }
}

/// Tests of this program once more, by their full names, with this `PATH`: no test that does so is
/// among them.
fn again(names: &[&str], path: &str) -> support::Ran {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    support::free(&mut command);
    command.args(names).args(["--exact", "--include-ignored"]);
    support::finish(command.env("PATH", path))
}

/// Where `spmdrun` lies.
fn folder() -> &'static str {
    let folder = support::spmdrun_path().parent().and_then(|it| it.to_str());
    folder.expect("a path of text")
}

#[test]
fn each_pair_is_a_test() {
    let ran = again(&["--list"], "");
    assert!(ran.out.contains("sums::virtual_ranks_2: test"), "{ran:?}");
    assert_eq!(ran.out.matches("sums::").count(), 9, "{ran:?}");
    assert_eq!(ran.out.matches("without_result::").count(), 6, "{ran:?}");
    assert!(ran.out.contains("is_there::threads_1") && !ran.out.contains("is_not_there"));
}

#[test]
#[cfg(target_os = "linux")]
fn processes_need_a_launcher() {
    let tests = ["sums::processes_1", "sums::processes_5", "in_processes::processes_3"];
    let without = again(&tests, "/nowhere");
    assert_eq!((without.code, without.err.matches("SKIPPED").count()), (Some(0), 3), "{without:?}");
    assert!(without.err.contains("SKIPPED in_processes::processes_3: there is no `spmdrun`"));

    let inside = "inside::modules_are_part_of_the_name::processes_2";
    let panics = "panics_in_a_process::processes_2";
    let with = again(&[tests[0], tests[1], tests[2], inside, panics], folder());
    assert!(with.code == Some(0) && !with.err.contains("SKIPPED"), "{with:?}");
    assert!(with.out.contains("5 passed"), "{with:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_failure_says_whose_it_is() {
    let ran = again(&["fails::threads_2", "fails::processes_2"], folder());
    assert!(ran.code == Some(101) && ran.out.contains("2 failed"), "{ran:?}");
    for place in ["threads_2", "processes_2"] {
        let (_, told) = ran.out.split_once(&format!("---- fails::{place}")).expect("it failed");
        let told = told.split("\n---- ").next().expect("a part");
        assert!(told.contains("rank 1") && told.contains("this rank wants to fail"), "{told}");
    }
}
