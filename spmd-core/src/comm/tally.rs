//! What ranks propose to each other when some may have failed, and what follows from it.

use std::sync::OnceLock;

use super::communicator::Comm;
use super::context_offer::ContextOffer;
use super::part::Part;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::transport::shared::EndedRanks;
use crate::transport::shared::collective::proposal::{WORDS, Words};

/// What a rank says in an agreement.
pub(super) enum RankProposal {
    /// Of [`Comm::agree`].
    Flags(u64),
    /// What it has for the new communicator of [`Comm::shrink`].
    ContextOffer(ContextOffer),
    /// Whether it has made it.
    Made(bool),
}

const FLAGS: u64 = 1;
const OFFER: u64 = 2;

impl RankProposal {
    pub(super) fn to_words(&self) -> Words {
        let mut words = [0; WORDS];
        match self {
            RankProposal::Flags(flags) => words[..2].copy_from_slice(&[FLAGS, *flags]),
            RankProposal::ContextOffer(offer) => {
                words[0] = OFFER;
                words[1..].copy_from_slice(&offer.0);
            }
            RankProposal::Made(made) => words[1] = u64::from(*made),
        }
        words
    }

    fn from_words(words: &Words) -> RankProposal {
        match words[0] {
            FLAGS => RankProposal::Flags(words[1]),
            OFFER => RankProposal::ContextOffer(ContextOffer(std::array::from_fn(|word| {
                words[word + 1]
            }))),
            // What no rank says counts as a no.
            _ => RankProposal::Made(words[1] == 1),
        }
    }
}

/// Whether a rank that proposes this wants a new communicator.
pub(super) fn is_offer(words: &Words) -> bool {
    words[0] == OFFER
}

/// What all ranks of a communicator have proposed, by their numbers there: counted once for all
/// ranks of a process.
pub(crate) struct Tally {
    /// Those that have ended without a proposal, in order.
    pub(super) gone: Vec<usize>,
    /// Those that have proposed flags, and the flags that are set in all of these.
    pub(super) flagged: Vec<usize>,
    pub(super) flags: u64,
    /// Those that have offered something, in order, and what they can offer together.
    pub(super) members: Vec<usize>,
    common: Option<ContextOffer>,
    /// One of them whose offer, which may be another process's word, cannot be one.
    unsound: Option<usize>,
    /// How many have made the new communicator.
    pub(super) made: usize,
    /// How many have proposed anything.
    present: usize,
    part: OnceLock<Part>,
    /// Those that are not among them, once the others go on.
    left_behind: OnceLock<EndedRanks>,
    /// Why there is no agreement, where nothing else has stopped the communicator.
    pub(super) veto: OnceLock<Fault>,
}

impl From<Vec<Option<Words>>> for Tally {
    fn from(proposals: Vec<Option<Words>>) -> Tally {
        let mut tally = Tally {
            gone: Vec::new(),
            flagged: Vec::new(),
            flags: u64::MAX,
            members: Vec::new(),
            common: None,
            unsound: None,
            made: 0,
            present: 0,
            part: OnceLock::new(),
            left_behind: OnceLock::new(),
            veto: OnceLock::new(),
        };
        for (rank, words) in proposals.iter().enumerate() {
            tally.present += usize::from(words.is_some());
            match words.as_ref().map(RankProposal::from_words) {
                None => tally.gone.push(rank),
                Some(RankProposal::Flags(flags)) => {
                    tally.flagged.push(rank);
                    tally.flags &= flags;
                }
                Some(RankProposal::ContextOffer(offer)) => {
                    tally.members.push(rank);
                    tally.common = Some(tally.common.map_or(offer, |common| common.and(offer)));
                    if !offer.can_include(&offer) {
                        tally.unsound.get_or_insert(rank);
                    }
                }
                Some(RankProposal::Made(made)) => tally.made += usize::from(made),
            }
        }
        tally
    }
}

impl Tally {
    /// What all members of the new communicator can offer together; none if some rank has proposed
    /// something else.
    ///
    /// Errors: an offer that cannot be.
    pub(super) fn offered(&self, comm: &Comm) -> Result<Option<ContextOffer>> {
        if self.members.len() < self.present {
            return Ok(None);
        }
        match self.unsound {
            None => Ok(self.common),
            Some(rank) => {
                Err(Error::corrupt(comm.world_rank(rank), "it offers a number that cannot be"))
            }
        }
    }

    /// The members of the new communicator.
    pub(super) fn part(&self, comm: &Comm) -> &Part {
        self.part.get_or_init(|| comm.internals().part_of(&self.members))
    }

    /// The ranks without which its members go on.
    pub(super) fn left_behind(&self, comm: &Comm) -> &EndedRanks {
        self.left_behind.get_or_init(|| {
            let ranks = self.gone.iter().map(|rank| comm.world_rank(*rank)).collect();
            EndedRanks::new(&comm.endpoint.world, ranks)
        })
    }
}
