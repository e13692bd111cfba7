//! The step `docs`: what rustdoc denies, and what it does not see.

use std::fs;
use std::path::{Path, PathBuf};

use crate::steps::Outcome;
use crate::tools::{cargo, root};

/// The crates whose documentation users read as that of `spmd`.
const CRATES: [&str; 5] = ["spmd-core", "spmd-collectives", "spmd-tasks", "spmd-gpu", "."];

/// What a user would not write, or not understand, and what to write instead.
const DENIED: [(&str, &str); 5] = [
    ("[`crate::", "a link whose text is a path: [`Type`](crate::Type)"),
    ("[`spmd_core::", "a link whose text is a path: [`Type`](spmd_core::Type)"),
    ("use spmd_core::", "an example that users cannot write: use spmd::prelude::*"),
    ("use spmd_collectives::", "an example that users cannot write: use spmd::prelude::*"),
    ("use spmd_tasks::", "an example that users cannot write: use spmd::tasks"),
];

pub(crate) fn run() -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    let wrong = [denied(), unlisted(), misquoted()].concat();
    match Outcome::of(command) {
        Outcome::Passed(_) if !wrong.is_empty() => Outcome::failed(wrong.join("\n")),
        outcome => outcome,
    }
}

/// Where comments have what is denied.
fn denied() -> Vec<String> {
    let mut wrong = Vec::new();
    for file in CRATES.iter().flat_map(|name| sources(&root().join(name).join("src"))) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            if !comment.starts_with("///") && !comment.starts_with("//!") {
                continue;
            }
            let found = DENIED.iter().filter(|(denied, _)| comment.contains(denied));
            wrong.extend(found.map(|(_, why)| format!("{}:{}: {why}", file.display(), number + 1)));
        }
    }
    wrong
}

/// The verbs that the table of all, on the pages of `Comm` and `Ctx`, does not have.
fn unlisted() -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap_or_default();
    let table = read("src/verbs.md");
    let verbs = [
        ("docs/surface/spmd-core.txt", "pub fn spmd_core::Comm::"),
        ("docs/surface/spmd-collectives.txt", "pub fn spmd_collectives::"),
        ("docs/surface/spmd-tasks.txt", "pub fn spmd_tasks::Tasks::"),
    ];
    let mut wrong = Vec::new();
    for (file, begin) in verbs {
        for line in read(file).lines().filter(|line| line.contains("(&self")) {
            let Some(path) = line.strip_prefix(begin) else { continue };
            let path = path.split(['(', '<']).next().unwrap_or_default();
            // Of the other two crates `begin` has named the type.
            let (of, verb) = path.rsplit_once("::").unwrap_or(("", path));
            let listed = is_verbs(of) || begin.ends_with("Comm::") || begin.ends_with("Tasks::");
            if listed && verb != "fmt" && !table.contains(&format!("[`{verb}`](")) {
                wrong.push(format!("src/verbs.md lacks `{verb}` of {file}"));
            }
        }
    }
    wrong
}

/// Whether this is a trait of communicators: others are types that calls give or take, or start calls
/// within a scope.
fn is_verbs(of: &str) -> bool {
    let traits = of.starts_with(|first: char| first.is_uppercase()) && !of.ends_with("Requests");
    traits && of != "Cartesian" && of != "Color"
}

/// The programs of which `docs/quickstart.md` does not have what they are.
fn misquoted() -> Vec<String> {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let text = read(&root().join("docs/quickstart.md"));
    let is_there = |file: &PathBuf| {
        let program = read(file);
        program.lines().count() <= 25 && text.contains(&format!("```rust\n{program}```\n"))
    };
    let programs = sources(&root().join("examples/quickstart"));
    let wrong = programs.iter().filter(|file| !is_there(file));
    wrong
        .map(|file| format!("docs/quickstart.md lacks {}, or it has over 25 lines", file.display()))
        .collect()
}

/// All Rust files there.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = |path: &PathBuf| path.extension().is_some_and(|it| it == "rs");
    let below = folders.iter().flat_map(|folder| sources(folder));
    files.into_iter().filter(rust).chain(below).collect()
}
