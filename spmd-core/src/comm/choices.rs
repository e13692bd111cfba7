//! Which algorithm a rule asks for: one that is tried out, one that is forced, or the one that was
//! fastest in a measurement.

use std::cell::Cell;

use super::Comm;
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
    /// Whether there may be rules, or somebody who looks at what is chosen. Without, a call pays for
    /// one look at this alone: a store more made an allreduce of 8 B of two ranks 10 % slower.
    ruled: Cell<bool>,
    trial: Cell<Option<Trial>>,
    /// What the last call that had a choice took, while `ruled`.
    taken: Cell<Option<Algorithm>>,
}

impl Choices {
    /// Those of a communicator of `size` ranks.
    pub(super) fn of(world: &World, size: usize) -> Choices {
        let ruled = Cell::new(is_ruled(world, size));
        Choices { ruled, trial: Cell::new(None), taken: Cell::new(None) }
    }

    /// What the call took that is about to be made, if it had a choice.
    pub(super) fn take(&self) -> Option<Algorithm> {
        self.taken.take()
    }
}

fn is_ruled(world: &World, size: usize) -> bool {
    let tuning = &world.tuning;
    let tuned = size == world.size() && !tuning.tuned.is_empty();
    tuned || !tuning.forced.is_empty() || tuning.trace.is_some()
}

/// Choices of algorithms, for `spmd-collectives` and for measurements. All ranks of a communicator
/// choose alike: the arguments agree, and so do the rules, which hold for the whole world.
#[doc(hidden)]
impl Comm {
    /// Whether to ask for a rule, and to say what was chosen.
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.choices.ruled.get()
    }

    /// The algorithm that a rule names for a call of this kind and size, if there is one.
    pub fn rule(&self, kind: Kind, bytes: usize) -> Option<Algorithm> {
        if let Some(trial) = self.choices.trial.get() {
            return trial.algorithm.filter(|(tried, _)| *tried == kind).map(|(_, it)| it);
        }
        let tuning = &self.endpoint.world.tuning;
        tuning.forced.choose(kind, bytes).or_else(|| {
            // What was measured with all ranks at work says nothing of a few of them.
            if self.size() != self.endpoint.world.size() {
                return None;
            }
            tuning.tuned.choose(kind, bytes)
        })
    }

    /// Notes what the next call takes.
    pub fn note_choice(&self, algorithm: Algorithm) {
        self.choices.taken.set(Some(algorithm));
    }

    /// What the last call took that had a choice and might have had a rule.
    pub fn last_choice(&self) -> Option<Algorithm> {
        self.choices.taken.get()
    }

    /// Tries something out in the calls that follow, or ends that. All ranks do so alike, between
    /// the same calls.
    pub fn try_out(&self, trial: Option<Trial>) {
        self.choices.trial.set(trial);
        let rules = is_ruled(&self.endpoint.world, self.size());
        self.choices.ruled.set(trial.is_some() || rules);
    }

    /// Bytes of a segment, where large data go through staging areas.
    pub fn segment(&self) -> usize {
        let tuning = &self.endpoint.world.tuning;
        match self.choices.trial.get() {
            Some(trial) => trial.segment.unwrap_or(tuning.built_in_segment),
            None => tuning.segment,
        }
    }
}
