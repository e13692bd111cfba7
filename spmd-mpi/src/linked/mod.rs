//! The MPI that the program is linked with, by the raw bindings of rsmpi: for libraries without the
//! standard ABI. Handles and constants are those of the header that the program was built with.

use std::ffi::CString;
use std::ptr::{NonNull, with_exposed_provenance_mut};

use spmd_core::{Error, Result};

use crate::functions::Functions;
use crate::inits::Inits;
use crate::library::{Library, QUERY, query};
use crate::named::{file_of, place, product};
use crate::ulfm::symbol;
pub use counts::{KeptNumbers, Lists, Run};
pub use pieces::pieces;
pub use types::{Count, Start, Status, bits, raw};

mod constants;
mod counts;
mod pieces;
mod types;

/// What to do where the launcher is another MPI's.
pub const OTHER_LAUNCHER: &str = "or build the program with the launcher's MPI";

/// The library, which the system's loader has found when the program started.
pub fn load() -> Result<Library> {
    let functions = Functions::linked();
    let find =
        |name: &str| NonNull::new(with_exposed_provenance_mut(symbol(&CString::new(name).ok()?)?));
    // SAFETY: the library that the program is linked with has the standard's functions, with the
    // handles and counts of its header, where it has these at all.
    let inits = unsafe { Inits::find(find) };
    // SAFETY: it is looked up by its name.
    let query = unsafe { query(find(QUERY)) };
    let mut name = product(&functions);
    let file = NonNull::new(functions.init_thread as *mut _).and_then(file_of);
    if let Some(file) = file {
        name = format!("{name}, {}", place(&file));
    }
    match constants::constants() {
        Some(constants) => Ok(Library { functions, inits, query, constants, name }),
        None => Err(Error::unavailable(
            name,
            "the program is linked with it, and it is neither of the family of Open MPI \
                     nor of MPICH's"
                .to_owned(),
            "link the program with a shared library of one of these, or build it without \
                     the feature `mpi`, for a library with the standard ABI of MPI 5.0"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
pub fn constants() -> crate::library::Constants {
    constants::constants().expect("the library is of a known family")
}
