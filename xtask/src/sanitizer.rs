//! AddressSanitizer on the arenas and all that reads and writes them by raw pointers;
//! ThreadSanitizer on worlds of several processes in one; both on device buffers.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::steps::Outcome;
use crate::tools::{self, built, cargo, command};
use crate::{gpu, programs, runner};

/// Tests of what memory is taken and where variables lie, which the sanitizer changes.
const UNFIT: [&str; 2] =
    ["ranks_that_never_wait_share_a_stack", "started_coroutines_take_little_memory"];

pub(crate) fn run() -> Outcome {
    let Some(host) = tools::host() else { return Outcome::Skipped("rustc does not run".into()) };
    if !has_runtime(&host, "asan") {
        return Outcome::Skipped("this toolchain has no AddressSanitizer for this machine".into());
    }
    // It does nothing that the sanitizer is to see.
    if let Err(why) = programs::lend_launcher(&built(FOLDER).join(&host).join("debug")) {
        return Outcome::failed(why);
    }
    let left_out = UNFIT.iter().chain(long()).chain(left_to(&RACED)).chain(left_to(&MANY));
    let left_out: Vec<&str> = left_out.copied().collect();
    let tests = chosen(&host, &left_out, |tests| {
        packages(tests);
        tests.arg("--no-fail-fast");
        files(tests);
    });
    match on_card(&host, "address", &BOUNDS, 1, packages) {
        Ok(devices) => Outcome::of_all([tests].into_iter().chain(devices).map(sanitized)),
        Err(why) => Outcome::failed(why),
    }
}

/// Builds what [`run`] runs.
pub(crate) fn build() -> Option<Command> {
    let _ = gpu::has_compiler().then(|| gpu::stand_in(Some("address")));
    let mut build = sanitizable("test", &tools::host()?);
    packages(&mut build);
    files(&mut build);
    build.args(ON_CARD).arg("--no-run");
    Some(sanitized(build))
}

/// Always the same ones, so that each is compiled with the same features.
fn packages(tests: &mut Command) {
    tests.args(["--features", "corosensei/sanitizer"]);
    let packages = ["spmd", "spmd-tests", "spmd-core", "spmd-collectives"];
    tests.args(packages.iter().flat_map(|it| ["--package", it]));
}

/// `hostile` is a peer that writes where it must not, among processes; `loopback` are worlds of several
/// processes in one, where an MPI would read and write what the sanitizer does not see; `tasks` are those
/// whose memory others free.
fn files(tests: &mut Command) {
    tests.args(["--lib", "--test", "hostile", "--test", "loopback", "--test", "tasks"]);
    tests.args(tests_of("spmd-collectives").iter().flat_map(|name| ["--test", name]));
}

/// The names of a crate's files of tests.
fn tests_of(name: &str) -> Vec<String> {
    let files =
        fs::read_dir(tools::root().join(name).join("tests")).into_iter().flatten().flatten();
    let sources = files.map(|file| file.path()).filter(|path| path.is_file());
    sources.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
}

/// What is built with AddressSanitizer, in the target folder.
const FOLDER: &str = "sanitizer";

/// The command with the sanitizer on, in a folder of its own, for the target that it names: flags for
/// a named target do not reach build scripts and macros.
fn sanitized(mut command: Command) -> Command {
    // Sanitizers are not stable yet: this lets the stable compiler build with them.
    let flags = format!("-Zsanitizer=address {EXPORT_RUNTIME} --cfg sanitizer{}", few_types());
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("CARGO_TARGET_DIR", built(FOLDER));
    // SIGSEGV is the library's, which tells a stack overflow. A second stack for each coroutine,
    // to find uses of variables after their function's end, would take gigabytes. Leaks are told
    // by looking through the stacks of all threads, which fails where ranks have stacks of their
    // own.
    let options = "handle_segv=0:detect_stack_use_after_return=0:detect_leaks=0:\
                   allocator_may_return_null=1";
    command.env("ASAN_OPTIONS", options);
    command
}

/// What a program loads, the stand-in card, finds its sanitizer there.
const EXPORT_RUNTIME: &str = "-Clink-arg=-rdynamic";

/// The files of tests of device buffers, and those of them that are run: of where kernels read and write, and of what orders that.
const ON_CARD: [&str; 6] = ["--test", "gpu", "--test", "gpu_memory", "--test", "gpu_nccl"];
const BOUNDS: [&str; 5] = [
    "four",
    "by_way_of_the_host",
    "buffers::halos_of_device_buffers",
    "buffers::buffers_are_copied_and_checked",
    "faults::a_kernel_that_goes_out_of_bounds_is_found",
];
const ORDERED: [&str; 14] = [
    "two",
    "by_way_of_the_host",
    "buffers::halos_of_device_buffers",
    "order::what_is_dropped_after_a_call_has_been_used",
    "order::a_buffer_goes_from_rank_to_rank",
    "order::ranks_share_a_buffer_that_they_read",
    "order::who_writes_a_buffer_waits_for_all_that_read_it",
    "order::a_progress_thread_keeps_the_order",
    "order::calls_that_go_on_take_device_buffers",
    "kernels_and_the_host_take_turns",
    "calls_take_unified_buffers",
    "a_unified_buffer_is_read_by_all_and_dropped",
    "every_collective_of_threads_is_right_in_groups",
    "faults::streams_that_no_event_orders_are_found",
];

/// What `--full` alone runs: it takes minutes, and differs from other tests in who folds which
/// types, or in threads that are started by the program.
const LONG: [&str; 3] = ["matrix::every_type", "folded_by_ranks", "matrix::threads_of_a_rank"];

fn long() -> &'static [&'static str] {
    if is_full() { &[] } else { &LONG }
}

/// The same mistakes are made by ranks of each kind: those that are threads are left to ThreadSanitizer, those that
/// are not to AddressSanitizer, but for `--full`. So are orders in which messages and calls come: what is read and
/// written in them is what other tests read and write.
const RACED: [&str; 4] = [
    "mistakes_of_single_ranks",
    "mistakes_of_threads",
    "matrix::messages_that_overtake_each_other",
    "matrix::collectives_beside_their_ranks",
];
const ADDRESSED: [&str; 1] = ["mistakes_of_virtual_ranks"];

/// What `--full` alone runs under AddressSanitizer: very many of what other tests have some of.
const MANY: [&str; 6] = [
    "areas_are_used_again",
    "graphs::a_million_wait_in_the_queue",
    "arrays::a_hundred_thousand_tasks",
    "reducing::the_same_bits",
    "thousands_of_virtual_ranks",
    "one_element_for_each_of_thousands",
];

/// These, but for `--full`.
fn left_to(names: &'static [&'static str]) -> &'static [&'static str] {
    if is_full() { &[] } else { names }
}

/// Those of the loopback fabric that are to be run without a sanitizer: all where [`races`] runs none.
pub(crate) fn left_to_others() -> Option<&'static [&'static str]> {
    let runs = tools::host().is_some_and(|host| has_runtime(&host, "tsan"));
    (runs && !is_full()).then_some(&LONG)
}

/// Runs the tests of the loopback fabric, and of device buffers, under ThreadSanitizer. The standard
/// library as it comes is not built for it, so that what it orders by fences is not seen (`tsan.supp`).
pub(crate) fn races() -> Outcome {
    let Some(host) = tools::host() else { return Outcome::Skipped("rustc does not run".into()) };
    if !has_runtime(&host, "tsan") {
        return Outcome::Skipped("this toolchain has no ThreadSanitizer for this machine".into());
    }
    let left_out: Vec<&str> = long().iter().chain(left_to(&ADDRESSED)).copied().collect();
    let mut loopback = chosen(&host, &left_out, |tests| {
        package(tests);
        tests.args(["--test", "loopback", "--no-fail-fast"]);
    });
    if !runner::has_nextest() {
        // What is captured goes through a lock of the standard library.
        loopback.args(["--nocapture", "--test-threads", "1"]);
    }
    let seeds = if is_full() { 200 } else { 2 };
    match on_card(&host, "thread", &ORDERED, seeds, package) {
        Ok(devices) => Outcome::of_all([loopback].into_iter().chain(devices).map(raced)),
        Err(why) => Outcome::failed(why),
    }
}

/// Builds what [`races`] runs.
pub(crate) fn build_for_races() -> Option<Command> {
    let _ = gpu::has_compiler().then(|| gpu::stand_in(Some("thread")));
    let mut build = sanitizable("test", &tools::host()?);
    package(&mut build);
    build.args(["--test", "loopback", "--no-run"]).args(ON_CARD);
    Some(raced(build))
}

fn package(tests: &mut Command) {
    tests.args(["--package", "spmd-tests"]);
}

/// These tests of device buffers, on a stand-in card that is built for the sanitizer as well, with
/// delays from so many seeds: an access that no stream and no event orders after another one is a
/// race there, and one behind the end of a buffer is found.
fn on_card(
    host: &str,
    sanitizer: &'static str,
    names: &[&str],
    seeds: u32,
    which: impl Fn(&mut Command),
) -> Result<Vec<Command>, String> {
    if !gpu::has_compiler() {
        println!("There is no C++ compiler (c++), of which the stand-in card is made");
        return Ok(Vec::new());
    }
    let card = gpu::stand_in(Some(sanitizer))?;
    let command = |seed: u32| {
        let mut tests = sanitizable("test", host);
        which(&mut tests);
        tests.args(ON_CARD).args(["--", "--exact"]).args(names);
        tests.env("LD_LIBRARY_PATH", &card).env("SPMD_REQUIRE_GPU", "1");
        tests.env("SPMD_STANDIN_SEED", seed.to_string());
        if seed > 1 {
            // More delays, not more cases.
            tests.env_remove("SPMD_TEST_FULL");
        }
        tests
    };
    Ok((1..=seeds).map(command).collect())
}

/// The command with ThreadSanitizer on, in a folder of its own.
fn raced(mut command: Command) -> Command {
    let flags =
        "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg sanitizer --cfg races";
    let flags = format!("{flags} {EXPORT_RUNTIME}{}", few_types());
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("CARGO_TARGET_DIR", built("races"));
    let suppressions = tools::root().join("xtask/tsan.supp");
    // Processes that are killed leave their threads where they are. More memory than there is is an
    // error that the tests ask for.
    let options = format!(
        "suppressions={} report_thread_leaks=0 allocator_may_return_null=1",
        suppressions.display()
    );
    command.env("TSAN_OPTIONS", options);
    command
}

fn is_full() -> bool {
    std::env::var_os("SPMD_TEST_FULL").is_some()
}

/// The flag by which the conformance suite is compiled for some of the types.
fn few_types() -> &'static str {
    if is_full() { "" } else { " --cfg few_types" }
}

/// The tests for a target that `which` chooses, but for those that are left out. With nextest each
/// test is a process: processes of `loopback` that have ended leave threads behind, which take
/// time.
fn chosen(host: &str, left_out: &[&str], which: impl FnOnce(&mut Command)) -> Command {
    let nextest = runner::has_nextest();
    let mut tests = sanitizable(if nextest { "nextest" } else { "test" }, host);
    which(&mut tests);
    let names = left_out.iter();
    if nextest {
        let names: Vec<String> = names.map(|test| format!("test({test})")).collect();
        let all = "all()".to_owned();
        let all_but = names.iter().fold(all, |all, name| format!("{all} and not {name}"));
        tests.args(["-E", &all_but]);
    } else {
        tests.arg("--").args(names.flat_map(|test| ["--skip", test]));
    }
    tests
}

/// The command by which tests are built for a sanitizer.
fn sanitizable(runner: &str, host: &str) -> Command {
    let mut tests = cargo(if runner == "nextest" { &["nextest", "run"] } else { &["test"] });
    tests.args(["--target", host]);
    // What a sanitizer reports, and what `tsan.supp` leaves out, are functions that are inlined, too.
    tests.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    if !is_full() {
        tools::unoptimised(&mut tests);
    }
    tests
}

pub(crate) fn has_runtime(host: &str, sanitizer: &str) -> bool {
    let Some(sysroot) = tools::output(command("rustc", &["--print", "sysroot"])) else {
        return false;
    };
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("lib");
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .map(|file| file.file_name())
        .any(|name| name.to_string_lossy().contains(&format!("rt.{sanitizer}")))
}
