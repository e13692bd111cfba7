//! Where the virtual ranks of a block meet: a central counter for each worker, and one for the
//! workers (the centralised barrier of Mellor-Crummey and Scott, 1991, in two levels).
//!
//! Ranks of one worker run one after another, so that they count without atomic operations. The
//! last rank of a worker counts for it; the last of all may work for all, then lets all go on and
//! makes them ready a word of bits at a time. Nobody announces that it sleeps: whoever has arrived
//! is woken in any case.
//!
//! Only ranks themselves come here, never threads that they gave a communicator to: a combining
//! barrier serves the block's own communicator, which a rank cannot give away.
//!
//! Each worker also keeps the log of its ranks' calls (`log.rs`), to which every rank compares its
//! call when it begins.

mod behind;
mod calls;
mod folding;
mod log;
mod payloads;
mod report;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use crossbeam_utils::CachePadded;

use self::behind::Behind;
use self::log::Log;
pub(crate) use self::log::{FEW, RoundStart};
use self::payloads::Payloads;
use super::collective::stage::STAGE_BITS;
use crate::sync::atomic::AtomicU32 as BellWord;
use crate::wait::scheduler::ranks_of_worker;

/// The meeting place of the virtual ranks of one block.
pub(crate) struct CombiningBarrier {
    /// The worker of each rank.
    worker_of: Box<[u32]>,
    places: Box<[WorkerSlot]>,
    workers: CachePadded<Workers>,
    outcome: CachePadded<Outcome>,
    /// Who has not come to a round, and who not to a stage of one.
    behind: CachePadded<[Behind; 2]>,
}

/// Where workers count.
#[derive(Default)]
struct Workers {
    /// How many times a worker's ranks have all arrived, over all meetings.
    arrived: AtomicUsize,
    /// The sum of the fingerprints that their ranks came with.
    fingerprints: AtomicU64,
}

/// What the last to arrive leaves to the others: one line to move.
#[derive(Default)]
struct Outcome {
    /// The last meeting in which all ranks have arrived: one word for all, so that no rank goes
    /// on, and perhaps fails, before the others may.
    over: AtomicU64,
    /// Who was the last in it.
    last: AtomicUsize,
    /// What it has left to all.
    data: [AtomicU64; FEW / 8],
}

/// What belongs to one worker. Its thread alone writes it, but for the bell.
struct WorkerSlot {
    /// Its ranks: not beside what they write.
    ranks: Range<usize>,
    /// How many of them have arrived.
    arrived: CachePadded<AtomicUsize>,
    /// On which they sleep while they wait for what ranks of any worker do in the combining
    /// barrier.
    bell: CachePadded<BellWord>,
    log: Log,
    payloads: Payloads,
}

/// What a rank finds when it comes to a meeting.
pub(crate) enum Arrival {
    /// Others are still to come: it waits until [`CombiningBarrier::is_over`].
    Early,
    /// It was the last, and all go on.
    Last,
    /// This rank is in another call.
    Mismatch(usize),
}

/// A rank in the combining barrier.
#[derive(Clone, Copy)]
pub(crate) struct RankSlot<'a> {
    /// What belongs to the worker of the rank, on whose thread this is used.
    place: &'a WorkerSlot,
    rank: usize,
}

impl<'a> RankSlot<'a> {
    /// The word of the bell on which the rank sleeps.
    #[inline]
    pub(crate) fn bell(self) -> &'a BellWord {
        &self.place.bell
    }

    /// Counts the rank. Whether it is the last of its worker.
    #[inline]
    fn arrive(self) -> bool {
        let arrived = self.place.arrived.load(Relaxed) + 1;
        let last = arrived == self.place.ranks.len();
        self.place.arrived.store(if last { 0 } else { arrived }, Relaxed);
        last
    }
}

impl CombiningBarrier {
    pub(crate) fn new(ranks: usize, workers: usize) -> CombiningBarrier {
        let place = |worker| {
            let ranks = ranks_of_worker(ranks, workers, worker);
            let (log, payloads) = (Log::new(ranks.len()), Payloads::new(ranks.len()));
            let bell = CachePadded::new(BellWord::new(0));
            WorkerSlot { ranks, arrived: CachePadded::default(), bell, log, payloads }
        };
        let places: Box<[WorkerSlot]> = (0..workers).map(place).collect();
        let each = places.iter().enumerate();
        let worker_of =
            each.flat_map(|(worker, place)| place.ranks.clone().map(move |_| worker as u32));
        CombiningBarrier {
            worker_of: worker_of.collect(),
            places,
            workers: CachePadded::default(),
            outcome: CachePadded::default(),
            behind: CachePadded::default(),
        }
    }

    /// Whether all ranks share a thread.
    #[inline]
    pub(crate) fn has_one_worker(&self) -> bool {
        self.places.len() == 1
    }

    #[inline]
    fn place(&self, rank: usize) -> &WorkerSlot {
        &self.places[self.worker_of[rank] as usize]
    }

    /// The slot of a rank.
    #[inline]
    pub(crate) fn rank_slot(&self, rank: usize) -> RankSlot<'_> {
        RankSlot { place: self.place(rank), rank }
    }

    /// The word of the bell on which the ranks of each worker sleep, and the first of them.
    pub(crate) fn bells(&self) -> impl Iterator<Item = (&BellWord, usize)> {
        self.places.iter().map(|place| (&*place.bell, place.ranks.start))
    }

    /// How many workers there are.
    #[inline]
    pub(crate) fn workers(&self) -> usize {
        self.places.len()
    }

    /// The first rank of each worker.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = usize> + '_ {
        self.places.iter().map(|place| place.ranks.start)
    }

    /// A rank comes to a meeting of this number, in a call of this fingerprint. The last of each
    /// worker runs `at_worker`, the last of all then `at_last`, before all go on; `wake` makes all
    /// ranks of the worker of a rank ready.
    ///
    /// Errors: those of `at_worker` and `at_last`, after which the meeting never ends.
    #[inline]
    pub(crate) fn meet<E>(
        &self,
        rank_slot: RankSlot<'_>,
        (meeting, fingerprint): (u64, u64),
        at_worker: impl FnOnce() -> Result<(), E>,
        at_last: impl FnOnce() -> Result<(), E>,
        wake: impl Fn(usize),
    ) -> Result<Arrival, E> {
        if !rank_slot.arrive() {
            return Ok(Arrival::Early);
        }
        at_worker()?;
        let arrival = self.count_worker(rank_slot.rank, fingerprint);
        if let Arrival::Last = arrival {
            at_last()?;
            self.outcome.last.store(rank_slot.rank, Relaxed);
            self.outcome.over.store(meeting, Release);
            self.firsts().for_each(wake);
        }
        Ok(arrival)
    }

    /// Counts the worker whose last rank to arrive is `rank`; all of its ranks are in the call of
    /// this fingerprint.
    #[inline]
    fn count_worker(&self, rank: usize, fingerprint: u64) -> Arrival {
        if self.has_one_worker() {
            return Arrival::Last;
        }
        let (all, workers) = (&*self.workers, self.places.len());
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
        self.other_call(rank).map_or(Arrival::Last, Arrival::Mismatch)
    }

    /// Whether the meeting of this number is over. Numbers grow.
    #[inline]
    pub(crate) fn is_over(&self, meeting: u64) -> bool {
        self.outcome.over.load(Acquire) >= meeting
    }

    /// Who was the last of the meeting that this rank has come from: nobody ends another before
    /// this rank arrives.
    #[inline]
    pub(crate) fn last(&self) -> usize {
        self.outcome.last.load(Relaxed)
    }

    /// What the last of that meeting has left to all: written by it before it ends the meeting.
    #[inline]
    pub(crate) fn outcome(&self) -> *const u8 {
        self.outcome.data.as_ptr().cast()
    }

    /// Whether every rank has left this round.
    #[inline]
    pub(crate) fn all_left(&self, round: u64) -> bool {
        // All have come to a meeting of a later round, or each worker has counted its ranks.
        self.outcome.over.load(Acquire) >> STAGE_BITS > round
            || self.places.iter().all(|place| place.log.done() >= round)
    }
}
