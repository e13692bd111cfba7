//! Programs of this workspace that tests start: built with all of it, they are there already.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The launcher's binary, beside this test's own; built first if it is not there, or older than
/// its sources. Where all was made elsewhere, it lies in the same folder.
///
/// Cargo tells tests the binaries of their own package alone, and builds no others for them.
pub fn spmdrun_path() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own path");
        let beside = test.with_file_name("spmdrun");
        if beside.exists() {
            return beside;
        }
        built("spmdrun", &["--package", "spmd-launcher", "--bin", "spmdrun"])
    })
}

/// A program below the folder of this test's profile, such as `examples/heat`; built first with
/// the rest of the workspace, as [`spmdrun_path`].
pub fn program(name: &str) -> PathBuf {
    let all = ["--workspace", "--bins", "--examples", "--features", "mpi"];
    built(name, if cfg!(feature = "mpi") { &all } else { &all[..3] })
}

fn built(name: &str, options: &[&str]) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    // target/debug/deps/this-test
    let profile = test.ancestors().nth(2).expect("a test lies in the target folder");
    let program = profile.join(name);
    if !is_fresh(&program) {
        build(profile, options);
    }
    assert!(program.exists(), "there is no {}", program.display());
    program
}

/// Whether the program is there, and no file written since that cargo has listed beside it
/// (`spmdrun.d`) as a source. A program without such a list is none of cargo's, and taken as it is.
///
/// The times are what cargo itself looks at; to ask cargo would cost every test a process, and a
/// turn at the lock of the target folder.
fn is_fresh(program: &Path) -> bool {
    let written = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let Some(built) = written(program) else { return false };
    let Ok(list) = std::fs::read_to_string(program.with_extension("d")) else { return true };
    // A space in a name is escaped: no such file is found, and cargo is asked after all.
    let sources = list.lines().filter_map(|line| line.split_once(": ")).map(|(_, files)| files);
    sources
        .flat_map(str::split_whitespace)
        .all(|source| written(Path::new(source)).is_some_and(|changed| changed <= built))
}

fn build(profile: &Path, options: &[&str]) {
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo
        .args(["build", "--quiet"])
        .args(options)
        .args(["--profile", name, "--target-dir"])
        .arg(profile.parent().expect("a profile lies in the target folder"))
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // Of this test's package: with them, build scripts would run again now, and once more under
    // the next cargo.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "building {options:?}: {status:?}"
    );
}
