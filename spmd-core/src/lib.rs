//! Ranks, waiting, transports and failure handling of `spmd`.

pub mod error;
pub mod fault;

pub use error::{Error, Result};
