//! Ranks, waiting, transports and failure handling of `spmd`.
//!
//! # Soundness
//! Safe code has no undefined behaviour, whatever other ranks do, with one exception: on a virtual
//! rank, code that leaves a reference to its stack in a thread-local for the time of a closure, as
//! the crate `scoped-tls` does, must not call this library within that closure. Another rank of the
//! same thread would find the reference when what it points to is gone. [`rank_local!`] is storage
//! that each rank has for itself, in every place.

mod affinity;
pub mod algorithm;
#[doc(hidden)]
pub mod args;
pub mod block;
pub mod boot;
pub mod buffer;
pub mod call;
mod clock;
pub mod comm;
mod copy;
pub mod ctx;
mod current;
#[doc(hidden)]
pub mod dispatch;
pub mod element;
mod environment;
pub mod error;
pub mod fault;
#[cfg(fuzzing)]
pub mod fuzzing;
mod group;
mod hash;
#[doc(hidden)]
pub mod internal;
mod known;
mod locals;
mod mirror;
mod mode;
pub mod op;
mod panics;
#[doc(hidden)]
pub mod plane;
mod pooled;
mod print;
mod progress;
pub mod rank;
mod rank_local;
mod resources;
mod settings;
mod shared_alloc;
mod shared_buf;
mod sync;
mod tasks;
mod text;
mod trace;
pub mod transport;
pub mod tuning;
mod wait;

pub use affinity::Bind;
pub use block::{Spmd, spmd};
pub use boot::run;
pub use buffer::{Buffer, BufferMut, strided, strided_mut, subarray, subarray_mut};
pub use comm::{
    Comm, EAGER_LIMIT, Message, Persistent, Request, RequestScope, Requests, wait_all, wait_any,
    wait_some,
};
pub use ctx::{Ctx, with_current};
pub use element::{DType, Element, Located};
pub use error::{Error, Result};
pub use mirror::Mirror;
pub use mode::Mode;
pub use op::{
    BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, Max, MaxLoc, Min, MinLoc, NoOp, Op, Operation,
    Prod, Replace, Sum,
};
#[doc(hidden)]
pub use print::print_lines;
pub use progress::Progress;
pub use rank::{ANY, Any, DestOrNone, Source, SourceOrNone, Status, TagOrAny};
pub use rank_local::RankLocal;
pub use shared_alloc::SharedAlloc;
pub use shared_buf::SharedBuf;
