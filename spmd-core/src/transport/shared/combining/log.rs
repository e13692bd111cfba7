//! The calls of one worker's ranks. The first rank to begin a round writes its call down; those
//! who come later compare theirs with it, and write nothing but how far they are. A rank that
//! need not wait for the others can be [`ROUNDS`] calls ahead of the last one.
//!
//! An entry is used again when the ranks of all workers have left its round: those of other
//! workers read what a rank shows to all.

use std::panic::Location;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*, fence};

use crossbeam_utils::CachePadded;

use crate::transport::shared::record::CallRecord;

/// Rounds that are on record at once.
pub(crate) const ROUNDS: u64 = 64;
/// Bytes that a rank can show to all in the log, and a meeting leave to all.
pub(crate) const FEW: usize = 48;
/// Rounds of which a rank's source line is kept.
pub(super) const SITES: u64 = 3;

/// The log of one worker.
pub(super) struct Log {
    pub(super) entries: Box<[RoundEntry]>,
    pub(super) shown: Box<[PublishedPayload]>,
    pub(super) ranks: Box<[RankProgress]>,
    /// All ranks have left this round. In a line of its own: other workers look at it.
    pub(super) done: CachePadded<AtomicU64>,
}

/// One round.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct RoundEntry {
    pub(super) round: AtomicU64,
    pub(super) fingerprint: AtomicU64,
    /// Who was the first to begin it.
    pub(super) first: AtomicU32,
    /// How many have left it.
    pub(super) left: AtomicU32,
    pub(super) call: CallRecord,
}

/// What a rank of this worker shows to all in a round.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct PublishedPayload {
    /// Written last.
    pub(super) round: AtomicU64,
    pub(super) fingerprint: AtomicU64,
    pub(super) data: [AtomicU64; FEW / 8],
}

/// How far a rank is.
#[derive(Default)]
#[repr(align(32))]
pub(super) struct RankProgress {
    /// Twice the round that it has begun, plus one if it has said that it has left it.
    pub(super) at: AtomicU64,
    pub(super) sites: [AtomicPtr<Location<'static>>; SITES as usize],
}

/// What a rank finds when it begins a round.
pub(crate) enum RoundStart {
    /// The call that the others make.
    Same,
    /// Nothing: it must write its call down ([`RankSlot::write_down`]).
    First,
    /// The call of this rank, and it is another one.
    Mismatch(usize),
}

impl Log {
    pub(super) fn new(ranks: usize) -> Log {
        Log {
            entries: (0..ROUNDS).map(|_| RoundEntry::default()).collect(),
            shown: (0..ROUNDS).map(|_| PublishedPayload::default()).collect(),
            ranks: (0..ranks).map(|_| RankProgress::default()).collect(),
            done: CachePadded::default(),
        }
    }

    #[inline]
    pub(super) fn entry(&self, round: u64) -> &RoundEntry {
        &self.entries[(round % ROUNDS) as usize]
    }

    /// The entry of a round that some rank has written down and that is still on record.
    pub(super) fn known(&self, round: u64) -> Option<&RoundEntry> {
        Some(self.entry(round)).filter(|entry| entry.round.load(Acquire) == round)
    }

    /// Its fingerprint.
    pub(super) fn fingerprint(&self, round: u64) -> Option<u64> {
        let entry = self.known(round)?;
        let fingerprint = entry.fingerprint.load(Relaxed);
        fence(Acquire);
        (entry.round.load(Relaxed) == round).then_some(fingerprint)
    }

    #[inline]
    pub(super) fn shown(&self, round: u64) -> &PublishedPayload {
        &self.shown[(round % ROUNDS) as usize]
    }

    #[inline]
    pub(super) fn done(&self) -> u64 {
        self.done.load(Acquire)
    }
}
