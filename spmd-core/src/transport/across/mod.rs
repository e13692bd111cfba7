//! Worlds that live in several processes without common memory, joined by a [`Fabric`].
//!
//! Each process has an arena of its own with a segment for every rank of the world, of which its
//! own ranks use theirs; so a rank has one number everywhere. Messages to ranks elsewhere are
//! packets, which whoever waits in that process puts into the receiver's mailbox (`messages.rs`);
//! large ones follow as payloads, once they are wanted. Text that a message refers to by number is
//! sent before it, once to each process, and kept in the sender's segment of the receiver's arena
//! (`texts.rs`). Collectives are steps of the processes, made by one rank of each (`spread.rs`, `lead.rs`).
//! Communicators are made one at a time (`turns.rs`).

mod accounts;
pub(crate) mod agreement;
mod compare;
mod finish;
mod joined;
mod known;
mod lead;
mod leaders;
mod leaving;
mod ledger;
mod messages;
mod now;
pub(crate) mod outcomes;
pub(crate) mod packet;
mod rounds;
mod said;
mod spread;
mod survey;
pub(crate) mod survive;
mod texts;
mod turns;
pub(crate) mod watch;
mod watched;
mod window;

pub(crate) use joined::{Across, Joined};
pub use lead::Lead;
pub(crate) use messages::Remote;
pub(crate) use spread::Spread;
pub use watch::Alarm;
