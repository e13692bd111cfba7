//! The functions of MPI that are used, as a list and as a table of pointers.

use std::ffi::{c_char, c_int, c_void};
use std::mem;

use crate::handles::{
    Comm, CopyAttribute, Datatype, DeleteAttribute, Errhandler, Group, HandleError, Info, Message,
    Op, Request,
};
use crate::provider::{Count, Start, Status};

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

/// The functions as a table, and where its pointers come from.
macro_rules! table {
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
                find: impl Fn(&'static str) -> spmd_core::Result<std::ptr::NonNull<c_void>>,
            ) -> spmd_core::Result<Functions> {
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
    };
}

/// Gives the macro `then` the functions that are used, each `name symbol(arguments)`; `counted` are
/// those whose counts are `provider`'s.
macro_rules! functions {
    ($then:ident) => {
        $then! {
            init_thread MPI_Init_thread (argc: *mut c_int, argv: *mut c_void, required: c_int, provided: *mut c_int);
            query_thread MPI_Query_thread (provided: *mut c_int);
            initialized MPI_Initialized (flag: *mut c_int);
            finalized MPI_Finalized (flag: *mut c_int);
            finalize MPI_Finalize ();
            abort MPI_Abort (comm: Comm, status: c_int);
            get_library_version MPI_Get_library_version (text: *mut c_char, length: *mut c_int);
            error_class MPI_Error_class (code: c_int, class: *mut c_int);
            error_string MPI_Error_string (code: c_int, text: *mut c_char, length: *mut c_int);

            comm_rank MPI_Comm_rank (comm: Comm, rank: *mut c_int);
            comm_size MPI_Comm_size (comm: Comm, size: *mut c_int);
            comm_dup MPI_Comm_dup (comm: Comm, new: *mut Comm);
            comm_idup MPI_Comm_idup (comm: Comm, new: *mut Comm, request: *mut Request);
            comm_free MPI_Comm_free (comm: *mut Comm);
            comm_create_errhandler MPI_Comm_create_errhandler (function: HandleError, new: *mut Errhandler);
            comm_set_errhandler MPI_Comm_set_errhandler (comm: Comm, handler: Errhandler);
            comm_get_attr MPI_Comm_get_attr (comm: Comm, key: c_int, value: *mut *const c_int, flag: *mut c_int);
            comm_set_attr MPI_Comm_set_attr (comm: Comm, key: c_int, value: *mut c_void);
            comm_create_keyval MPI_Comm_create_keyval (copy: CopyAttribute, delete: DeleteAttribute, key: *mut c_int, extra: *mut c_void);
            comm_split_type MPI_Comm_split_type (comm: Comm, kind: c_int, key: c_int, info: Info, new: *mut Comm);
            comm_group MPI_Comm_group (comm: Comm, group: *mut Group);
            comm_create MPI_Comm_create (comm: Comm, group: Group, new: *mut Comm);
            comm_create_group MPI_Comm_create_group (comm: Comm, group: Group, tag: c_int, new: *mut Comm);
            group_incl MPI_Group_incl (group: Group, count: c_int, ranks: *const c_int, new: *mut Group);
            group_translate_ranks MPI_Group_translate_ranks (group: Group, count: c_int, ranks: *const c_int, other: Group, there: *mut c_int);
            group_free MPI_Group_free (group: *mut Group);

            isend MPI_Isend (data: *const u8, count: c_int, of: Datatype, to: c_int, tag: c_int, comm: Comm, request: *mut Request);
            issend MPI_Issend counted (data: *const u8, count: Count, of: Datatype, to: c_int, tag: c_int, comm: Comm, request: *mut Request);
            irecv MPI_Irecv counted (into: *mut u8, count: Count, of: Datatype, from: c_int, tag: c_int, comm: Comm, request: *mut Request);
            improbe MPI_Improbe (from: c_int, tag: c_int, comm: Comm, flag: *mut c_int, message: *mut Message, status: *mut Status);
            imrecv MPI_Imrecv (into: *mut u8, count: c_int, of: Datatype, message: *mut Message, request: *mut Request);
            test MPI_Test (request: *mut Request, flag: *mut c_int, status: *mut Status);
            start MPI_Start (request: *mut Request);
            request_free MPI_Request_free (request: *mut Request);
            cancel MPI_Cancel (request: *mut Request);
            get_count MPI_Get_count (status: *const Status, of: Datatype, count: *mut c_int);

            barrier MPI_Barrier (comm: Comm);
            ibarrier MPI_Ibarrier (comm: Comm, request: *mut Request);
            bcast MPI_Bcast counted (data: *mut u8, count: Count, of: Datatype, root: c_int, comm: Comm);
            ibcast MPI_Ibcast counted (data: *mut u8, count: Count, of: Datatype, root: c_int, comm: Comm, request: *mut Request);
            gather MPI_Gather counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
            igather MPI_Igather counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
            gatherv MPI_Gatherv counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, displacements: *const Start, to: Datatype, root: c_int, comm: Comm);
            igatherv MPI_Igatherv counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, displacements: *const Start, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
            allgather MPI_Allgather counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm);
            iallgather MPI_Iallgather counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm, request: *mut Request);
            allgatherv MPI_Allgatherv counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: *const Count, displacements: *const Start, to: Datatype, comm: Comm);
            scatter MPI_Scatter counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
            iscatter MPI_Iscatter counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
            scatterv MPI_Scatterv counted (send: *const u8, sent: *const Count, displacements: *const Start, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm);
            iscatterv MPI_Iscatterv counted (send: *const u8, sent: *const Count, displacements: *const Start, of: Datatype, recv: *mut u8, received: Count, to: Datatype, root: c_int, comm: Comm, request: *mut Request);
            alltoall MPI_Alltoall counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm);
            ialltoall MPI_Ialltoall counted (send: *const u8, sent: Count, of: Datatype, recv: *mut u8, received: Count, to: Datatype, comm: Comm, request: *mut Request);
            alltoallv MPI_Alltoallv counted (send: *const u8, sent: *const Count, at_exit: *const Start, of: Datatype, recv: *mut u8, received: *const Count, arriving: *const Start, to: Datatype, comm: Comm);
            ialltoallv MPI_Ialltoallv counted (send: *const u8, sent: *const Count, at_exit: *const Start, of: Datatype, recv: *mut u8, received: *const Count, arriving: *const Start, to: Datatype, comm: Comm, request: *mut Request);
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
    };
}

functions!(table);

pub(crate) use {functions, symbol};
