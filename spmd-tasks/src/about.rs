//! What is said of a task besides its work.

use std::sync::{Arc, OnceLock};

use crate::choice::Either;
use crate::placement::Scope;
use crate::remote::errand::Errand;
use crate::request::Asks;
use crate::turns::Turn;
use crate::watch::Watched;

/// Which tasks workers take first, of those that have not begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Priority {
    /// Before all others.
    High,
    /// The last one that a task has spawned first, then in the order in which ranks have spawned them.
    #[default]
    Usual,
    /// When there are no others.
    Low,
}

/// What is said of a task besides its work.
#[derive(Default)]
pub(crate) struct About {
    pub(crate) name: Option<Box<str>>,
    pub(crate) priority: Priority,
    /// If it asks for more than one worker.
    pub(crate) asks: Option<Arc<Asks>>,
    /// Where it, and what it spawns, may run.
    pub(crate) scope: Option<Arc<Scope>>,
    /// The rank that runs it, if that is not the one that spawns it.
    pub(crate) rank: Option<usize>,
    /// What it is, or waits for, if a function that a rank was asked to run.
    pub(crate) errand: Option<Arc<Errand>>,
    /// If it has code for the host and for GPUs.
    pub(crate) either: Option<Box<Either>>,
    /// Where it runs, and why there, once that is chosen.
    pub(crate) runs: OnceLock<String>,
    pub(crate) watched: Option<Box<Watched>>,
    /// With data that it shares with others in any order.
    pub(crate) turn: Option<Turn>,
}
