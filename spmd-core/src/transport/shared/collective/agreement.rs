//! Agreements: what ranks of a communicator decide together, whoever of them fails meanwhile.
//!
//! Every rank puts a proposal on its page, once, and waits until each of its peers has put one or
//! has ended. A rank that has ended puts no more, what it has put stays where it is, and the kernel
//! or the rank itself has confirmed the end. So all that come through have the same proposals
//! before them, those of ranks that died since included, and need not send each other anything
//! else. (Processes joined by messages must: Herault et al., SC'15.) Whatever a rank makes of the
//! proposals alone, all make of them. So the ranks of one process look at each page once for all of
//! them ([`ReceivedProposals`]), and what is made of the proposals is made once.
//!
//! The order that this needs: a rank puts its proposal before it ends ([`Endpoint::leave`] keeps
//! its other threads from putting one later), and whoever looks for it asks first whether the rank
//! has ended, then for the proposal ([`read_proposal`]).
//!
//! Two places take turns. A rank that puts proposal k + 2 has come through agreement k + 1, in
//! which each peer has put a proposal, and so has come through agreement k before, or has ended. A
//! page serves another communicator when all members have left the last agreement that its owner
//! was in (`contexts.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use parking_lot::Mutex;

use super::place::CollectiveArea;
use super::proposal::{Proposal, Words};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::Scope;
use crate::mode::Mode;
use crate::transport::shared::common::Common;
use crate::transport::shared::endpoint::Endpoint;
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;

/// The place of an agreement's proposals.
fn place<const N: usize>(proposals: &[Proposal<N>; 2], number: u64) -> &Proposal<N> {
    &proposals[(number % 2) as usize]
}

/// What a rank proposes in an agreement, `Some(None)` if it has ended without a proposal; `None` as
/// long as that is open.
fn read_proposal<const N: usize>(
    proposals: &[Proposal<N>; 2],
    context: u64,
    number: u64,
    ended: impl FnOnce() -> bool,
) -> Option<Option<[u64; N]>> {
    let ended = ended();
    let proposal = place(proposals, number).get(context, number);
    (ended || proposal.is_some()).then_some(proposal)
}

/// What ranks of one process have heard of all in one agreement, and what is made of it.
struct ReceivedProposals<T> {
    /// By rank, as far as they have looked: an answer does not change.
    heard: Vec<Option<Words>>,
    made: Option<Arc<T>>,
}

/// How far a rank has come in an agreement.
enum AgreementProgress<T> {
    /// This rank is awaited.
    Not(usize),
    /// All have proposed something or ended; `first` if others may not know.
    All { made: Arc<T>, first: bool },
}

impl<T: From<Vec<Option<Words>>>> ReceivedProposals<T> {
    /// Goes on to look for what each of `ranks` proposes.
    fn look(
        &mut self,
        ranks: usize,
        read: impl Fn(usize) -> Option<Option<Words>>,
    ) -> AgreementProgress<T> {
        if let Some(made) = &self.made {
            return AgreementProgress::All { made: made.clone(), first: false };
        }
        while self.heard.len() < ranks {
            let Some(proposal) = read(self.heard.len()) else {
                return AgreementProgress::Not(self.heard.len());
            };
            self.heard.push(proposal);
        }
        let made = Arc::new(T::from(std::mem::take(&mut self.heard)));
        self.made = Some(made.clone());
        AgreementProgress::All { made, first: true }
    }
}

/// Marks the number of an agreement among those of what the ranks of a process have in common.
const AGREEMENT: u64 = 1 << 63;

impl CollectiveArea {
    /// How many agreements this rank has begun here.
    pub(crate) fn agreements(&self) -> u64 {
        self.agreements.get().unwrap_or(0)
    }
}

impl Endpoint {
    /// This rank's next agreement on a communicator in one arena: what is made of what each member
    /// proposes, in rank order, `None` for those that have ended without a proposal. The same on
    /// all that get it.
    pub(crate) fn agree_on<T>(
        &self,
        scope: &Scope,
        area: &CollectiveArea,
        call: &Call<'_>,
        noted: Noted,
        words: &Words,
    ) -> Result<Arc<T>>
    where
        T: From<Vec<Option<Words>>> + Send + Sync + 'static,
    {
        let Some(before) = area.agreements.get() else {
            return Err(Error::argument(format!(
                "{call}: an earlier agree or shrink of this rank has ended before the other ranks \
                 had come to it; the communicator can agree on nothing more"
            )));
        };
        let number = before + 1;
        let page = self.world.memory.area(self.rank, area.index);
        // Held before this rank proposes: nobody comes through before, and what all look at stays.
        let key = (scope.context, AGREEMENT | number);
        let common = Common::of(&self.world, key, || {
            Mutex::new(ReceivedProposals::<T> { heard: Vec::new(), made: None })
        });
        self.while_inside(scope.block, call, || {
            place(&page.proposals, number).put(scope.context, number, words);
        })?;
        area.agreements.set(Some(number));
        self.world.agreeing.store(true, Relaxed);
        self.world.memory.head(self.rank).goes_on.store(1, Relaxed);
        // In one process, whoever hears the last of all wakes the others.
        if self.world.mode == Mode::Processes {
            self.ring_peers_of(scope);
        }
        let waiter = Waiter::new(self, scope, call, noted).despite_failures();
        let outcome = waiter.until(|| {
            let heard = common.lock().look(scope.here.len(), |place| {
                let rank = scope.here.world(place);
                let page = self.world.memory.area(rank, area.index);
                let ended = || self.world.has_ended(rank, scope.block);
                read_proposal(&page.proposals, scope.context, number, ended)
            });
            match heard {
                AgreementProgress::Not(place) => {
                    waiter.waits_on(Some(scope.here.world(place)));
                    None
                }
                AgreementProgress::All { made, first } => {
                    if first {
                        self.ring_peers_of(scope);
                    }
                    // Peers may have ended because they wait in a cycle with this rank.
                    Some(waiter.stopped().map_or(Ok(made), Err))
                }
            }
        });
        let outcome = outcome.and_then(|ended| ended);
        page.agreed.0.store(number, Release);
        if outcome.is_err() {
            area.agreements.set(None);
        }
        outcome
    }

    /// Wakes the other ranks of this arena that are in the communicator.
    fn ring_peers_of(&self, scope: &Scope) {
        self.world.publish();
        let peers = scope.here.iter().filter(|rank| *rank != self.rank);
        peers.for_each(|rank| self.world.bell(rank).ring_after_fence());
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicBool;
    use loom::sync::Arc;
    use loom::thread;

    /// One rank's page, and whether it has ended.
    struct Page {
        proposals: [Proposal<1>; 2],
        ended: AtomicBool,
    }

    fn page() -> Page {
        let proposal = || Proposal {
            number: crate::sync::atomic::AtomicU64::new(0),
            context: crate::sync::atomic::AtomicU64::new(0),
            words: [crate::sync::atomic::AtomicU64::new(0)],
        };
        Page { proposals: [proposal(), proposal()], ended: AtomicBool::new(false) }
    }

    const CONTEXT: u64 = 7;

    /// Puts a proposal and waits for those of all.
    fn agree(pages: &[Page], me: usize, number: u64, word: u64) -> Vec<Option<u64>> {
        place(&pages[me].proposals, number).put(CONTEXT, number, &[word]);
        let hear = |page: &Page| {
            loop {
                let ended = || page.ended.load(Acquire);
                match read_proposal(&page.proposals, CONTEXT, number, ended) {
                    Some(proposal) => return proposal.map(|[word]| word),
                    None => thread::yield_now(),
                }
            }
        };
        pages.iter().map(hear).collect()
    }

    /// What a rank hears of one that dies is what any other hears later.
    #[test]
    fn loom_an_answer_does_not_change() {
        for proposes in [false, true] {
            loom::model(move || {
                let shared = Arc::new(page());
                let theirs = shared.clone();
                let dying = thread::spawn(move || {
                    if proposes {
                        place(&theirs.proposals, 1).put(CONTEXT, 1, &[12]);
                    }
                    theirs.ended.store(true, Release);
                });
                let look =
                    || read_proposal(&shared.proposals, CONTEXT, 1, || shared.ended.load(Acquire));
                let (first, second) = (look(), look());
                dying.join().unwrap();
                let last = proposes.then_some([12]);
                assert_eq!(look(), Some(last));
                assert!([first, second].into_iter().flatten().all(|heard| heard == last));
            });
        }
    }

    /// Three agreements in a row use the first place twice.
    #[test]
    fn loom_places_take_turns() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let pages = Arc::new([page(), page()]);
            let theirs = pages.clone();
            let peer = thread::spawn(move || {
                (1..=3).for_each(|number| {
                    let heard = agree(&theirs[..], 1, number, 20 + number);
                    assert_eq!(heard, [Some(10 + number), Some(20 + number)]);
                });
            });
            (1..=3).for_each(|number| {
                let heard = agree(&pages[..], 0, number, 10 + number);
                assert_eq!(heard, [Some(10 + number), Some(20 + number)]);
            });
            peer.join().unwrap();
        });
    }
}
