//! Ranks, waiting, transports and failure handling of `spmd`.

pub mod error;
pub mod fault;
mod sync;
#[doc(hidden)]
pub mod wait;

pub use error::{Error, Result};
