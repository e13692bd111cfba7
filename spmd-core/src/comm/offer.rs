//! What ranks offer each other for a new communicator.

use super::communicator::Comm;
use crate::call::Call;
use crate::error::{Error, Result};

/// Boards that one rank can have.
const BOARDS: usize = 1024;
const CONTEXT: usize = BOARDS / 64;

/// What one rank can offer, or several together: a bit for each board that is free, then the least
/// number that a new communicator can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer(pub [u64; Offer::WORDS]);

impl Offer {
    /// Words of an offer.
    pub const WORDS: usize = CONTEXT + 1;

    /// What two can offer together.
    #[must_use]
    pub fn and(self, other: Offer) -> Offer {
        let mut both = std::array::from_fn(|word| self.0[word] & other.0[word]);
        both[CONTEXT] = self.context().max(other.context());
        Offer(both)
    }

    /// The least number of a new communicator.
    pub fn context(&self) -> u64 {
        self.0[CONTEXT]
    }

    /// Whether this can be what the rank that offers `own` has together with others: what they say
    /// may be another process's word.
    pub fn can_include(&self, own: &Offer) -> bool {
        let taken = |word: usize| self.0[word] & !own.0[word] != 0;
        let numbers = own.context()..=u64::MAX / 2;
        !(0..CONTEXT).any(taken) && numbers.contains(&self.context())
    }

    /// A board that is free. Threads of a rank that make communicators of different ones at a time
    /// begin to look at different places, as they must not take the same.
    ///
    /// Errors: there is none.
    pub fn board(&self, comm: &Comm, call: &Call<'_>) -> Result<usize> {
        let free = |board: &usize| self.0[board / 64] >> (board % 64) & 1 == 1;
        let start = comm.board() * 61 % BOARDS;
        let mut boards = (start..BOARDS).chain(0..start);
        boards.find(free).ok_or_else(|| {
            Error::unavailable(
                format!("a new communicator ({call})"),
                "every board is in use by a communicator of at least one rank".into(),
                "drop communicators that are no longer needed, on all their ranks".into(),
            )
        })
    }
}

#[doc(hidden)]
impl Comm {
    /// What this rank can offer for a new communicator.
    pub fn offer(&self) -> Offer {
        let mut words = [0; Offer::WORDS];
        let free = self.endpoint.free_boards();
        words[..free.len()].copy_from_slice(&free);
        words[CONTEXT] = self.endpoint.next_context();
        Offer(words)
    }
}
