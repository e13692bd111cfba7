//! The constants of the standard ABI of MPI 5.0.

use std::ptr;

use crate::handles::{Comm, Datatype, Info, Op, Request};
use crate::library::Constants;

/// What every library with this ABI was built with.
pub const fn constants() -> Constants {
    Constants {
        comm_world: Comm(0x101),
        comm_self: Comm(0x102),
        comm_type_shared: 221,
        info_null: Info(0x130),
        request_null: Request(0x180),
        any_source: -1,
        tag_ub: 501,
        thread_serialized: 2048,
        thread_multiple: 4096,
        status_ignore: ptr::null_mut(),
        in_place: ptr::without_provenance_mut(1),
        byte: Datatype(0x247),
        signed: [Datatype(0x240), Datatype(0x248), Datatype(0x250), Datatype(0x258)],
        unsigned: [Datatype(0x241), Datatype(0x249), Datatype(0x251), Datatype(0x259)],
        float: Datatype(0x210),
        double: Datatype(0x214),
        float_complex: Datatype(0x212),
        double_complex: Datatype(0x216),
        sum: Op(0x21),
        prod: Op(0x24),
        min: Op(0x22),
        max: Op(0x23),
        band: Op(0x28),
        bor: Op(0x29),
        bxor: Op(0x2a),
    }
}
