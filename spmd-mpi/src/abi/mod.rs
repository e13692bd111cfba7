//! A library with the standard ABI of MPI 5.0, loaded at run time: nothing of MPI is needed to
//! build a program, and the same program runs on every library with this ABI.

use std::env;
use std::error::Error as _;
use std::ffi::{c_int, c_void};
use std::mem::{self, ManuallyDrop};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use spmd_core::{Error, Result};

use crate::functions::Functions;
use crate::library::Library;
use crate::named::{file_of, place, product};
#[cfg(test)]
pub use constants::constants;
pub use counts::{Count, Kept, Lists, Run, Start, pieces};
pub use types::{Status, bits, raw};

mod constants;
mod counts;
mod find;
mod types;

/// The ABI's version that is spoken here.
const MAJOR: c_int = 1;

/// The function that says it.
const VERSION: &str = "MPI_Abi_get_version";

/// What to do where the launcher is another MPI's.
pub const OTHER_LAUNCHER: &str = "or name the launcher's library by SPMD_MPI_LIB";

/// Finds and loads the library. It is never unloaded.
pub fn load() -> Result<Library> {
    let (file, loaded) = find::first(|name| env::var_os(name), open)?;
    // Not even one that is of no use: its code may have left something behind.
    let loaded = ManuallyDrop::new(loaded);
    let unfit = |file: &Path, reason: String| Error::Unavailable {
        what: format!("the MPI library {}", file.display()),
        reason,
        remedy: format!(
            "use MPICH 5, Intel MPI 2021.18 or another one with the standard ABI of MPI 5.0, and \
             name its {} by {}; or link the program with this one, by the feature `mpi` of `spmd`",
            find::FILE,
            find::VARIABLE
        ),
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
    let name = format!("{}, {}", product(&functions), place(&file));
    Ok(Library { functions, constants: constants::constants(), name })
}

fn open(file: &Path) -> Result<(PathBuf, Loaded), String> {
    // SAFETY: the code that runs when the file is loaded is that of the MPI that the user has
    // chosen, as if the program were linked with it. Its names are not offered to other libraries.
    match unsafe { Loaded::open(Some(file), RTLD_NOW | RTLD_LOCAL) } {
        Ok(loaded) => Ok((file.to_owned(), loaded)),
        Err(error) => Err(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
    }
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
