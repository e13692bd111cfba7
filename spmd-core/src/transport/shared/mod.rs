//! The shared-memory transport: one protocol over two arenas, anonymous memory for threads and
//! virtual ranks, a sealed memfd for processes.
//!
//! A rank writes its own segment, where peers read; beside it bells, notices and counts are all that
//! several write. So whatever a peer does to the memory that it can write, it can lie about itself, to
//! those that exchange data with it, and delay the others.

mod access;
pub(crate) mod agents;
pub(crate) mod board;
mod boards;
mod clock;
mod common;
mod commons;
pub(crate) mod contexts;
mod deadlock;
mod describe;
mod ending;
mod endpoint;
mod faults;
mod going_on;
pub(crate) mod heap;
mod hub;
mod inbox;
mod lane;
pub(crate) mod layout;
mod mail;
mod member;
pub(crate) mod memory;
mod offer;
mod outlived;
mod poller;
pub(crate) mod polls;
mod post;
mod queue;
pub(crate) mod record;
pub(crate) mod ring;
mod room;
mod single_copy;
mod spare;
mod suspicion;
pub(crate) mod waiter;
mod world;

pub(crate) use clock::clock_ns;
pub use common::Common;
pub(crate) use endpoint::Endpoint;
pub(crate) use faults::Reach;
pub(crate) use going_on::Gone;
pub(crate) use hub::{Arrival, Begun, FEW, Hub, Seat};
pub(crate) use inbox::{Arrived, Body};
pub use post::packed_if_apart;
pub(crate) use world::{World, state};
