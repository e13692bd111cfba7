//! Windows whose ranks live in several processes.
//!
//! A rank accesses the parts of its own process directly, and the elements of those of its host, which
//! it maps when it first uses one (`shared/window/region.rs`). All else that it does to a part of another
//! process goes there as requests, packets of which each is for at most [`MOST`] bytes of the part.
//! Whoever takes packets in that process carries them out, by the same atomics as all who access the
//! part directly, and answers those that have a ticket. So a target serves requests while any of its
//! ranks is in a call, and whether a process has mapped a part is nobody's business but its own.
//!
//! ```text
//! put, change        one request a piece; no answer
//! get, change, swap  one request a piece; the answer holds words of the part
//! flush              a request without words: its answer says that all before it is carried out,
//!                    as packets from one process are taken one after the other
//! lock               a request without words; its answer is the lock
//! unlock             a request without words; no answer
//! close              the process has dropped the window; no answer
//! ```
//!
//! A process that is asked for a lock queues in it for the rank that asks, with a node of its own
//! (`shared/window/lock.rs`): nobody waits for that rank but those who would if it lived here. Who
//! hands the lock over sends the answer.
//!
//! A request comes from another process, which may send anything: what makes no sense is ignored.

mod answers;
mod pattern;
mod request;
mod served;
mod serving;

pub(crate) use answers::Ticket;
pub use pattern::Pattern;
pub(crate) use request::{MOST, Request, What, fitting};
pub(crate) use served::{Served, Windows};
pub(crate) use serving::Serving;
