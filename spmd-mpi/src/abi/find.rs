//! Where a library with the standard ABI may lie.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use spmd_core::{Error, Result};

/// The name that the standard gives it.
pub const FILE: &str =
    if cfg!(target_os = "macos") { "libmpi_abi.1.dylib" } else { "libmpi_abi.so.1" };

/// Names a library or its folder.
pub const VARIABLE: &str = "SPMD_MPI_LIB";

/// Opens the first library that there is. `variable` reads the environment; `open` is given a path,
/// or the bare name, which the system's loader looks up.
pub fn first<L>(
    variable: impl Fn(&str) -> Option<OsString>,
    open: impl Fn(&Path) -> Result<L, String>,
) -> Result<L> {
    if let Some(named) = variable(VARIABLE) {
        return open_named(&PathBuf::from(named), open);
    }
    let mut sought = match open(Path::new(FILE)) {
        Ok(library) => return Ok(library),
        Err(why) => format!("the system's loader does not find {FILE} ({why})"),
    };
    for folder in folders(variable) {
        let file = folder.join(FILE);
        if file.is_file() {
            return open(&file).map_err(|why| unusable(&file, why));
        }
        let _ = write!(sought, ", it is not in {}", folder.display());
    }
    Err(Error::Unavailable {
        what: "MPI".to_owned(),
        reason: sought,
        remedy: format!(
            "install an MPI with the standard ABI of MPI 5.0 (`pip install mpich` brings one), \
             set {VARIABLE} to its {FILE}, or link the program with another MPI, by the feature \
             `mpi` of `spmd`"
        ),
    })
}

/// Opens what the user has named, and nothing else.
fn open_named<L>(named: &Path, open: impl Fn(&Path) -> Result<L, String>) -> Result<L> {
    let file = if named.is_dir() { named.join(FILE) } else { named.to_owned() };
    if file.is_file() {
        return open(&file).map_err(|why| unusable(&file, why));
    }
    Err(Error::Unavailable {
        what: "MPI".to_owned(),
        reason: format!(
            "{VARIABLE} is {}, and there is no file {}",
            named.display(),
            file.display()
        ),
        remedy: format!("set it to a {FILE} or to its folder, or unset it"),
    })
}

/// That the file is there, but cannot be loaded.
fn unusable(file: &Path, why: String) -> Error {
    Error::Unavailable {
        what: format!("the MPI library {}", file.display()),
        reason: why,
        remedy: format!(
            "put the folders of the libraries that it needs into LD_LIBRARY_PATH, or name another \
             library by {VARIABLE}"
        ),
    }
}

/// Where to look besides the loader's own path: beside the launchers on `PATH`, and in an active
/// Python environment.
fn folders(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut add = |folder: PathBuf| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    let path = variable("PATH").unwrap_or_default();
    for name in ["mpirun", "mpiexec"] {
        let launcher =
            env::split_paths(&path).map(|folder| folder.join(name)).find(|p| p.is_file());
        // Often a link to what the installation has elsewhere.
        let launcher = launcher.and_then(|launcher| launcher.canonicalize().ok());
        if let Some(root) = launcher.as_deref().and_then(Path::parent).and_then(Path::parent) {
            add(root.join("lib"));
            add(root.join("lib64"));
        }
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(root) = variable(name) {
            add(PathBuf::from(root).join("lib"));
        }
    }
    folders
}

#[cfg(test)]
mod tests;
