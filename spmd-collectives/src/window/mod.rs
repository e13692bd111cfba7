//! One-sided communication (MPI 5.0 chapter 12).

mod access;
mod aggregate;
mod at;
mod atomic;
mod elsewhere;
mod epochs;
mod notify;
mod synchronize;
mod windows;

pub use aggregate::Aggregate;
pub use at::At;
pub use windows::{Window, Windows};
