//! Where the MPI library and the launcher that belongs to it lie.
//!
//! Nothing is loaded or run here: all is a function of what a [`Machine`] says, so that tests can
//! make machines up.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The library with the standard ABI of MPI 5; its major version is in its name.
pub(crate) const LIBRARY: &str = "libmpi_abi.so.1";

/// Names that the library has beside it where it is of another version.
const OTHER_VERSIONS: [&str; 2] = ["libmpi_abi.so.0", "libmpi_abi.so"];

/// Where the loader looks by itself.
const SYSTEM: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// What the search asks of a machine.
pub(crate) trait Machine {
    /// A variable of the environment, if it is set and not empty.
    fn variable(&self, name: &str) -> Option<OsString>;
    fn is_file(&self, path: &Path) -> bool;
    /// The path without links.
    fn real(&self, path: &Path) -> PathBuf;
    /// The libraries in the loader's cache.
    fn loader_cache(&self) -> Vec<PathBuf>;
}

/// Why there is no library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// `SPMD_MPI_LIB` names something that is not there.
    NotWhereSaid(PathBuf),
    /// A library of another version of the ABI is there.
    OtherVersion(PathBuf),
    /// An MPI is there whose libraries do not have the standard ABI: this is its launcher.
    OtherAbi(PathBuf),
    Nowhere,
}

/// Finds the library: by `SPMD_MPI_LIB`, as the loader would, beside the launchers in `PATH`, in a
/// virtual environment.
pub(crate) fn library(machine: &dyn Machine) -> Result<PathBuf, Absent> {
    if let Some(said) = machine.variable("SPMD_MPI_LIB").map(PathBuf::from) {
        let inside = said.join(LIBRARY);
        let both = [&inside, &said].into_iter().find(|path| machine.is_file(path));
        return match both {
            Some(found) => Ok(found.clone()),
            None => Err(other_version(machine, std::slice::from_ref(&said))
                .map_or(Absent::NotWhereSaid(said), Absent::OtherVersion)),
        };
    }
    let folders = folders(machine);
    let found = folders.iter().map(|folder| folder.join(LIBRARY)).find(|p| machine.is_file(p));
    if let Some(found) = found {
        return Ok(found);
    }
    if let Some(other) = other_version(machine, &folders) {
        return Err(Absent::OtherVersion(other));
    }
    let launcher = in_path(machine, &["mpirun", "mpiexec"]).into_iter().next();
    Err(launcher.map_or(Absent::Nowhere, Absent::OtherAbi))
}

fn other_version(machine: &dyn Machine, folders: &[PathBuf]) -> Option<PathBuf> {
    let names = |folder: &PathBuf| OTHER_VERSIONS.map(|name| folder.join(name));
    folders.iter().flat_map(names).find(|path| machine.is_file(path))
}

/// The folders where the library is sought, in this order.
fn folders(machine: &dyn Machine) -> Vec<PathBuf> {
    let own = machine.variable("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&own).collect();
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name == LIBRARY);
    let cached = machine.loader_cache().into_iter().filter(named);
    folders.extend(cached.filter_map(|path| path.parent().map(Path::to_path_buf)));
    folders.extend(SYSTEM.map(PathBuf::from));
    for launcher in in_path(machine, &["mpirun", "mpiexec"]) {
        let real = machine.real(&launcher);
        let prefixes = [&launcher, &real].map(|path| path.parent().and_then(Path::parent));
        for prefix in prefixes.into_iter().flatten() {
            folders.extend(["lib", "lib64"].map(|lib| prefix.join(lib)));
        }
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        folders.extend(machine.variable(name).map(|prefix| PathBuf::from(prefix).join("lib")));
    }
    folders.retain(|folder| !folder.as_os_str().is_empty());
    folders
}

/// Every launcher that may belong to a library: first those of its own installation, then those in
/// `PATH`. Whether one does is for its `--version` to say.
pub(crate) fn launchers(machine: &dyn Machine, library: &Path) -> Vec<PathBuf> {
    const NAMES: [&str; 5] =
        ["mpiexec.hydra", "mpiexec", "mpirun", "mpiexec.mpich", "mpirun.openmpi"];
    let mut found: Vec<PathBuf> = Vec::new();
    for path in [library.to_path_buf(), machine.real(library)] {
        // A library lies in lib, or in lib/x86_64-linux-gnu or the like.
        for prefix in path.ancestors().skip(2).take(2) {
            let bin = prefix.join("bin");
            found.extend(NAMES.map(|name| bin.join(name)));
        }
    }
    found.retain(|path| machine.is_file(path));
    found.extend(in_path(machine, &NAMES));
    let mut seen = Vec::new();
    found.retain(|path| {
        let new = !seen.contains(path);
        seen.push(path.clone());
        new
    });
    found
}

/// The programs of these names in `PATH`, in its order.
pub(crate) fn in_path(machine: &dyn Machine, names: &[&str]) -> Vec<PathBuf> {
    let path = machine.variable("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty());
    let all = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    all.filter(|path| machine.is_file(path)).collect()
}

/// The machine that this runs on.
pub(crate) struct Here;

impl Machine for Here {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn real(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
    }

    fn loader_cache(&self) -> Vec<PathBuf> {
        // The cache lists names and paths as texts that end in a zero byte.
        let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        let texts = cache.split(|&byte| byte == 0);
        let texts = texts.filter_map(|text| std::str::from_utf8(text).ok());
        texts.filter(|text| text.starts_with('/')).map(PathBuf::from).collect()
    }
}

#[cfg(test)]
mod tests;
