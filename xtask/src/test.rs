//! `cargo xtask test`: everything that CI checks.

use std::process::Command;

use crate::steps::{self, Outcome, Step};
use crate::tools::{self, cargo, command};
use crate::{
    docs, examples, fuzz, gpu, hwloc, linked, miri, mpi, non_root, package, runner, sanitizer,
    surface,
};

const STEPS: [Step; 24] = [
    Step::new("format", "cargo fmt --check; lock files up to date", format),
    Step::new("clippy", "all lints, denied", clippy),
    Step::new("layers", "imports between the modules of each crate form layers", layers),
    Step::new("docs", "rustdoc, warnings denied; examples as users write them", docs::run),
    Step::new("tests", "unit, integration and compile-fail tests", tests).waits(),
    Step::new("conformance", "every collective against its oracle", conformance),
    Step::new("mpi", "worlds of processes joined by MPI libraries", mpi::mpi)
        .ahead(mpi::prepare)
        .waits(),
    Step::new("hosts", "worlds of hosts, made of namespaces", mpi::hosts).waits(),
    // Some of its worlds are those of MPI libraries, which are there by now.
    Step::new("gpu", "device buffers on a stand-in card", gpu::run).ahead(gpu::prepare),
    Step::new("surface", "docs/surface says what is public", surface::check).ahead(surface::build),
    Step::new("slurm", "jobs under a Slurm of one node", mpi::slurm),
    Step::new("doc-tests", "the code in the documentation", doc_tests),
    Step::new("examples", "in threads, virtual ranks, processes", examples::run),
    Step::new("loom", "all orders of the waiting protocol's steps", loom).ahead(build_for_loom),
    Step::new("sanitizer", "AddressSanitizer on the arena", sanitizer::run).ahead(sanitizer::build),
    Step::new("races", "ThreadSanitizer on loopback", sanitizer::races)
        .ahead(sanitizer::build_for_races),
    Step::new("fuzz", "random bytes for all that reads some", fuzz::run).ahead(fuzz::build),
    Step::new("miri", "undefined behaviour where no kernel is needed", miri::run),
    Step::new("memcheck", "valgrind on the same", miri::memcheck),
    Step::new("hwloc", "the launcher with the feature hwloc", hwloc::run).ahead(hwloc::build),
    Step::new("linked", "MPI in a build that is linked with it", linked::run)
        .ahead(linked::prepare),
    Step::new("non-root", "tests of processes as another user", non_root::run),
    Step::new("systems", "cargo check for macOS and Windows", systems),
    Step::new("package", "what would be published", package::run),
];

pub(crate) fn run(options: &[&str]) -> Result<bool, String> {
    let mut chosen = Vec::new();
    for option in options {
        match *option {
            "--list" => {
                STEPS.iter().for_each(|step| println!("{:12} {}", step.name, step.about));
                return Ok(true);
            }
            // SAFETY: no other thread runs yet.
            "--full" => unsafe { std::env::set_var("SPMD_TEST_FULL", "1") },
            name => match STEPS.iter().find(|step| step.name == name) {
                Some(step) => chosen.push(step),
                None => return Err(format!("there is no step '{name}'; see --list")),
            },
        }
    }
    if chosen.is_empty() {
        chosen.extend(&STEPS);
    }
    Ok(steps::run(&chosen))
}

fn format() -> Outcome {
    let fuzz = ["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"];
    // The fuzz targets are no members of the workspace, so nothing else renews their lock file.
    let locked = ["fetch", "--locked", "--manifest-path", "fuzz/Cargo.toml"];
    Outcome::of_all([cargo(&["fmt", "--all", "--check"]), cargo(&fuzz), cargo(&locked)])
}

fn clippy() -> Outcome {
    let check = |features: &[&str]| {
        let all = ["clippy", "--workspace", "--all-targets"];
        cargo(&[&all, features, &["--", "-D", "warnings"]].concat())
    };
    let full = std::env::var_os("SPMD_TEST_FULL").is_some();
    // What the example is measured beside takes long to compile.
    let beside = full.then(|| check(&["--features", "spmd-cholesky/faer"]));
    Outcome::of_all([check(&[])].into_iter().chain(beside))
}

fn layers() -> Outcome {
    const ROOTS: [&str; 11] = [
        "spmd-core/src/lib.rs",
        "spmd-collectives/src/lib.rs",
        "spmd-derive/src/lib.rs",
        "spmd-mpi/src/lib.rs",
        "spmd-loopback/src/lib.rs",
        "spmd-gpu/src/lib.rs",
        "spmd-tasks/src/lib.rs",
        "spmd-perf/src/main.rs",
        "launcher/src/lib.rs",
        "xtask/src/main.rs",
        "xtask/layers/src/main.rs",
    ];
    let mut command = cargo(&["run", "--quiet", "--package", "spmd-layers", "--"]);
    command.args(ROOTS);
    Outcome::of(command)
}

fn doc_tests() -> Outcome {
    Outcome::of(cargo(&["test", "--workspace", "--doc"]))
}

fn tests() -> Outcome {
    let elsewhere =
        ["conformance", "mpi", "one_program", "under_mpi", "over_mpi", "hosts", "slurm"];
    let elsewhere = elsewhere
        .into_iter()
        .chain(gpu::TESTS.map(gpu::name_of))
        .chain(gpu::has_compiler().then_some(gpu::UNITS));
    let others = elsewhere.map(|name| format!("not binary({name}) and "));
    let others = format!("{}not test({})", others.collect::<String>(), mpi::OVER_MPI);
    // What runs under ThreadSanitizer takes minutes without it, too, and shows nothing more.
    let long = sanitizer::left_to_others().map(|names| {
        let names =
            names.iter().map(|name| format!("test({name})")).collect::<Vec<_>>().join(" | ");
        format!("{others} and (not binary_id(spmd-tests::loopback) or {names})")
    });
    runner::run(&[&long.unwrap_or(others)], &["--lib", "--bins", "--tests"])
}

fn conformance() -> Outcome {
    runner::run(&["binary(conformance)"], &["--test", "conformance"])
}

fn loom() -> Outcome {
    let Some(mut command) = loom_tests() else {
        return Outcome::Skipped("rustc does not run".into());
    };
    command.arg("loom");
    Outcome::of(command)
}

fn build_for_loom() -> Option<Command> {
    let mut command = loom_tests()?;
    command.arg("--no-run");
    Some(command)
}

fn loom_tests() -> Option<Command> {
    let mut command = cargo(&["test", "--package", "spmd-core", "--lib"]);
    tools::unoptimised(&mut command);
    // With a target of its own, these flags do not reach build scripts.
    command.args(["--target", &tools::host()?]).env("RUSTFLAGS", "--cfg loom");
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("CARGO_TARGET_DIR", tools::built("loom"));
    Some(command)
}

/// Threads and virtual ranks also work elsewhere; that it compiles is what can be seen from here.
fn systems() -> Outcome {
    let installed = tools::output(command("rustup", &["target", "list", "--installed"]));
    let installed = installed.unwrap_or_default();
    let other = |target: &&str| target.contains("-apple-") || target.contains("-windows-");
    let targets: Vec<&str> = installed.lines().filter(other).collect();
    if targets.is_empty() {
        return Outcome::Skipped(
            "no such target is installed (rustup target add x86_64-apple-darwin)".into(),
        );
    }
    Outcome::of_all(targets.iter().map(|target| {
        let mut command = cargo(&["check", "--package", "spmd", "--package", "spmd-launcher"]);
        command.args(["--target", target]).env("RUSTFLAGS", "-D warnings");
        command.env_remove("CARGO_ENCODED_RUSTFLAGS");
        command
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::tools::root;

    /// The programs of these packages lie beside their manifests, where cargo does not look by
    /// itself.
    #[test]
    fn manifests_name_every_program() {
        for (package, inner) in
            [("examples", ""), ("examples", "prk/"), ("tests", ""), ("benches", "")]
        {
            let folder = root().join(package);
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            let mut programs = 0;
            for entry in fs::read_dir(folder.join(inner)).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                let file = match path.extension().is_some_and(|it| it == "rs") {
                    true => format!("{inner}{name}"),
                    // One with a manifest is a package.
                    false if path.join("Cargo.toml").exists() => continue,
                    false if path.join("main.rs").exists() => format!("{inner}{name}/main.rs"),
                    false => continue,
                };
                programs += 1;
                let named = manifest.contains(&format!("path = {file:?}\n"));
                assert!(named, "{package}/Cargo.toml does not name {file}");
            }
            assert!(programs > 0, "{package}/{inner} is empty");
        }
    }
}
