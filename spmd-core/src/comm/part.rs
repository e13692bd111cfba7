//! Of whom a new communicator consists.

use std::sync::Arc;

use super::Comm;
use crate::group::{Group, Leaving};

/// Ranks of a communicator, in their order in a new one, and what these share of it in this process.
#[derive(Clone)]
pub struct Part {
    pub(super) group: Group,
    pub(super) leaving: Arc<Leaving>,
}

impl Part {
    /// These ranks of `comm`, each once.
    pub fn new(comm: &Comm, ranks: &[usize]) -> Part {
        if ranks.iter().copied().eq(0..comm.size()) {
            return Part::all(comm);
        }
        let world = &comm.scope.group;
        let group = Group::of(ranks.iter().map(|rank| world.world(*rank)));
        Part { group, leaving: Arc::default() }
    }

    /// All of them: of these there is a list already.
    pub fn all(comm: &Comm) -> Part {
        Part { group: comm.scope.group.clone(), leaving: Arc::default() }
    }
}
