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
//! Of a window whose ranks live in processes without a common arena, the heads of each process's parts
//! lie on its ordinary heap, and their elements in memory that the others of its host may map
//! ([`region`]); who has not mapped it reaches them by requests (`cluster/one_sided/`).
//!
//! Ranks race on a part by design. So every access to its elements is atomic and of one size, which
//! the size of the element type fixes ([`words`]), and nobody ever has a reference to them.

mod lock;
mod parts;
mod region;
pub mod words;

pub use lock::Mode;
pub(crate) use lock::{Lock, LockKind, Node, Queue};
pub(crate) use parts::{Announced, Head, Part, Parts, Retired, bytes_of, lock_of};
pub(crate) use region::{Key, NONE};
