//! The shared-memory transport: one protocol over two arenas, anonymous memory for threads and
//! virtual ranks, a sealed memfd for processes.
//!
//! A rank writes its own segment, where peers read; beside it bells, notices and counts are all
//! that several write, and parts of windows. So whatever a peer does to the memory that it can write, it can lie about
//! itself, to those that exchange data with it, and delay the others.

mod access;
pub(crate) mod agents;
mod areas;
pub(crate) mod collective;
mod combining;
mod common;
mod commons;
pub(crate) mod contexts;
mod deadlock;
mod departed;
mod describe;
mod ending;
mod endpoint;
mod faults;
mod flow_control;
mod going_on;
mod health;
pub(crate) mod heap;
mod helper;
pub(crate) mod layout;
mod loan;
mod mail;
mod member;
pub(crate) mod memory;
mod poller;
pub(crate) mod polls;
mod post;
pub(crate) mod posted;
mod prefetch;
mod queue;
mod rank_tasks;
pub(crate) mod record;
mod rendezvous;
pub(crate) mod ring;
mod single_copy;
mod spare;
mod suspicion;
mod tasks;
mod unexpected;
pub(crate) mod waiter;
pub(crate) mod window;
mod world;

pub(crate) use combining::{Arrival, CombiningBarrier, FEW, RankSlot, RoundStart};
pub use common::Common;
pub(crate) use endpoint::Endpoint;
pub(crate) use faults::FaultScope;
pub(crate) use going_on::EndedRanks;
pub use health::Health;
pub use post::packed_if_apart;
pub use rank_tasks::RankTasks;
pub(crate) use ring::{EAGER, Header};
pub(crate) use unexpected::{Arrived, Body};
pub(crate) use world::{Service, World, state};
