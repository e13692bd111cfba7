//! The step `gpu`: the tests of GPUs on the stand-in card, which the machine's C++ compiler makes, and
//! of the kernels by the real NVRTC.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::steps::Outcome;
use crate::tools::{self, built, cargo, command, root};
use crate::{programs, python};

/// Numbers as on the host: integers go around, and a product and a sum are rounded each.
const FLAGS: [&str; 7] =
    ["-O1", "-g", "-fPIC", "-std=c++17", "-pthread", "-fwrapv", "-ffp-contract=off"];
/// Those by which the stand-in compiles kernels (nvrtc.cpp).
const OF_KERNELS: [&str; 5] = ["-O1", "-fPIC", "-std=c++17", "-w", "-ffp-contract=off"];
/// With a sanitizer, GCC warns of its own library.
const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

pub(crate) fn run() -> Outcome {
    if !has_compiler() {
        return Outcome::Skipped(
            "there is no C++ compiler (c++), of which the stand-in is made".into(),
        );
    }
    match stand_in(None) {
        Ok(folder) => tests(folder),
        Err(why) => Outcome::failed(why),
    }
}

pub(crate) fn has_compiler() -> bool {
    tools::output(command("c++", &["--version"])).is_some()
}

/// Builds and fetches what [`run`] needs besides cargo's.
pub(crate) fn prepare() -> Option<Command> {
    if has_compiler() {
        let _ = stand_in(None);
        let _ = from_pypi(NVRTC);
    }
    None
}

/// Builds the stand-in for this sanitizer, whose runtime is the one of the program that loads it, once in a run of
/// this program. The folder that it is in.
pub(crate) fn stand_in(sanitizer: Option<&'static str>) -> Result<PathBuf, String> {
    type Built = Mutex<Option<HashMap<Option<&'static str>, Result<PathBuf, String>>>>;
    static BUILT: Built = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let built = built.get_or_insert_default().entry(sanitizer);
    built.or_insert_with(|| build_stand_in(sanitizer)).clone()
}

/// The libraries, each once more without a function (in `without-FUNCTION`), and what kernels are compiled with.
fn build_stand_in(sanitizer: Option<&str>) -> Result<PathBuf, String> {
    let source = root().join("spmd-gpu/standin");
    let folder = built("standin").join(sanitizer.unwrap_or("plain"));
    // What was compiled before is not of this one, perhaps.
    let kernels = folder.join("kernels");
    let _ = fs::remove_dir_all(&kernels);
    fs::create_dir_all(&kernels).map_err(|error| format!("{}: {error}", kernels.display()))?;
    let sanitize = sanitizer.map(|name| format!("-fsanitize={name}"));
    let header = folder.join("kernel.h");
    let defined = ["KERNEL_HEADER", "KERNELS"].into_iter().zip([&header, &kernels]);
    let defined: Vec<String> =
        defined.map(|(name, path)| format!("-D{name}=\"{}\"", path.display())).collect();
    let object = |name: &str| folder.join(name).with_extension("o");
    let compile = |name: &&str| {
        let mut compile = command("c++", &FLAGS);
        compile.args(&defined).arg("-c").arg(source.join(name)).arg("-o").arg(object(name));
        match &sanitize {
            Some(flag) => compile.arg(flag).arg(format!("-DSANITIZE=\"{flag}\"")),
            None => compile.args(WARNINGS),
        };
        compile
    };
    let sources = LIBRARIES.iter().flat_map(|(_, sources, _)| *sources);
    let header = compile_header(&source.join("kernel.h"), &header, sanitize.as_deref())?;
    all_built_by(sources.map(compile).chain([header]))?;
    for (library, sources, hidden) in LIBRARIES {
        let link = |folder_of: &Path| {
            let mut link = command("c++", &["-shared", "-pthread"]);
            link.args(sources.iter().map(|name| object(name)));
            link.arg("-o").arg(folder_of.join(library));
            if library.starts_with("libnccl") {
                link.arg("-L").arg(&folder).arg(format!("-l:{DRIVER}"));
            }
            link.arg("-ldl");
            link
        };
        let mut links = vec![link(&folder)];
        for function in hidden {
            let without = folder.join(format!("without-{function}"));
            let script = without.join("hide.map");
            let hides = format!("{{ global: *; local: {function}; }};\n");
            fs::create_dir_all(&without)
                .and_then(|()| fs::write(&script, hides))
                .map_err(|error| format!("{}: {error}", script.display()))?;
            let mut link = link(&without);
            link.arg(format!("-Wl,--version-script={}", script.display()));
            links.push(link);
        }
        all_built_by(links)?;
    }
    Ok(folder)
}

const DRIVER: &str = "libcuda.so.1";

/// Each with what it is made of, and the functions without which it is made once more. NCCL's comes after the driver,
/// whose streams it uses.
const LIBRARIES: [(&str, &[&str], &[&str]); 3] = [
    (DRIVER, &["driver.cpp", "card.cpp"], &["cuStreamWriteValue32_v2"]),
    ("libnvrtc.so", &["nvrtc.cpp"], &["nvrtcGetCUBIN"]),
    ("libnccl.so.2", &["nccl.cpp", "nccl_comm.cpp"], &["ncclCommSplit", "ncclAllGather"]),
];

/// What stands before each kernel, compiled once for all, which takes two thirds of the time of each: the compiler
/// finds it beside the header.
fn compile_header(header: &Path, copy: &Path, sanitize: Option<&str>) -> Result<Command, String> {
    fs::copy(header, copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    let mut compile = command("c++", &OF_KERNELS);
    compile.args(sanitize).args(["-x", "c++-header"]).arg(copy);
    compile.arg("-o").arg(copy.with_extension("h.gch"));
    Ok(compile)
}

/// Runs these compilers at the same time.
fn all_built_by(compilers: impl IntoIterator<Item = Command>) -> Result<(), String> {
    thread::scope(|scope| {
        let start = |compiler| scope.spawn(move || tools::watch(compiler).wrong);
        let all: Vec<_> = compilers.into_iter().map(start).collect();
        let ended = all.into_iter().map(|it| it.join().expect("a compiler is only started"));
        ended.flatten().next().map_or(Ok(()), Err)
    })
}

/// The files of tests that need a card, in the folder `tests`.
pub(crate) const TESTS: [&str; 7] = [
    "gpu",
    "gpu_aware.rs",
    "gpu_launch.rs",
    "gpu_memory",
    "gpu_messages",
    "gpu_missing.rs",
    "gpu_nccl",
];

/// The unit tests of the crate, which need a card, too, or a library.
pub(crate) const UNITS: &str = "spmd_gpu";

/// By which cargo knows such a file.
pub(crate) fn name_of(file: &str) -> &str {
    file.trim_end_matches(".rs")
}

fn tests(folder: PathBuf) -> Outcome {
    // With those of the other crates, which the step `tests` has built.
    let options = ["--workspace", "--lib"].into_iter();
    let options: Vec<&str> =
        options.chain(TESTS.iter().flat_map(|file| ["--test", name_of(file)])).collect();
    let programs = match programs::build(&options, |_| {}) {
        Ok(programs) => programs,
        Err(why) => return Outcome::failed(why),
    };
    let files = TESTS.map(|file| (format!("tests/{file}"), Vec::new()));
    let left_out = REAL.iter().flat_map(|(.., test)| ["--skip", test]).collect();
    let files = files.into_iter().chain([("spmd-gpu/src/lib.rs".into(), left_out)]);
    let on_card = files.map(|(file, mut options)| {
        options.push("--show-output");
        let mut command = programs::of(&programs, &file)?.command(&[], &options);
        command.env("LD_LIBRARY_PATH", &folder).env("SPMD_REQUIRE_GPU", "1");
        Ok(command)
    });
    let full = std::env::var_os("SPMD_TEST_FULL").is_some();
    let real = REAL.iter().map(|(package, name, test)| {
        let mut command =
            programs::of(&programs, "spmd-gpu/src/lib.rs")?.command(&[], &[test, "--show-output"]);
        if !full && *package == NCCL {
            // It says that it is skipped, where no other one is found.
            return Ok(command);
        }
        match from_pypi(*package) {
            Ok(library) => {
                command.env(format!("SPMD_{name}_LIB"), library);
                command.env(format!("SPMD_REQUIRE_{name}"), "1");
            }
            Err(why) => println!("{name} cannot be had: {why}"),
        }
        Ok(command)
    });
    match on_card.chain(real).collect::<Result<Vec<_>, String>>() {
        Ok(commands) => {
            let tests = commands.into_iter().map(Outcome::of);
            let programs = examples(&folder).into_iter();
            Outcome::sum(tests.chain(programs.map(|(it, words)| Outcome::of_saying(it, words))))
        }
        Err(why) => Outcome::failed(why),
    }
}

/// The examples and the benchmark on stand-in cards: ranks on one, and processes with one each. What each says
/// when a card has done it.
fn examples(folder: &Path) -> Vec<(Command, &'static str)> {
    let build = cargo(&["build", "--workspace", "--bins", "--examples", "--quiet"]);
    let debug = built("debug");
    let run = |options: &str, cards: &str, program: &str| {
        let mut command = command(debug.join("spmdrun"), &[]);
        command.args(options.split(' '));
        let mut words = program.split(' ');
        command.arg(debug.join(words.next().unwrap_or_default())).args(words);
        command.env("LD_LIBRARY_PATH", folder).env("SPMD_STANDIN_CARDS", cards);
        command
    };
    let heat = |options, cards| (run(options, cards, "examples/heat_gpu 96 40"), "40 steps");
    let digits = |options, cards| (run(options, cards, "examples/digits --gpu"), "with GPUs: loss");
    let sums =
        |options, cards| (run(options, cards, "examples/sum_anywhere 8 1000"), "got gpu [0]");
    let rows = COLLECTIVES.map(|name| format!("--row {name}:1K:20 --row {name}:72K:5")).join(" ");
    let perf = format!("spmd-perf --memory device --type f32 {rows}");
    vec![
        (build, ""),
        heat("-n 3 --as threads", "1"),
        heat("-n 2 --as virtual", "1"),
        heat("-n 2 --as processes", "1"),
        heat("-n 3 --as gpus", "3"),
        digits("-n 3 --as threads", "1"),
        digits("-n 3 --as virtual", "1"),
        digits("-n 2 --as processes", "1"),
        digits("-n 2 --as gpus", "2"),
        sums("-n 2 --as threads --resources gpu=2", "2"),
        sums("-n 2 --as gpus", "2"),
        // What takes least where all ranks are on one card stands beside the times.
        (run("-n 3 --as threads", "1", &perf), "bound µs"),
        (run("-n 2 --as processes", "1", &perf), "in place µs"),
        (run("-n 3 --as gpus", "3", &perf), ", on stand-in card 0 (no GPU)\n"),
    ]
}

/// As `spmd-perf` calls them.
const COLLECTIVES: [&str; 11] = [
    "barrier",
    "broadcast",
    "reduce",
    "allreduce",
    "gather",
    "allgather",
    "scatter",
    "alltoall",
    "reduce_scatter",
    "scan",
    "exscan",
];

/// What real libraries are tested with: a package, the name in our variables, the test.
const REAL: [((&str, &str), &str, &str); 2] =
    [(NVRTC, "NVRTC", "every_kernel_compiles"), (NCCL, "NCCL", "the_real_library")];

/// The real NVRTC, which needs no GPU: a package of PyPI, and its library.
const NVRTC: (&str, &str) = ("nvidia-cuda-nvrtc", "nvidia/cu13/lib/libnvrtc.so.13");
/// The real NCCL, of 300 MB: only with `--full`.
const NCCL: (&str, &str) = ("nvidia-nccl-cu13", "nvidia/nccl/lib/libnccl.so.2");

/// A library of a package of PyPI, which is installed if it is not there.
fn from_pypi((package, library): (&str, &str)) -> Result<PathBuf, String> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _installs = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let environment = built(package);
    let find = || {
        let versions = fs::read_dir(environment.join("lib")).ok()?.flatten();
        let mut found = versions.map(|it| it.path().join("site-packages").join(library));
        found.find(|path| path.exists())
    };
    if let Some(library) = find() {
        return Ok(library);
    }
    println!("Installing {package} ..");
    python::install(&environment, &[package])?;
    find().ok_or_else(|| format!("it has no {library}"))
}
