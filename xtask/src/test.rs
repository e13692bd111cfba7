//! `cargo xtask test`: everything that CI checks.

use crate::steps::{self, Outcome, Step};
use crate::tools::{self, cargo, command};
use crate::{
    examples, fuzz, gpu, hwloc, linked, miri, mpi, non_root, package, runner, sanitizer, surface,
};

const STEPS: [Step; 24] = [
    Step { name: "format", about: "cargo fmt --check; lock files up to date", run: format },
    Step { name: "clippy", about: "all lints, denied", run: clippy },
    Step {
        name: "layers",
        about: "imports between the modules of each crate form layers",
        run: layers,
    },
    Step { name: "docs", about: "rustdoc, warnings denied", run: docs },
    Step { name: "surface", about: "docs/surface says what is public", run: surface::check },
    Step { name: "tests", about: "unit, integration and compile-fail tests", run: tests },
    Step { name: "conformance", about: "every collective against its oracle", run: conformance },
    Step { name: "mpi", about: "worlds of processes joined by MPI libraries", run: mpi::mpi },
    Step { name: "hosts", about: "worlds of hosts, made of namespaces", run: mpi::hosts },
    // Some of its worlds are those of MPI libraries, which are there by now.
    Step { name: "gpu", about: "device buffers on a stand-in card", run: gpu::run },
    Step { name: "slurm", about: "jobs under a Slurm of one node", run: mpi::slurm },
    Step { name: "doc-tests", about: "the code in the documentation", run: doc_tests },
    Step { name: "examples", about: "in threads, virtual ranks, processes", run: examples::run },
    Step { name: "loom", about: "all orders of the waiting protocol's steps", run: loom },
    Step { name: "sanitizer", about: "AddressSanitizer on the arena", run: sanitizer::run },
    Step { name: "races", about: "ThreadSanitizer on loopback", run: sanitizer::races },
    Step { name: "fuzz", about: "random bytes for all that reads some", run: fuzz::run },
    Step { name: "miri", about: "undefined behaviour where no kernel is needed", run: miri::run },
    Step { name: "memcheck", about: "valgrind on the same", run: miri::memcheck },
    Step { name: "hwloc", about: "the launcher with the feature hwloc", run: hwloc::run },
    Step { name: "linked", about: "MPI in a build that is linked with it", run: linked::run },
    Step { name: "non-root", about: "tests of processes as another user", run: non_root::run },
    Step { name: "systems", about: "cargo check for macOS and Windows", run: systems },
    Step { name: "package", about: "what would be published", run: package::run },
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
    Outcome::of(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn layers() -> Outcome {
    const ROOTS: [&str; 10] = [
        "spmd-core/src/lib.rs",
        "spmd-collectives/src/lib.rs",
        "spmd-derive/src/lib.rs",
        "spmd-mpi/src/lib.rs",
        "spmd-loopback/src/lib.rs",
        "spmd-gpu/src/lib.rs",
        "spmd-perf/src/main.rs",
        "launcher/src/lib.rs",
        "xtask/src/main.rs",
        "xtask/layers/src/main.rs",
    ];
    let mut command = cargo(&["run", "--quiet", "--package", "spmd-layers", "--"]);
    command.args(ROOTS);
    Outcome::of(command)
}

fn docs() -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    Outcome::of(command)
}

fn doc_tests() -> Outcome {
    Outcome::of(cargo(&["test", "--workspace", "--doc"]))
}

fn tests() -> Outcome {
    let elsewhere =
        ["conformance", "gpu", "gpu_missing", "gpu_nccl", "mpi", "one_program", "hosts", "slurm"];
    let others = elsewhere.map(|name| format!("not binary_id(spmd-tests::{name})")).join(" and ");
    runner::run(&[&others], &["--lib", "--bins", "--tests"])
}

fn conformance() -> Outcome {
    runner::run(&["binary(conformance)"], &["--test", "conformance"])
}

fn loom() -> Outcome {
    let Some(host) = tools::host() else { return Outcome::Skipped("rustc does not run".into()) };
    let mut command = cargo(&["test", "--package", "spmd-core", "--lib"]);
    tools::unoptimised(&mut command);
    // With a target of its own, these flags do not reach build scripts, which thus stay built.
    command.args(["--target", &host, "loom"]).env("RUSTFLAGS", "--cfg loom");
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    Outcome::of(command)
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
