//! Ranks, waiting, transports and failure handling of `spmd`.

pub mod buffer;
pub mod element;
pub mod error;
pub mod fault;
pub mod op;

pub use buffer::{Buffer, BufferMut, strided, strided_mut, subarray, subarray_mut};
pub use element::{DType, Element, Located};
pub use error::{Error, Result};
pub use op::{
    BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, Max, MaxLoc, Min, MinLoc, Op, Operation, Prod,
    Sum,
};
