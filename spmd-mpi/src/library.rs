//! What a library of MPI offers, by whichever way it has come into the process: its functions as
//! a table, its constants, its name.
//!
//! The way is that of the module `provider`, which says what handles, counts and `MPI_Status` are
//! made of. All below this module works on any [`Library`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicI32, Ordering};

use spmd_core::{Error, Result};

use crate::provider;
pub use crate::provider::{Count, Start, Status};

macro_rules! handles {
    ($($name:ident)*) => {$(
        #[doc = concat!("`MPI_", stringify!($name), "`.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $name(pub provider::raw::$name);

        // SAFETY: a name that MPI has given to something of its own, and nobody else follows. Who
        // may pass it to MPI when is `Mpi`'s business.
        unsafe impl Send for $name {}

        // SAFETY: as for `Send`.
        unsafe impl Sync for $name {}

        #[allow(dead_code, reason = "not every kind is written by MPI")]
        impl $name {
            /// Room for a handle that MPI writes.
            pub fn unset() -> $name {
                // SAFETY: a number or a pointer, of which zero is a value.
                unsafe { mem::zeroed() }
            }
        }
    )*};
}

handles! { Comm Datatype Errhandler Group Info Message Op Request }

/// What `MPI_Comm_dup` calls to copy an attribute.
pub type CopyAttribute =
    unsafe extern "C" fn(Comm, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;

/// What `MPI_Finalize` calls when it frees an attribute.
pub type DeleteAttribute = unsafe extern "C" fn(Comm, c_int, *mut c_void, *mut c_void) -> c_int;

/// An error handler. MPI passes it more arguments, which are not in the standard.
pub type HandleError = unsafe extern "C" fn(*mut Comm, *mut c_int);

/// The error that the function under way has met. Functions are called one at a time.
static RAISED: AtomicI32 = AtomicI32::new(SUCCESS);

/// The error handler of all communicators: has functions return where they would end the process.
/// It does what `MPI_ERRORS_RETURN` is for, but Intel MPI 2021.18 has another value for that
/// constant than the ABI says; and it writes the error down, for MPICH 5.0.2 says that all is well
/// where such a handler was called.
///
/// # Safety
/// `code` is readable.
pub unsafe extern "C" fn raise(_: *mut Comm, code: *mut c_int) {
    // SAFETY: the caller's contract.
    RAISED.store(unsafe { *code }, Ordering::Relaxed);
}

/// `MPI_SUCCESS`, which the standard fixes.
const SUCCESS: c_int = 0;

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
        if code == SUCCESS && RAISED.load(Ordering::Relaxed) == SUCCESS {
            return Ok(());
        }
        Err(self.error(call, code))
    }

    /// The error that `code` of the function `call` stands for.
    #[cold]
    fn error(&self, call: &'static str, code: c_int) -> Error {
        let raised = RAISED.swap(SUCCESS, Ordering::Relaxed);
        let code = if raised == SUCCESS { code } else { raised };
        let text = text(|buffer, length| {
            // SAFETY: the buffer has the length that the library asks for; any code may be asked
            // about.
            unsafe { (self.functions.error_string)(code, buffer, length) }
        });
        let text = text.unwrap_or_else(|| format!("error {code}, for which it has no words"));
        Error::Library { library: self.name.clone(), call, text }
    }
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

/// The name of a function as it is loaded, linked and shown. With counts that are `provider`'s, it
/// is the one for large counts in the standard ABI.
macro_rules! symbol {
    ($symbol:ident) => {
        stringify!($symbol)
    };
    ($symbol:ident counted) => {
        if cfg!(feature = "mpi") { stringify!($symbol) } else { concat!(stringify!($symbol), "_c") }
    };
}

/// The functions that are used, each `name symbol(arguments)`; `counted` are those whose counts are
/// `provider`'s.
macro_rules! functions {
    ($($name:ident $symbol:ident $($counted:ident)? ($($arg:ident: $type:ty),*);)*) => {
        /// The functions of a library.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($arg: $type),*) -> c_int,)*
        }

        impl Functions {
            /// The functions that `find` finds by their names in the standard.
            ///
            /// # Safety
            /// What `find` gives is a function of that name, with the standard's prototype and the
            /// handles of this module.
            #[cfg(not(feature = "mpi"))]
            pub unsafe fn fill(
                find: impl Fn(&'static str) -> Result<std::ptr::NonNull<c_void>>,
            ) -> Result<Functions> {
                Ok(Functions {$(
                    // SAFETY: the caller vouches for the prototype.
                    $name: unsafe {
                        mem::transmute::<
                            std::ptr::NonNull<c_void>,
                            unsafe extern "C" fn($($type),*) -> c_int,
                        >(find(symbol!($symbol $($counted)?))?)
                    },
                )*})
            }

            /// The functions that the program is linked with.
            #[cfg(feature = "mpi")]
            pub fn linked() -> Functions {
                Functions {$(
                    // SAFETY: the function has the standard's prototype. Handles are those of its
                    // header, in transparent structs; data are bytes where it says `void`.
                    $name: unsafe {
                        mem::transmute::<
                            *const (),
                            unsafe extern "C" fn($($type),*) -> c_int,
                        >(rsmpi::ffi::$symbol as *const ())
                    },
                )*}
            }
        }

        /// The same with errors as values. All have the library's contract. The errors of
        /// `error_string` itself have no words, so that it is called through the table.
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments, dead_code)]
        impl Library {$(
            #[inline(always)]
            pub unsafe fn $name(&self, $($arg: $type),*) -> Result<()> {
                // SAFETY: the caller keeps the contract of the function.
                let code = unsafe { (self.functions.$name)($($arg),*) };
                self.check(symbol!($symbol $($counted)?), code)
            }
        )*}
    };
}

functions! {
    init_thread MPI_Init_thread (argc: *mut c_int, argv: *mut c_void, required: c_int, provided: *mut c_int);
    query_thread MPI_Query_thread (provided: *mut c_int);
    initialized MPI_Initialized (flag: *mut c_int);
    finalized MPI_Finalized (flag: *mut c_int);
    finalize MPI_Finalize ();
    abort MPI_Abort (comm: Comm, status: c_int);
    get_library_version MPI_Get_library_version (text: *mut c_char, length: *mut c_int);
    error_string MPI_Error_string (code: c_int, text: *mut c_char, length: *mut c_int);

    comm_rank MPI_Comm_rank (comm: Comm, rank: *mut c_int);
    comm_size MPI_Comm_size (comm: Comm, size: *mut c_int);
    comm_dup MPI_Comm_dup (comm: Comm, new: *mut Comm);
    comm_free MPI_Comm_free (comm: *mut Comm);
    comm_create_errhandler MPI_Comm_create_errhandler (function: HandleError, new: *mut Errhandler);
    comm_set_errhandler MPI_Comm_set_errhandler (comm: Comm, handler: Errhandler);
    comm_get_attr MPI_Comm_get_attr (comm: Comm, key: c_int, value: *mut *const c_int, flag: *mut c_int);
    comm_set_attr MPI_Comm_set_attr (comm: Comm, key: c_int, value: *mut c_void);
    comm_create_keyval MPI_Comm_create_keyval (copy: CopyAttribute, delete: DeleteAttribute, key: *mut c_int, extra: *mut c_void);
    comm_split_type MPI_Comm_split_type (comm: Comm, kind: c_int, key: c_int, info: Info, new: *mut Comm);
    comm_group MPI_Comm_group (comm: Comm, group: *mut Group);
    comm_create_group MPI_Comm_create_group (comm: Comm, group: Group, tag: c_int, new: *mut Comm);
    group_incl MPI_Group_incl (group: Group, count: c_int, ranks: *const c_int, new: *mut Group);
    group_free MPI_Group_free (group: *mut Group);

    isend MPI_Isend (data: *const u8, count: c_int, of: Datatype, to: c_int, tag: c_int, comm: Comm, request: *mut Request);
    issend MPI_Issend counted (data: *const u8, count: Count, of: Datatype, to: c_int, tag: c_int, comm: Comm, request: *mut Request);
    irecv MPI_Irecv counted (into: *mut u8, count: Count, of: Datatype, from: c_int, tag: c_int, comm: Comm, request: *mut Request);
    improbe MPI_Improbe (from: c_int, tag: c_int, comm: Comm, flag: *mut c_int, message: *mut Message, status: *mut Status);
    imrecv MPI_Imrecv (into: *mut u8, count: c_int, of: Datatype, message: *mut Message, request: *mut Request);
    test MPI_Test (request: *mut Request, flag: *mut c_int, status: *mut Status);
    wait MPI_Wait (request: *mut Request, status: *mut Status);
    cancel MPI_Cancel (request: *mut Request);
    get_count MPI_Get_count (status: *const Status, of: Datatype, count: *mut c_int);

    barrier MPI_Barrier (comm: Comm);
    ibarrier MPI_Ibarrier (comm: Comm, request: *mut Request);
    bcast MPI_Bcast counted (data: *mut u8, count: Count, of: Datatype, root: c_int, comm: Comm);
    ibcast MPI_Ibcast counted (data: *mut u8, count: Count, of: Datatype, root: c_int, comm: Comm, request: *mut Request);
    gather MPI_Gather counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
    igather MPI_Igather counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
    gatherv MPI_Gatherv counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, starts: *const Start, to: Datatype, root: c_int, comm: Comm);
    igatherv MPI_Igatherv counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, starts: *const Start, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
    allgather MPI_Allgather counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm);
    iallgather MPI_Iallgather counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm, request: *mut Request);
    allgatherv MPI_Allgatherv counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, starts: *const Start, to: Datatype, comm: Comm);
    scatter MPI_Scatter counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
    iscatter MPI_Iscatter counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
    scatterv MPI_Scatterv counted (send: *const u8, sent: *const Count, starts: *const Start, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
    iscatterv MPI_Iscatterv counted (send: *const u8, sent: *const Count, starts: *const Start, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
    alltoall MPI_Alltoall counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm);
    ialltoall MPI_Ialltoall counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm, request: *mut Request);
    alltoallv MPI_Alltoallv counted (send: *const u8, sent: *const Count, leaving: *const Start, of: Datatype, recv: *mut u8, received: *const Count, arriving: *const Start, to: Datatype, comm: Comm);
    ialltoallv MPI_Ialltoallv counted (send: *const u8, sent: *const Count, leaving: *const Start, of: Datatype, recv: *mut u8, received: *const Count, arriving: *const Start, to: Datatype, comm: Comm, request: *mut Request);
    reduce MPI_Reduce counted (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, root: c_int, comm: Comm);
    ireduce MPI_Ireduce counted (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, root: c_int, comm: Comm, request: *mut Request);
    allreduce MPI_Allreduce counted (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
    iallreduce MPI_Iallreduce counted (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm, request: *mut Request);
    reduce_scatter MPI_Reduce_scatter counted (send: *const u8, recv: *mut u8, counts: *const Count, of: Datatype, op: Op, comm: Comm);
    ireduce_scatter MPI_Ireduce_scatter counted (send: *const u8, recv: *mut u8, counts: *const Count, of: Datatype, op: Op, comm: Comm, request: *mut Request);
    scan MPI_Scan counted (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
    iscan MPI_Iscan counted (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm, request: *mut Request);
    exscan MPI_Exscan counted (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
    iexscan MPI_Iexscan counted (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm, request: *mut Request);
}
