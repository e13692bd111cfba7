//! What a rank proposes in an agreement, on its page.

use std::sync::atomic::Ordering::*;

use crate::sync::atomic::AtomicU64 as SharedU64;

/// Words of a proposal.
pub(crate) const WORDS: usize = 18;
pub(crate) type Words = [u64; WORDS];

/// What a rank proposes in one agreement of a communicator, in `N` words.
#[repr(C, align(64))]
pub(crate) struct Proposal<const N: usize = WORDS> {
    /// The number of the agreement; written last.
    pub(super) number: SharedU64,
    /// The communicator: a peer may still hold the one that was on this area before.
    pub(super) context: SharedU64,
    pub(super) words: [SharedU64; N],
}

impl<const N: usize> Proposal<N> {
    pub(crate) fn clear(&self) {
        self.number.store(0, Release);
    }

    pub(super) fn put(&self, context: u64, number: u64, words: &[u64; N]) {
        self.context.store(context, Relaxed);
        self.words.iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
        self.number.store(number, Release);
    }

    pub(super) fn get(&self, context: u64, number: u64) -> Option<[u64; N]> {
        let here = self.number.load(Acquire) == number && self.context.load(Relaxed) == context;
        here.then(|| std::array::from_fn(|word| self.words[word].load(Relaxed)))
    }
}
