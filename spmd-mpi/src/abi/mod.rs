//! A library with the standard ABI of MPI 5.0, loaded at run time: nothing of MPI is needed to
//! build a program, and the same program runs on every library with this ABI.

use std::error::Error as _;
use std::ffi::{c_int, c_void};
use std::mem::{self, ManuallyDrop};
use std::path::Path;
use std::ptr::NonNull;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use spmd_core::{Error, Result};

use crate::find::{self, Absent};
use crate::functions::Functions;
use crate::inits::Inits;
use crate::library::{Library, QUERY, query};
use crate::named::{file_of, place, product};
#[cfg(test)]
pub use constants::constants;
pub use counts::{KeptNumbers, Lists, Run, pieces};
pub use types::{Count, Start, Status, bits, raw};

mod constants;
mod counts;
mod types;

/// The ABI's version that is spoken here.
const MAJOR: c_int = 1;

/// The function that says it.
const VERSION: &str = "MPI_Abi_get_version";

/// What to do where the launcher is another MPI's.
pub const OTHER_LAUNCHER: &str = "or name the launcher's library by SPMD_MPI_LIB";

/// Finds and loads the library. It is never unloaded.
pub fn load() -> Result<Library> {
    let file = find::here().map_err(absent)?;
    // Not even one that is of no use: its code may have left something behind.
    let loaded = ManuallyDrop::new(open(&file)?);
    let unfit = |file: &Path, reason: String| {
        Error::unavailable(
            format!("the MPI library {}", file.display()),
            reason,
            format!(
                "use MPICH 5, Intel MPI 2021.18 or another one with the standard ABI of MPI 5.0, and \
             name its {} by {}; or link the program with this one, by the feature `mpi` of `spmd`",
                find::FILE,
                find::VARIABLE
            ),
        )
    };
    let version = symbol(&loaded, VERSION)
        .ok_or_else(|| unfit(&file, format!("it has no {VERSION}, as MPI 5.0 demands")))?;
    let file = file_of(version).unwrap_or(file);
    let (major, minor) = abi_version(version);
    if major != MAJOR {
        let reason = match major {
            ..0 => "it is not the one with the standard ABI".to_owned(),
            _ => format!("it has version {major}.{minor} of the ABI, where {MAJOR}.x is needed"),
        };
        return Err(unfit(&file, reason));
    }
    let find = |name| {
        symbol(&loaded, name)
            .ok_or_else(|| unfit(&file, format!("it has no {name}, as MPI 5.0 demands")))
    };
    // SAFETY: a library with the ABI's version 1 has the standard's functions with the ABI's
    // prototypes and handles.
    let functions = unsafe { Functions::fill(find)? };
    // SAFETY: the same.
    let inits = unsafe { Inits::find(|name| symbol(&loaded, name)) };
    // SAFETY: it is looked up by its name.
    let query = unsafe { query(symbol(&loaded, QUERY)) };
    let name = format!("{}, {}", product(&functions), place(&file));
    Ok(Library { functions, inits, query, constants: constants::constants(), name })
}

fn open(file: &Path) -> Result<Loaded> {
    // SAFETY: the code that runs when the file is loaded is that of the MPI that the user has
    // chosen, as if the program were linked with it. Its names are not offered to other libraries.
    let loaded = unsafe { Loaded::open(Some(file), RTLD_NOW | RTLD_LOCAL) };
    // Which file is missing or wrong, the loader's own words say.
    loaded.map_err(|error| Error::unavailable(format!("the MPI library {}", file.display()), error.source().map_or_else(|| error.to_string(), ToString::to_string), format!(
            "put the folders of the libraries that it needs into LD_LIBRARY_PATH, or name another \
             library by {}",
            find::VARIABLE
        )))
}

/// Says what was looked for, where, and what to do.
fn absent(why: Absent) -> Error {
    const NAME: &str = find::FILE;
    const VARIABLE: &str = find::VARIABLE;
    let install = format!(
        "install an MPI with the standard ABI of MPI 5.0 (`pip install mpich` brings one), set \
         {VARIABLE} to its {NAME}, or link the program with another MPI, by the feature `mpi` of \
         `spmd`"
    );
    let (reason, remedy) = match why {
        Absent::NotWhereSaid(path) => (
            format!(
                "{VARIABLE} is {}, which is neither a library nor a folder with {NAME}",
                path.display()
            ),
            format!("set it to a {NAME} or to its folder, or unset it"),
        ),
        Absent::OtherVersion(path) => (
            format!("{} is there, whose version is too old, and no {NAME}", path.display()),
            install,
        ),
        Absent::Nowhere { folders, .. } => {
            let others =
                folders.iter().map(|folder| format!(", it is not in {}", folder.display()));
            (
                format!("the system's loader does not find {NAME}{}", others.collect::<String>()),
                install,
            )
        }
    };
    Error::unavailable("MPI".to_owned(), reason, remedy)
}

fn symbol(loaded: &Loaded, name: &str) -> Option<NonNull<c_void>> {
    // SAFETY: the symbol is taken as an address, which every symbol has; the library stays loaded.
    let symbol = unsafe { loaded.get::<*mut c_void>(name.as_bytes()) }.ok()?;
    NonNull::new(symbol.as_raw_ptr())
}

/// What `MPI_Abi_get_version` says.
fn abi_version(function: NonNull<c_void>) -> (c_int, c_int) {
    // SAFETY: the standard's prototype; nothing but a library with this ABI has this name.
    let function: extern "C" fn(*mut c_int, *mut c_int) -> c_int =
        unsafe { mem::transmute(function) };
    let (mut major, mut minor) = (0, 0);
    function(&mut major, &mut minor);
    (major, minor)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn an_error_names_every_place() {
        let folders = ["/opt/mpi/lib", "/venv/lib"].map(PathBuf::from).to_vec();
        let text = absent(Absent::Nowhere { folders, launcher: None }).to_string();
        let words = [find::FILE, "not in /opt/mpi/lib, it is not in /venv/lib", find::VARIABLE];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }

    #[test]
    fn a_library_that_cannot_be_loaded_is_an_error_with_the_loaders_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(find::FILE);
        std::fs::write(&file, "short").expect("our own folder");
        let text = open(&file).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("too short") && text.contains("LD_LIBRARY_PATH"), "{text}");
    }
}
