//! What a library of MPI offers, by whichever way it has come into the process: its functions as
//! a table, its constants, its name.
//!
//! The way is that of the module `provider`, which says what handles, counts and `MPI_Status` are
//! made of. All below this module works on any [`Library`].

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ops::RangeInclusive;
use std::ptr::NonNull;

use spmd_core::{Error, Result};

use crate::functions::Functions;
use crate::handles::{Comm, Datatype, Info, Op, Request};
use crate::inits::Inits;
use crate::provider::Status;

thread_local! {
    /// The error that the function under way has met.
    static RAISED: Cell<c_int> = const { Cell::new(SUCCESS) };
}

/// The error handler of all communicators: has functions return where they would end the process.
/// It does what `MPI_ERRORS_RETURN` is for, but Intel MPI 2021.18 has another value for that
/// constant than the ABI says; and it writes the error down, for MPICH 5.0.2 says that all is well
/// where such a handler was called.
///
/// # Safety
/// `code` is readable.
pub unsafe extern "C" fn raise(_: *mut Comm, code: *mut c_int) {
    // SAFETY: the caller's contract.
    RAISED.set(unsafe { *code });
}

/// `MPI_SUCCESS`, which the standard fixes.
const SUCCESS: c_int = 0;

/// Open MPI's error classes of what others have failed in: `MPI_ERR_PROC_FAILED`,
/// `MPI_ERR_PROC_FAILED_PENDING`, `MPI_ERR_REVOKED`.
const LOST: RangeInclusive<c_int> = 75..=77;

/// `MPI_MAX_ERROR_STRING` and `MPI_MAX_LIBRARY_VERSION_STRING` are at most this in any library.
const MAX_TEXT: usize = 8192;

/// What the library was built with.
pub struct Constants {
    pub comm_world: Comm,
    pub comm_self: Comm,
    pub comm_type_shared: c_int,
    pub info_null: Info,
    pub request_null: Request,
    pub any_source: c_int,
    pub tag_ub: c_int,
    pub thread_serialized: c_int,
    pub thread_multiple: c_int,
    pub in_place: *mut u8,
    pub status_ignore: *mut Status,
    pub byte: Datatype,
    /// Of 1, 2, 4 and 8 bytes.
    pub signed: [Datatype; 4],
    /// Of 1, 2, 4 and 8 bytes.
    pub unsigned: [Datatype; 4],
    pub float: Datatype,
    pub double: Datatype,
    pub float_complex: Datatype,
    pub double_complex: Datatype,
    pub sum: Op,
    pub prod: Op,
    pub min: Op,
    pub max: Op,
    pub band: Op,
    pub bor: Op,
    pub bxor: Op,
}

/// A library, which stays loaded for as long as the process lives.
pub struct Library {
    pub functions: Functions,
    /// Those that only some have.
    pub inits: Option<Inits>,
    /// Whether it takes memory of CUDA's devices, once it is initialised: where it says anything.
    pub query: Option<Query>,
    pub constants: Constants,
    /// For people: product, version, file.
    pub name: String,
}

// SAFETY: a table of functions and constants, which nobody changes; its pointers
// are addresses that nobody follows. Who may call the functions when is `Mpi`'s business.
unsafe impl Send for Library {}

// SAFETY: as for `Send`.
unsafe impl Sync for Library {}

impl Library {
    /// What the function `call` has answered, as a value.
    #[inline(always)]
    pub fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == SUCCESS && RAISED.get() == SUCCESS {
            return Ok(());
        }
        Err(self.error(call, code))
    }

    /// The error code of the function that has just answered `code`.
    #[cold]
    fn code(&self, code: c_int) -> c_int {
        let raised = RAISED.replace(SUCCESS);
        if raised == SUCCESS { code } else { raised }
    }

    /// What the function `call` has answered, where processes may fail: whether it has done its
    /// work, or a process has failed, or the communicator was revoked for that reason.
    pub fn check_survived(&self, call: &'static str, code: c_int) -> Result<bool> {
        let code = self.code(code);
        let mut class = SUCCESS;
        // SAFETY: any code may be asked about; the class is writable.
        let known = unsafe { (self.functions.error_class)(code, &mut class) } == SUCCESS;
        if known && LOST.contains(&class) {
            return Ok(false);
        }
        self.check(call, code).map(|()| true)
    }

    /// The error that `code` of the function `call` stands for.
    #[cold]
    fn error(&self, call: &'static str, code: c_int) -> Error {
        let code = self.code(code);
        let text = text(|buffer, length| {
            // SAFETY: the buffer has the length that the library asks for; any code may be asked
            // about.
            unsafe { (self.functions.error_string)(code, buffer, length) }
        });
        let text = text.unwrap_or_else(|| format!("error {code}, for which it has no words"));
        Error::library(self.name.clone(), call, text)
    }
}

/// The function by which MPICH, Open MPI and those after them say whether they take memory of CUDA's
/// devices.
pub const QUERY: &str = "MPIX_Query_cuda_support";

type Query = extern "C" fn() -> c_int;

/// That function, if `found` is one.
///
/// # Safety
/// It has that name.
pub unsafe fn query(found: Option<NonNull<c_void>>) -> Option<Query> {
    // SAFETY: the function of that name (this function's contract) has no arguments and gives an `int`,
    // in all libraries that have it.
    found.map(|found| unsafe { mem::transmute::<NonNull<c_void>, Query>(found) })
}

/// The text that an MPI function writes into a buffer; none if it fails.
pub fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Option<String> {
    let mut buffer = vec![0u8; MAX_TEXT + 1];
    let mut length = 0;
    if write(buffer.as_mut_ptr().cast(), &mut length) != SUCCESS {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&buffer).ok()?;
    Some(text.to_string_lossy().trim().to_owned())
}
