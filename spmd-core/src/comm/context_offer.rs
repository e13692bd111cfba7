//! What ranks offer each other for a new communicator.

use super::communicator::Comm;
use super::internals::Internals;
use crate::call::Call;
use crate::error::{Error, Result};

/// Areas that one rank can have.
const AREAS: usize = 1024;
const CONTEXT: usize = AREAS / 64;

/// What one rank can offer, or several together: a bit for each area that is free, then the least
/// number that a new communicator can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextOffer(pub [u64; ContextOffer::WORDS]);

impl ContextOffer {
    /// Words of an offer.
    pub const WORDS: usize = CONTEXT + 1;

    /// What two can offer together.
    #[must_use]
    pub fn and(self, other: ContextOffer) -> ContextOffer {
        let mut both = std::array::from_fn(|word| self.0[word] & other.0[word]);
        both[CONTEXT] = self.context().max(other.context());
        ContextOffer(both)
    }

    /// The least number of a new communicator.
    pub fn context(&self) -> u64 {
        self.0[CONTEXT]
    }

    /// Whether this can be what the rank that offers `own` has together with others: what they say
    /// may be another process's word.
    pub fn can_include(&self, own: &ContextOffer) -> bool {
        let taken = |word: usize| self.0[word] & !own.0[word] != 0;
        let numbers = own.context()..=u64::MAX / 2;
        !(0..CONTEXT).any(taken) && numbers.contains(&self.context())
    }

    /// An area that is free. Threads of a rank that make communicators of different ones at a time
    /// begin to look at different places, as they must not take the same.
    ///
    /// Errors: there is none.
    pub fn area(&self, comm: &Comm, call: &Call<'_>) -> Result<usize> {
        let free = |area: &usize| self.0[area / 64] >> (area % 64) & 1 == 1;
        let start = comm.internals().area() * 61 % AREAS;
        let mut areas = (start..AREAS).chain(0..start);
        areas.find(free).ok_or_else(|| {
            Error::unavailable(
                format!("a new communicator ({call})"),
                "every area for communicators is in use by a communicator of at least one rank"
                    .into(),
                "drop communicators that are no longer needed, on all their ranks".into(),
            )
        })
    }
}

impl Internals<'_> {
    /// What this rank can offer for a new communicator.
    pub fn offer(self) -> ContextOffer {
        let mut words = [0; ContextOffer::WORDS];
        let free = self.0.endpoint.free_areas();
        words[..free.len()].copy_from_slice(&free);
        words[CONTEXT] = self.0.endpoint.next_context();
        ContextOffer(words)
    }
}
