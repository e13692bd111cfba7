//! What a library of MPI offers, by whichever way it has come into the process: its functions as
//! a table, its constants, its name.
//!
//! All below this module works on any [`Library`]. Handles are of the size of a pointer, as in the
//! standard ABI.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

use spmd_core::{Error, Result};

/// `MPI_Count`.
pub type Count = i64;

/// `MPI_Aint`.
pub type Aint = isize;

macro_rules! handles {
    ($($name:ident)*) => {$(
        #[doc = concat!("`MPI_", stringify!($name), "`.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name(pub usize);
    )*};
}

handles! { Comm Datatype Errhandler Group Info Op Request }

/// `MPI_Status`.
#[repr(C)]
#[derive(Default)]
pub struct Status {
    pub source: c_int,
    tag: c_int,
    error: c_int,
    internal: [c_int; 5],
}

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
    /// `MPI_COMM_NULL_COPY_FN`.
    pub null_copy: *mut c_void,
    /// `MPI_MAX_ERROR_STRING`, `MPI_MAX_LIBRARY_VERSION_STRING`: the larger one.
    pub max_text: usize,
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
    /// The error that `code` of the function `call` stands for.
    #[cold]
    fn error(&self, call: &'static str, code: c_int) -> Error {
        let raised = RAISED.swap(SUCCESS, Ordering::Relaxed);
        let code = if raised == SUCCESS { code } else { raised };
        let text = text(self.constants.max_text, |buffer, length| {
            // SAFETY: the buffer has the length that the library asks for; any code may be asked
            // about.
            unsafe { (self.functions.error_string)(code, buffer, length) }
        });
        let text = text.unwrap_or_else(|| format!("error {code}, for which it has no words"));
        Error::Library { library: self.name.clone(), call, text }
    }
}

/// The text that an MPI function writes into a buffer of `capacity` bytes; none if it fails.
pub fn text(
    capacity: usize,
    write: impl FnOnce(*mut c_char, *mut c_int) -> c_int,
) -> Option<String> {
    let mut buffer = vec![0u8; capacity + 1];
    let mut length = 0;
    if write(buffer.as_mut_ptr().cast(), &mut length) != SUCCESS {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&buffer).ok()?;
    Some(text.to_string_lossy().trim().to_owned())
}

/// The functions that are used, each `name symbol(arguments)`.
macro_rules! functions {
    ($($name:ident $symbol:literal ($($arg:ident: $type:ty),*);)*) => {
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
            pub unsafe fn fill(
                find: impl Fn(&'static str) -> Result<NonNull<c_void>>,
            ) -> Result<Functions> {
                Ok(Functions {$(
                    // SAFETY: the caller vouches for the prototype.
                    $name: unsafe {
                        mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($type),*) -> c_int,
                        >(find($symbol)?)
                    },
                )*})
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
                if code == SUCCESS && RAISED.load(Ordering::Relaxed) == SUCCESS {
                    return Ok(());
                }
                Err(self.error($symbol, code))
            }
        )*}
    };
}

functions! {
    init_thread "MPI_Init_thread" (argc: *mut c_int, argv: *mut c_void, required: c_int, provided: *mut c_int);
    query_thread "MPI_Query_thread" (provided: *mut c_int);
    initialized "MPI_Initialized" (flag: *mut c_int);
    finalized "MPI_Finalized" (flag: *mut c_int);
    finalize "MPI_Finalize" ();
    abort "MPI_Abort" (comm: Comm, status: c_int);
    error_string "MPI_Error_string" (code: c_int, text: *mut c_char, length: *mut c_int);

    comm_rank "MPI_Comm_rank" (comm: Comm, rank: *mut c_int);
    comm_size "MPI_Comm_size" (comm: Comm, size: *mut c_int);
    comm_dup "MPI_Comm_dup" (comm: Comm, new: *mut Comm);
    comm_free "MPI_Comm_free" (comm: *mut Comm);
    comm_create_errhandler "MPI_Comm_create_errhandler" (function: HandleError, new: *mut Errhandler);
    comm_set_errhandler "MPI_Comm_set_errhandler" (comm: Comm, handler: Errhandler);
    comm_get_attr "MPI_Comm_get_attr" (comm: Comm, key: c_int, value: *mut *const c_int, flag: *mut c_int);
    comm_set_attr "MPI_Comm_set_attr" (comm: Comm, key: c_int, value: *mut c_void);
    comm_create_keyval "MPI_Comm_create_keyval" (copy: *mut c_void, delete: DeleteAttribute, key: *mut c_int, extra: *mut c_void);
    comm_split_type "MPI_Comm_split_type" (comm: Comm, kind: c_int, key: c_int, info: Info, new: *mut Comm);
    comm_group "MPI_Comm_group" (comm: Comm, group: *mut Group);
    comm_create_group "MPI_Comm_create_group" (comm: Comm, group: Group, tag: c_int, new: *mut Comm);
    group_incl "MPI_Group_incl" (group: Group, count: c_int, ranks: *const c_int, new: *mut Group);
    group_free "MPI_Group_free" (group: *mut Group);

    isend "MPI_Isend" (data: *const u8, count: c_int, of: Datatype, to: c_int, tag: c_int, comm: Comm, request: *mut Request);
    issend "MPI_Issend_c" (data: *const u8, count: Count, of: Datatype, to: c_int, tag: c_int, comm: Comm, request: *mut Request);
    irecv "MPI_Irecv_c" (into: *mut u8, count: Count, of: Datatype, from: c_int, tag: c_int, comm: Comm, request: *mut Request);
    test "MPI_Test" (request: *mut Request, flag: *mut c_int, status: *mut Status);
    wait "MPI_Wait" (request: *mut Request, status: *mut Status);
    cancel "MPI_Cancel" (request: *mut Request);
    get_count "MPI_Get_count" (status: *const Status, of: Datatype, count: *mut c_int);

    barrier "MPI_Barrier" (comm: Comm);
    ibarrier "MPI_Ibarrier" (comm: Comm, request: *mut Request);
    bcast "MPI_Bcast_c" (data: *mut u8, count: Count, of: Datatype, root: c_int, comm: Comm);
    ibcast "MPI_Ibcast_c" (data: *mut u8, count: Count, of: Datatype, root: c_int, comm: Comm, request: *mut Request);
    gather "MPI_Gather_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
    igather "MPI_Igather_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
    gatherv "MPI_Gatherv_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, starts: *const Aint, to: Datatype, root: c_int, comm: Comm);
    igatherv "MPI_Igatherv_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, starts: *const Aint, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
    allgather "MPI_Allgather_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm);
    iallgather "MPI_Iallgather_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm, request: *mut Request);
    allgatherv "MPI_Allgatherv_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, starts: *const Aint, to: Datatype, comm: Comm);
    iallgatherv "MPI_Iallgatherv_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, starts: *const Aint, to: Datatype, comm: Comm, request: *mut Request);
    scatter "MPI_Scatter_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
    iscatter "MPI_Iscatter_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
    scatterv "MPI_Scatterv_c" (send: *const u8, sent: *const Count, starts: *const Aint, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
    iscatterv "MPI_Iscatterv_c" (send: *const u8, sent: *const Count, starts: *const Aint, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
    alltoall "MPI_Alltoall_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm);
    ialltoall "MPI_Ialltoall_c" (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm, request: *mut Request);
    alltoallv "MPI_Alltoallv_c" (send: *const u8, sent: *const Count, leaving: *const Aint, of: Datatype, recv: *mut u8, received: *const Count, arriving: *const Aint, to: Datatype, comm: Comm);
    ialltoallv "MPI_Ialltoallv_c" (send: *const u8, sent: *const Count, leaving: *const Aint, of: Datatype, recv: *mut u8, received: *const Count, arriving: *const Aint, to: Datatype, comm: Comm, request: *mut Request);
    reduce "MPI_Reduce_c" (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, root: c_int, comm: Comm);
    ireduce "MPI_Ireduce_c" (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, root: c_int, comm: Comm, request: *mut Request);
    allreduce "MPI_Allreduce_c" (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
    iallreduce "MPI_Iallreduce_c" (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm, request: *mut Request);
    reduce_scatter "MPI_Reduce_scatter_c" (send: *const u8, recv: *mut u8, counts: *const Count, of: Datatype, op: Op, comm: Comm);
    ireduce_scatter "MPI_Ireduce_scatter_c" (send: *const u8, recv: *mut u8, counts: *const Count, of: Datatype, op: Op, comm: Comm, request: *mut Request);
    scan "MPI_Scan_c" (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
    iscan "MPI_Iscan_c" (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm, request: *mut Request);
    exscan "MPI_Exscan_c" (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
    iexscan "MPI_Iexscan_c" (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm, request: *mut Request);
}
