//! Where the library with the standard ABI of MPI 5 lies: the one search of ranks, which load it,
//! and of `spmdrun`, which asks for the launcher that belongs to it.
//!
//! Nothing is loaded or run here: all is a function of what a [`Machine`] says, so that tests can
//! make machines up.

use std::env;
use std::env::consts::ARCH;
use std::ffi::OsString;
use std::path::{Path, PathBuf, absolute};

/// The library's name by the standard; its major version is in it.
pub const FILE: &str =
    if cfg!(target_os = "macos") { "libmpi_abi.1.dylib" } else { "libmpi_abi.so.1" };

/// Names a library or its folder.
pub const VARIABLE: &str = "SPMD_MPI_LIB";

/// Names that the library has beside it where it is of another version.
const OTHER_VERSIONS: [&str; 2] = if cfg!(target_os = "macos") {
    ["libmpi_abi.0.dylib", "libmpi_abi.dylib"]
} else {
    ["libmpi_abi.so.0", "libmpi_abi.so"]
};

/// The loader's variable for folders.
const LOADER: &str =
    if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };

/// What the search asks of a machine.
pub trait Machine {
    /// A variable of the environment, if it is set and not empty.
    fn variable(&self, name: &str) -> Option<OsString>;
    /// Whether there is such a file.
    fn is_file(&self, path: &Path) -> bool;
    /// The path without links.
    fn real(&self, path: &Path) -> PathBuf;
    /// The libraries in the loader's cache.
    fn loader_cache(&self) -> Vec<PathBuf>;
}

/// Why there is no library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// [`VARIABLE`] names something that is not there.
    NotWhereSaid(PathBuf),
    /// A library of another version of the ABI is there.
    OtherVersion(PathBuf),
    /// The loader does not find it.
    Nowhere {
        /// Where it was sought besides.
        folders: Vec<PathBuf>,
        /// That of an MPI which is there, and has no such library.
        launcher: Option<PathBuf>,
    },
}

/// The library of this machine, as an absolute path.
///
/// It is the one that [`VARIABLE`] names; else the first in the loader's folders, beside `mpirun`
/// and `mpiexec` in `PATH`, and in an active Python environment.
///
/// # Errors
/// There is none.
///
/// ```
/// match spmd_mpi::find::here() {
///     Ok(file) => println!("{}", file.display()),
///     Err(why) => println!("none: {why:?}"),
/// }
/// ```
pub fn here() -> Result<PathBuf, Absent> {
    library(&Here).map(|file| absolute(&file).unwrap_or(file))
}

/// The same on any machine.
///
/// # Errors
/// There is none.
pub fn library(machine: &dyn Machine) -> Result<PathBuf, Absent> {
    if let Some(said) = machine.variable(VARIABLE).map(PathBuf::from) {
        let inside = said.join(FILE);
        let both = [&inside, &said].into_iter().find(|path| machine.is_file(path));
        return match both {
            Some(found) => Ok(found.clone()),
            None => Err(other_version(machine, std::slice::from_ref(&said))
                .map_or(Absent::NotWhereSaid(said), Absent::OtherVersion)),
        };
    }
    let (loaders, folders) = (loaders_folders(machine), folders(machine));
    let all = [&loaders[..], &folders].concat();
    let found = all.iter().map(|folder| folder.join(FILE)).find(|path| machine.is_file(path));
    if let Some(found) = found {
        return Ok(found);
    }
    Err(match other_version(machine, &all) {
        Some(other) => Absent::OtherVersion(other),
        None => {
            let launcher = programs(machine, &["mpirun", "mpiexec"]).into_iter().next();
            Absent::Nowhere { folders, launcher }
        }
    })
}

fn other_version(machine: &dyn Machine, folders: &[PathBuf]) -> Option<PathBuf> {
    let names = |folder: &PathBuf| OTHER_VERSIONS.map(|name| folder.join(name));
    folders.iter().flat_map(names).find(|path| machine.is_file(path))
}

/// Where the loader looks by itself.
fn loaders_folders(machine: &dyn Machine) -> Vec<PathBuf> {
    let own = machine.variable(LOADER).unwrap_or_default();
    let own = env::split_paths(&own).filter(|folder| !folder.as_os_str().is_empty());
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name == FILE);
    let cached = machine.loader_cache().into_iter().filter(named);
    let cached = cached.filter_map(|path| path.parent().map(Path::to_path_buf));
    let debian = ["/lib", "/usr/lib"].map(|folder| format!("{folder}/{ARCH}-linux-gnu"));
    let others = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"];
    let system = debian.into_iter().map(PathBuf::from).chain(others.map(PathBuf::from));
    own.chain(cached).chain(system).collect()
}

/// Where else it may be, in this order.
fn folders(machine: &dyn Machine) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut add = |folder: PathBuf| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    for launcher in programs(machine, &["mpirun", "mpiexec"]) {
        // Often a link to what the installation has elsewhere.
        let real = machine.real(&launcher);
        let prefixes = [&launcher, &real].map(|path| path.parent().and_then(Path::parent));
        for prefix in prefixes.into_iter().flatten() {
            ["lib", "lib64"].iter().for_each(|lib| add(prefix.join(lib)));
        }
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = machine.variable(name) {
            add(PathBuf::from(prefix).join("lib"));
        }
    }
    folders
}

/// The programs of these names in `PATH`, in its order.
///
/// ```
/// use spmd_mpi::find::{Here, programs};
///
/// println!("{:?}", programs(&Here, &["mpirun", "mpiexec"]));
/// ```
pub fn programs(machine: &dyn Machine, names: &[&str]) -> Vec<PathBuf> {
    let path = machine.variable("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty());
    let all = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    all.filter(|path| machine.is_file(path)).collect()
}

/// The machine that this runs on.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Machine for Here {
    fn variable(&self, name: &str) -> Option<OsString> {
        env::var_os(name).filter(|value| !value.is_empty())
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
