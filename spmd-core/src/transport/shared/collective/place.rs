//! A communicator's place on the areas of its members.

use std::cell::{Cell, RefCell};

use crate::call::Call;
use crate::hash::mix;
use crate::transport::shared::heap::Block;

/// How ranks reach each other's private memory, from worse to better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// Not at all.
    None,
    /// Through the kernel, more slowly than by a copy in between.
    Slow,
    /// Through the kernel, faster than that.
    Fast,
}

/// Whether the ranks of a communicator may read each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Unknown,
    /// This rank has tried.
    Tried(Reach),
    /// All ranks know: the least of all.
    Agreed(Reach),
}

/// A communicator's place on the areas of its members, and how far this rank is.
pub(crate) struct CollectiveArea {
    pub(crate) index: usize,
    pub(super) round: Cell<u64>,
    /// Every peer is known to have left this round.
    pub(super) settled: Cell<u64>,
    /// The fingerprint of all calls so far.
    pub(super) history: Cell<u64>,
    /// How many agreements this rank has begun; `None` once it has left one before its end.
    pub(super) agreements: Cell<Option<u64>>,
    pub(super) staging: RefCell<Option<Block>>,
    pub(super) reading: Cell<Reading>,
}

/// Where among its communicator's calls one is started.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// The fingerprint of all that were not started.
    history: u64,
    reach: Reach,
}

impl CollectiveArea {
    /// A place for the communicator of this number, which is part of all its fingerprints: a
    /// peer that still holds the communicator that was here before must not take one for the
    /// other.
    pub(crate) fn new(index: usize, context: u64) -> CollectiveArea {
        let (round, settled, staging) = Default::default();
        let reading = Cell::new(Reading::Unknown);
        let (history, agreements) = (Cell::new(context), Cell::new(Some(0)));
        CollectiveArea { index, round, settled, history, agreements, staging, reading }
    }

    /// Whether all ranks know that all may read each other's private memory.
    pub(crate) fn reads_private(&self) -> bool {
        self.reach() >= Reach::Slow
    }

    /// And that all do so faster than by a copy in between.
    pub(crate) fn prefers_private(&self) -> bool {
        self.reach() == Reach::Fast
    }

    /// What all ranks know.
    fn reach(&self) -> Reach {
        if let Reading::Agreed(reach) = self.reading.get() { reach } else { Reach::None }
    }

    /// The number of this rank's next round, and the fingerprint of all calls with this one.
    #[inline]
    pub(crate) fn next(&self, call: &Call<'_>) -> (u64, u64) {
        let round = self.round.get() + 1;
        self.round.set(round);
        let fingerprint = mix(self.history.get() ^ call.fingerprint());
        self.history.set(fingerprint);
        (round, fingerprint)
    }

    /// What all ranks know that start a call now, between the same others.
    pub(crate) fn moment(&self) -> Moment {
        Moment { history: self.history.get(), reach: self.reach() }
    }

    /// A call is started, which all calls that follow tell of.
    pub(crate) fn notes_start(&self) {
        self.history.set(mix(!self.history.get()));
    }

    /// The next call here was started at this moment of the communicator's other calls, as number
    /// `start` of those that were started.
    pub(crate) fn follows(&self, moment: Moment, start: u64) {
        self.history.set(mix(self.history.get() ^ mix(moment.history ^ start)));
        self.reading.set(Reading::Agreed(moment.reach));
    }

    /// How many rounds this rank has begun.
    pub(crate) fn rounds(&self) -> u64 {
        self.round.get()
    }
}
