//! Libraries that are looked for when a program runs.

use std::env;
use std::path::{Path, PathBuf};

use libloading::Library;

/// Opens the first library that can be: the one that the variable names, those of these names where
/// the system looks, those in a folder of an active Python environment.
///
/// Errors: what was tried.
pub(crate) fn open(
    variable: &str,
    names: &[&str],
    python: &[&str],
) -> Result<(Library, String), Vec<String>> {
    let named = env::var_os(variable).map(PathBuf::from);
    let candidates = match named {
        // Whoever names one wants no other.
        Some(path) => vec![path],
        None => {
            let plain = names.iter().map(PathBuf::from);
            let folders = python_folders(python);
            plain
                .chain(folders.iter().flat_map(|it| names.iter().map(|name| it.join(name))))
                .collect()
        }
    };
    let mut tried = Vec::new();
    for path in candidates {
        let shown = path.display().to_string();
        // SAFETY: these are NVIDIA's libraries, or what the user put in their place: what they run
        // when they are loaded does not disturb this program.
        match unsafe { Library::new(&path) } {
            Ok(library) => return Ok((library, shown)),
            Err(_) => tried.push(shown),
        }
    }
    Err(tried)
}

/// Whether the system finds such a library.
pub(crate) fn is_there(name: &str) -> bool {
    // SAFETY: a vendor's library, which does not disturb this program when it is loaded.
    unsafe { Library::new(name) }.is_ok()
}

/// The folders below the packages of the active environment that have any of these endings.
fn python_folders(endings: &[&str]) -> Vec<PathBuf> {
    let Some(environment) = env::var_os("VIRTUAL_ENV").or_else(|| env::var_os("CONDA_PREFIX"))
    else {
        return Vec::new();
    };
    let Ok(versions) = Path::new(&environment).join("lib").read_dir() else { return Vec::new() };
    let packages = versions.flatten().map(|version| version.path().join("site-packages"));
    let folders = packages.flat_map(|it| endings.iter().map(move |ending| it.join(ending)));
    folders.filter(|folder| folder.is_dir()).collect()
}
