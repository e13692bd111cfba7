//! The step `package`: the crates as they would be published, each built from its own archive
//! against the others' archives.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::steps::Outcome;
use crate::tools::cargo;

pub(crate) fn run() -> Outcome {
    forget_unpacked();
    let outcome =
        Outcome::of(cargo(&["package", "--workspace", "--exclude", "xtask", "--allow-dirty"]));
    forget_unpacked();
    outcome
}

/// Removes our crates from where cargo unpacks archives.
///
/// Cargo offers the archives to each other through a registry in the target folder, and unpacks
/// from it once for a name and version: an earlier run's sources of the same version would be
/// built instead of what has just been packed.
fn forget_unpacked() {
    let Some(home) = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(default_home) else {
        return;
    };
    for registry in folders(&home.join("registry/src")) {
        // A registry in a folder has no host in its name, just a hash: `-22c3805da5a543b4`.
        if !file_name(&registry).starts_with('-') {
            continue;
        }
        for unpacked in folders(&registry) {
            if file_name(&unpacked).starts_with("spmd-") {
                let _ = fs::remove_dir_all(unpacked);
            }
        }
        // Stays where it holds anything else.
        let _ = fs::remove_dir(registry);
    }
}

fn default_home() -> Option<PathBuf> {
    env::home_dir().map(|home| home.join(".cargo"))
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
