//! Where the virtual ranks of a block meet: a central counter for each worker, and one for the
//! workers (the centralised barrier of Mellor-Crummey and Scott, 1991, in two levels).
//!
//! Ranks of one worker run one after another, so that they count without atomic operations. The
//! last rank of a worker counts for it; the last of all may work for all, then lets all go on and
//! makes them ready a word of bits at a time. Nobody announces that it sleeps: whoever has arrived
//! is woken in any case.
//!
//! Only ranks themselves come here, never threads that they gave a communicator to: a hub serves
//! the block's own communicator, which a rank cannot give away.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use crate::wait::fleet::ranks_of_worker;

/// The meeting place of the virtual ranks of one block.
pub(crate) struct Hub {
    /// The ranks of each worker: not beside what these write.
    ranks: Box<[Range<usize>]>,
    places: Box<[Line<Place>]>,
    workers: Line<Workers>,
}

/// In cache lines of its own: the fields beside it are read all the time.
#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

/// Where workers count, and what the last to arrive leaves to the others: one line to move.
#[derive(Default)]
struct Workers {
    /// How many times a worker's ranks have all arrived, over all meetings.
    arrived: AtomicUsize,
    /// The sum of the fingerprints that their ranks came with.
    fingerprints: AtomicU64,
    /// Who was the last in the last meeting.
    last: AtomicUsize,
    /// The last meeting in which all ranks have arrived: one word for all, so that no rank goes
    /// on, and perhaps fails, before the others may.
    over: AtomicU64,
}

/// Where the ranks of one worker count. Written by the worker's thread alone.
#[derive(Default)]
struct Place {
    /// How many have arrived.
    arrived: AtomicUsize,
    /// The fingerprint of the first of them, and which it is.
    fingerprint: AtomicU64,
    first: AtomicUsize,
}

/// What a rank finds when it arrives.
pub(crate) enum Arrival {
    /// Others are still to come.
    Early,
    /// This one was the last: it must [`Hub::release`] the others.
    Last,
    /// This rank is in another call.
    Mismatch(usize),
}

impl Hub {
    pub(crate) fn new(ranks: usize, workers: usize) -> Hub {
        let of_worker = |worker| ranks_of_worker(ranks, workers, worker);
        Hub {
            ranks: (0..workers).map(of_worker).collect(),
            places: (0..workers).map(|_| Line::default()).collect(),
            workers: Line::default(),
        }
    }

    /// Whether all ranks share a thread.
    pub(crate) fn has_one_worker(&self) -> bool {
        self.places.len() == 1
    }

    /// On which worker a rank runs.
    #[inline]
    fn worker_of(&self, rank: usize) -> usize {
        if self.has_one_worker() {
            0
        } else {
            self.ranks.partition_point(|ranks| ranks.end <= rank)
        }
    }

    /// Counts `rank`, which is in the call of this fingerprint.
    #[inline]
    pub(crate) fn arrive(&self, rank: usize, fingerprint: u64) -> Arrival {
        let worker = self.worker_of(rank);
        let place = &self.places[worker].0;
        let arrived = place.arrived.load(Relaxed);
        if arrived == 0 {
            place.fingerprint.store(fingerprint, Relaxed);
            place.first.store(rank, Relaxed);
        } else if place.fingerprint.load(Relaxed) != fingerprint {
            return Arrival::Mismatch(place.first.load(Relaxed));
        }
        if arrived + 1 < self.ranks[worker].len() {
            place.arrived.store(arrived + 1, Relaxed);
            return Arrival::Early;
        }
        place.arrived.store(0, Relaxed);
        if self.has_one_worker() {
            return Arrival::Last;
        }
        let (all, workers) = (&self.workers.0, self.places.len());
        all.fingerprints.fetch_add(fingerprint, Relaxed);
        // What the ranks of all workers have done before is visible to the last.
        let before = all.arrived.fetch_add(1, AcqRel);
        if !(before + 1).is_multiple_of(workers) {
            return Arrival::Early;
        }
        let sum = all.fingerprints.swap(0, Relaxed);
        // Where the workers' fingerprints are equal, their sum is this one; where they are not,
        // but for chance (2⁻⁶⁴), it is not.
        if sum == fingerprint.wrapping_mul(workers as u64) {
            return Arrival::Last;
        }
        let other = |place: &&Line<Place>| place.0.fingerprint.load(Relaxed) != fingerprint;
        let first = self.places.iter().find(other).map(|place| place.0.first.load(Relaxed));
        first.map_or(Arrival::Last, Arrival::Mismatch)
    }

    /// Whether the meeting of this number is over. Numbers grow.
    #[inline]
    pub(crate) fn is_over(&self, meeting: u64) -> bool {
        self.workers.0.over.load(Acquire) >= meeting
    }

    /// Who was the last of the meeting that this rank has come from: nobody ends another before
    /// this rank arrives.
    #[inline]
    pub(crate) fn last(&self) -> usize {
        self.workers.0.last.load(Relaxed)
    }

    /// Ends a meeting: `rank`, the last to arrive, calls this. `wake` makes all ranks of the
    /// worker of a rank ready.
    #[inline]
    pub(crate) fn release(&self, rank: usize, meeting: u64, wake: impl Fn(usize)) {
        self.workers.0.last.store(rank, Relaxed);
        self.workers.0.over.store(meeting, Release);
        self.ranks.iter().for_each(|ranks| wake(ranks.start));
    }
}
