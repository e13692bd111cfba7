//! The public surface of the crates that programs use, a line an item: `spmd-surface` writes it
//! into `docs/surface/`, so that a change of it is seen where the change is read; `spmd-surface
//! --check` says where those files are not what the crates are.
//!
//! It is what `rustdoc` writes as JSON, without what is hidden from the documentation, and without
//! what is implemented for every type. That format belongs to one version of Rust: with another,
//! the exit status is [`SKIPPED`].

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The crates, in the order in which one builds on another.
const CRATES: [&str; 5] = ["spmd-core", "spmd-collectives", "spmd-gpu", "spmd-tasks", "spmd"];

/// This toolchain writes another format.
const SKIPPED: u8 = 3;

fn main() -> ExitCode {
    let check = env::args().nth(1).is_some_and(|word| word == "--check");
    let mut alike = true;
    for name in CRATES {
        let surface = match surface(name) {
            Ok(Some(surface)) => surface,
            Ok(None) => return ExitCode::from(SKIPPED),
            Err(why) => {
                eprintln!("{why}");
                return ExitCode::from(2);
            }
        };
        let file = root().join(format!("docs/surface/{name}.txt"));
        if check {
            alike &= is_alike(&file, &surface);
        } else if let Err(error) = fs::write(&file, surface) {
            eprintln!("cannot write {}: {error}", file.display());
            return ExitCode::from(2);
        }
    }
    if alike {
        return ExitCode::SUCCESS;
    }
    println!("If that is meant, `cargo xtask surface` writes the files anew.");
    ExitCode::FAILURE
}

/// The folder of the workspace.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this package lies two folders below the workspace")
}

/// The surface of a crate; `None` if this toolchain writes a format that is not known here.
fn surface(name: &str) -> Result<Option<String>, String> {
    let json = documented(name)?;
    let built = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match built {
        Ok(api) => Ok(Some(api.items().map(|item| format!("{item}\n")).collect())),
        Err(public_api::Error::SerdeJsonError(error)) => {
            println!("this rustdoc writes another format: {error}");
            Ok(None)
        }
        Err(error) => Err(format!("{}: {error}", json.display())),
    }
}

/// Has rustdoc write what it knows of a crate, and says where that is.
fn documented(name: &str) -> Result<PathBuf, String> {
    // Beside the documentation that people read, which has other options.
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let target = target.join("surface");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).env("RUSTC_BOOTSTRAP", "1");
    cargo.args(["rustdoc", "--quiet", "--lib", "--package", name, "--target-dir"]).arg(&target);
    cargo.args(["--", "-Zunstable-options", "--output-format=json", "--cap-lints=allow"]);
    match cargo.status() {
        Ok(status) if status.success() => {
            Ok(target.join(format!("doc/{}.json", name.replace('-', "_"))))
        }
        Ok(status) => Err(format!("rustdoc of {name}: {status}")),
        Err(error) => Err(format!("cargo cannot be run: {error}")),
    }
}

/// Whether a file holds this surface; says what differs.
fn is_alike(file: &Path, surface: &str) -> bool {
    let written = match fs::read_to_string(file) {
        Ok(written) => written,
        Err(error) => {
            println!("{}: {error}", file.display());
            return false;
        }
    };
    let (before, now): (BTreeSet<_>, BTreeSet<_>) =
        (written.lines().collect(), surface.lines().collect());
    before.difference(&now).for_each(|line| println!("{}: - {line}", file.display()));
    now.difference(&before).for_each(|line| println!("{}: + {line}", file.display()));
    before == now
}
