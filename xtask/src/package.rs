//! The step `package`: the crates as they would be published, each built from its own archive
//! against the others' archives.
//!
//! Cargo takes what has a name and a version for unchangeable: it unpacks an archive once, and
//! builds it once. As our versions stay and their sources change, what an earlier run left of them
//! is removed first.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::steps::Outcome;
use crate::tools::{built, cargo};

pub(crate) fn run() -> Outcome {
    let target = built("publish");
    forget_built(&target);
    forget_unpacked();
    let mut command = cargo(&["package", "--workspace", "--allow-dirty"]);
    command.args(["--exclude", "xtask", "--exclude", "spmd-conformance"]);
    // Nothing of it runs.
    command.args(["--config", "profile.dev.opt-level=0", "--config", "profile.dev.debug=false"]);
    command.arg("--target-dir").arg(&target);
    let outcome = Outcome::of(command);
    forget_unpacked();
    outcome
}

/// Has our crates built anew, and nothing else.
fn forget_built(target: &Path) {
    let _ = fs::remove_dir_all(target.join("package"));
    for crates in folders(&target.join("debug/.fingerprint")) {
        if is_ours(&crates) {
            let _ = fs::remove_dir_all(crates);
        }
    }
}

/// Removes our crates from where cargo unpacks archives.
fn forget_unpacked() {
    let home = || env::home_dir().map(|home| home.join(".cargo"));
    let Some(home) = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home) else { return };
    for registry in folders(&home.join("registry/src")) {
        // A registry in a folder has no host in its name, just a hash: `-22c3805da5a543b4`.
        if !file_name(&registry).starts_with('-') {
            continue;
        }
        for unpacked in folders(&registry).iter().filter(|it| is_ours(it)) {
            let _ = fs::remove_dir_all(unpacked);
        }
        // Stays where it holds anything else.
        let _ = fs::remove_dir(registry);
    }
}

fn is_ours(folder: &Path) -> bool {
    file_name(folder).starts_with("spmd-")
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
