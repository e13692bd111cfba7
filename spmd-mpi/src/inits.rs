//! The functions that make requests of collectives which are started again and again (MPI 5.0
//! section 6.13): not every library that a program can be linked with has them.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr::NonNull;

use crate::functions::symbol;
use crate::handles::{Comm, Datatype, Info, Op, Request};
use crate::provider::Count;

/// The functions as a table.
macro_rules! inits {
    ($($name:ident $symbol:ident ($($arg:ident: $type:ty),*);)*) => {
        /// All have hints and the new request as their last arguments.
        pub struct Inits {
            $(pub $name: unsafe extern "C" fn($($arg: $type,)* Info, *mut Request) -> c_int,)*
        }

        impl Inits {
            /// The functions that `find` finds by their names in the standard: all or none.
            ///
            /// # Safety
            /// What `find` gives is a function of that name, with the standard's prototype and the
            /// handles and counts of `provider`.
            pub unsafe fn find(find: impl Fn(&str) -> Option<NonNull<c_void>>) -> Option<Inits> {
                Some(Inits {$(
                    // SAFETY: the caller vouches for the prototype.
                    $name: unsafe {
                        mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($type,)* Info, *mut Request) -> c_int,
                        >(find(symbol!($symbol counted))?)
                    },
                )*})
            }
        }
    };
}

inits! {
    bcast MPI_Bcast_init (data: *mut u8, count: Count, of: Datatype, root: c_int, comm: Comm);
    reduce MPI_Reduce_init (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, root: c_int, comm: Comm);
    allreduce MPI_Allreduce_init (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
    scan MPI_Scan_init (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
    exscan MPI_Exscan_init (send: *const u8, recv: *mut u8, count: Count, of: Datatype, op: Op, comm: Comm);
}
