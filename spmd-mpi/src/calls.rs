//! The functions of a library with errors as values.

use std::ffi::{c_char, c_int, c_void};

use spmd_core::Result;

use crate::functions::{functions, symbol};
use crate::handles::{
    Comm, CopyAttribute, Datatype, DeleteAttribute, Errhandler, Group, HandleError, Info, Message,
    Op, Request,
};
use crate::library::Library;
use crate::provider::{Count, Start, Status};

/// The functions as methods.
macro_rules! calls {
    ($($name:ident $symbol:ident $($counted:ident)? ($($arg:ident: $type:ty),*);)*) => {
        /// All have the library's contract. The errors of `error_string` itself have no words, so
        /// that it is called through the table.
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

functions!(calls);
