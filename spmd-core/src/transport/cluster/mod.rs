//! Worlds that live in several processes without common memory, joined by a [`Fabric`].
//!
//! Each process has an arena of its own with a segment for every rank of the world, of which its
//! own ranks use theirs; so a rank has one number everywhere. Messages to ranks elsewhere are
//! packets, which whoever waits in that process puts into the receiver's mailbox (`messages.rs`);
//! large ones follow as payloads, once they are wanted. Text that a message refers to by number is
//! sent before it, once to each process, and kept in the sender's segment of the receiver's arena
//! (`texts.rs`). Collectives are steps of the processes, made by one rank of each (`hierarchy.rs`,
//! `leader.rs`). Communicators are made one at a time (`creation_order.rs`). Parts of windows
//! elsewhere are accessed by requests (`one_sided/`).

mod accounts;
pub(crate) mod agreement;
mod at_exit;
mod compare;
mod creation_order;
pub(crate) mod detector;
mod finish;
mod first_report;
mod hierarchy;
mod join_exchange;
mod joined;
mod leader;
mod leader_group;
mod ledger;
mod messages;
mod now;
mod observed;
pub(crate) mod one_sided;
pub(crate) mod outcomes;
pub(crate) mod packet;
mod peer_status;
mod rounds;
pub(crate) mod survive;
mod texts;
mod trace_merge;
mod traced;
mod window;

pub use detector::{Alarm, NOT_STARTED, raise_alarm};
pub(crate) use hierarchy::{Hierarchy, STARTED};
pub(crate) use joined::{Cluster, Joined};
pub use leader::Leader;
pub(crate) use messages::Remote;
