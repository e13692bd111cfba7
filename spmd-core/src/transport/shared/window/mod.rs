//! Memory that all ranks of a communicator may write at any time: the parts of a window.
//!
//! A part lies in its rank's heap in the arena, which the others map for writing when they first use
//! it, or, where ranks share an address space, on the ordinary heap. It begins with a [`Head`], in
//! which ranks queue for its locks.
//!
//! ```text
//! part   Head: locks, this rank's node in queues | elements
//! ```
//!
//! Of a window whose ranks live in several processes, those of each have their parts together in it;
//! the others reach them by requests (`cluster/one_sided/`).
//!
//! Ranks race on a part by design. So every access to its elements is atomic and of one size, which
//! the size of the element type fixes ([`words`]), and nobody ever has a reference to them.

mod lock;
mod parts;
pub mod words;

pub use lock::Mode;
pub(crate) use lock::{Lock, LockKind, Node, Queue};
pub(crate) use parts::{Announced, HEAD, Head, Part, Parts, Retired, bytes_of, lock_of};
