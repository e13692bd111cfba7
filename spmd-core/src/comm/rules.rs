//! What a communicator is asked about algorithms.

use super::choices::{Trial, is_ruled};
use super::internals::Internals;
use crate::algorithm::Algorithm;
use crate::call::Kind;

/// Choices of algorithms, for `spmd-collectives` and for measurements. All ranks of a communicator
/// choose alike: the arguments agree, and so do the rules, which hold for the whole world.
impl Internals<'_> {
    /// Whether to ask for a rule, and to say what was chosen.
    #[inline]
    pub fn has_rules(self) -> bool {
        self.0.choices.ruled.get()
    }

    /// The algorithm that a rule names for a call of this kind and size, if there is one.
    pub fn rule(self, kind: Kind, bytes: usize) -> Option<Algorithm> {
        if let Some(trial) = self.0.choices.trial.get() {
            return trial.algorithm.filter(|(tried, _)| *tried == kind).map(|(_, it)| it);
        }
        let tuning = &self.0.endpoint.world.tuning;
        tuning.forced.choose(kind, bytes).or_else(|| {
            // What was measured with all ranks at work says nothing of a few of them.
            if self.0.size() != self.0.endpoint.world.size() {
                return None;
            }
            tuning.tuned.choose(kind, bytes)
        })
    }

    /// Notes what the next call takes.
    pub fn note_choice(self, algorithm: Algorithm) {
        self.0.choices.taken.set(Some(algorithm));
    }

    /// What the last call took that had a choice and might have had a rule.
    pub fn last_choice(self) -> Option<Algorithm> {
        self.0.choices.taken.get()
    }

    /// Tries something out in the calls that follow, or ends that. All ranks do so alike, between
    /// the same calls.
    pub fn try_out(self, trial: Option<Trial>) {
        self.0.choices.trial.set(trial);
        let rules = is_ruled(&self.0.endpoint.world, self.0.size());
        self.0.choices.ruled.set(trial.is_some() || rules);
    }

    /// Bytes of a segment, where large data go through staging areas.
    pub fn segment(self) -> usize {
        let tuning = &self.0.endpoint.world.tuning;
        match self.0.choices.trial.get() {
            Some(trial) => trial.segment.unwrap_or(tuning.built_in_segment),
            None => tuning.segment,
        }
    }
}
