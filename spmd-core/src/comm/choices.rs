//! Which algorithm a rule asks for: one that is tried out, one that is forced, or the one that was
//! fastest in a measurement.

use std::cell::Cell;

use crate::algorithm::Algorithm;
use crate::call::Kind;
use crate::transport::shared::World;

/// What a measurement tries out: all rules and settings are off, but these.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trial {
    /// An algorithm for a kind of call.
    pub algorithm: Option<(Kind, Algorithm)>,
    /// Bytes of a segment.
    pub segment: Option<usize>,
}

/// What a communicator knows of choices.
pub(super) struct Choices {
    /// Whether there may be rules, or somebody who looks at what is chosen. Without, a call pays
    /// for one look at this alone: a store more made an allreduce of 8 B of two ranks 10 % slower.
    pub(super) ruled: Cell<bool>,
    pub(super) trial: Cell<Option<Trial>>,
    /// What the last call that had a choice took, while `ruled`.
    pub(super) taken: Cell<Option<Algorithm>>,
}

impl Choices {
    /// Those of a communicator of `size` ranks.
    pub(super) fn of(world: &World, size: usize) -> Choices {
        let ruled = Cell::new(is_ruled(world, size));
        Choices { ruled, trial: Cell::new(None), taken: Cell::new(None) }
    }

    /// The same choices.
    pub(super) fn copied(&self) -> Choices {
        let (ruled, trial) = (self.ruled.clone(), self.trial.clone());
        Choices { ruled, trial, taken: Cell::new(None) }
    }

    /// What the call took that is about to be made, if it had a choice.
    pub(super) fn take(&self) -> Option<Algorithm> {
        self.taken.take()
    }
}

pub(super) fn is_ruled(world: &World, size: usize) -> bool {
    let tuning = &world.tuning;
    let tuned = size == world.size() && !tuning.tuned.is_empty();
    tuned || !tuning.forced.is_empty() || tuning.trace.is_some()
}
