//! The step `package`: the crates as they would be published, compiled from their archives against
//! each other.

use std::fs;
use std::path::{Path, PathBuf};

use crate::steps::Outcome;
use crate::tools::{self, built, cargo, command};

/// Members of the workspace that are not published, and so have no archive.
const NOT_PUBLISHED: [&str; 11] = [
    "xtask",
    "spmd-layers",
    "spmd-surface",
    "spmd-loopback",
    "spmd-conformance",
    "spmd-matrix",
    "spmd-forbidden",
    "spmd-examples",
    "spmd-cholesky",
    "spmd-tests",
    "spmd-benches",
];

pub(crate) fn run() -> Outcome {
    let target = built("publish");
    let folder = target.join("package");
    // Archives of other versions would be taken for ours.
    let _ = fs::remove_dir_all(&folder);
    let mut archives = cargo(&["package", "--workspace", "--allow-dirty", "--no-verify"]);
    archives.args(NOT_PUBLISHED.iter().flat_map(|name| ["--exclude", name]));
    archives.arg("--target-dir").arg(&target);
    if let Some(wrong) = tools::watch(archives).wrong {
        return Outcome::failed(wrong);
    }
    if let Err(why) = unpack(&folder) {
        return Outcome::failed(why);
    }
    // With the crates of others that other steps have compiled.
    let mut check = cargo(&["check", "--workspace", "--manifest-path"]);
    check.arg(folder.join("Cargo.toml")).arg("--target-dir");
    check.arg(target.parent().unwrap_or(&target));
    Outcome::of(check)
}

/// Unpacks all archives of this folder into a workspace, in which each of the crates is what a
/// registry would have under its name.
fn unpack(folder: &Path) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(told)?.flatten().map(|entry| entry.path());
    let archives: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "crate")).collect();
    let (mut members, mut patches) = (String::new(), String::new());
    for archive in archives {
        // As of now: archives have one date for all versions, by which cargo would take what it has
        // compiled of another one for this.
        let mut tar = command("tar", &["-x", "-m", "-f"]);
        tar.arg(&archive).arg("-C").arg(folder);
        if let Some(wrong) = tools::watch(tar).wrong {
            return Err(wrong);
        }
        let unpacked = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = unpacked.rsplit_once('-').map_or(&*unpacked, |(name, _version)| name);
        members += &format!("{unpacked:?}, ");
        patches += &format!("{name} = {{ path = {unpacked:?} }}\n");
    }
    let manifest = tools::root().join("Cargo.toml");
    let profiles = profiles(&fs::read_to_string(manifest).map_err(told)?);
    let workspace = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n[patch.crates-io]\n{patches}\n{profiles}"
    );
    fs::write(folder.join("Cargo.toml"), workspace).map_err(told)?;
    // The versions that everything else was tested with.
    fs::copy(tools::root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(told)?;
    Ok(())
}

/// The profiles of a manifest: with other ones, the crates of others would be compiled once more.
fn profiles(manifest: &str) -> String {
    let mut within = false;
    let lines = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            within = line.starts_with("[profile.");
        }
        within
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}
