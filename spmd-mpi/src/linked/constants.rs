//! The constants of the MPI that the program is linked with.

use std::ffi::c_int;
use std::ptr;

use rsmpi::ffi as c;

use super::types::bits;
use crate::handles::{Comm, Datatype, Info, Op, Request};
use crate::library::Constants;

/// `MPI_COMM_WORLD` of MPICH and of what is made from it.
const WORLD_OF_MPICH: c_int = 0x4400_0000;

/// What the library was built with; none if it is of neither known family.
pub fn constants() -> Option<Constants> {
    let in_place = in_place()?;
    // SAFETY: constants of the C part of `mpi-sys`, which nobody writes.
    Some(unsafe {
        Constants {
            comm_world: Comm(c::RSMPI_COMM_WORLD),
            comm_self: Comm(c::RSMPI_COMM_SELF),
            comm_type_shared: c::RSMPI_COMM_TYPE_SHARED,
            info_null: Info(c::RSMPI_INFO_NULL),
            request_null: Request(c::RSMPI_REQUEST_NULL),
            any_source: c::RSMPI_ANY_SOURCE,
            tag_ub: c::MPI_TAG_UB as c_int,
            thread_serialized: c::RSMPI_THREAD_SERIALIZED,
            thread_multiple: c::RSMPI_THREAD_MULTIPLE,
            status_ignore: c::RSMPI_STATUS_IGNORE.cast(),
            in_place,
            byte: Datatype(c::RSMPI_UINT8_T),
            signed: [c::RSMPI_INT8_T, c::RSMPI_INT16_T, c::RSMPI_INT32_T, c::RSMPI_INT64_T]
                .map(Datatype),
            unsigned: [c::RSMPI_UINT8_T, c::RSMPI_UINT16_T, c::RSMPI_UINT32_T, c::RSMPI_UINT64_T]
                .map(Datatype),
            float: Datatype(c::RSMPI_FLOAT),
            double: Datatype(c::RSMPI_DOUBLE),
            float_complex: Datatype(c::RSMPI_FLOAT_COMPLEX),
            double_complex: Datatype(c::RSMPI_DOUBLE_COMPLEX),
            sum: Op(c::RSMPI_SUM),
            prod: Op(c::RSMPI_PROD),
            min: Op(c::RSMPI_MIN),
            max: Op(c::RSMPI_MAX),
            band: Op(c::RSMPI_BAND),
            bor: Op(c::RSMPI_BOR),
            bxor: Op(c::RSMPI_BXOR),
        }
    })
}

/// `MPI_IN_PLACE`, which no binding for Rust has: in C it is a pointer made from a number. Which
/// one depends on whose header the library has, and that is seen by what `MPI_COMM_WORLD` is.
fn in_place() -> Option<*mut u8> {
    // SAFETY: see above.
    let world = bits(unsafe { c::RSMPI_COMM_WORLD });
    if size_of::<c::MPI_Comm>() == size_of::<c_int>() {
        return (world == WORLD_OF_MPICH as usize).then(|| ptr::without_provenance_mut(usize::MAX));
    }
    // SAFETY: the name ends in a zero; any name may be asked for.
    let open = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ompi_mpi_comm_world".as_ptr()) };
    (!open.is_null() && open.addr() == world).then(|| ptr::without_provenance_mut(1))
}
