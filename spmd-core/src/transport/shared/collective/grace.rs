//! A round that is given up: the rank takes its memory back, which peers may still read.
//!
//! It says that its memory is withdrawn, then looks at each peer. One that is in the round may have
//! seen the memory before, and is waited for until it leaves; one that is not there yet sees, when
//! it comes, that the memory is withdrawn. Of processes each looks for itself. Ranks of one address
//! space look together, as of thousands that give up not each can look at all others: they make
//! [`Passes`] over all ranks, one after another, and a rank waits for one that began after it had
//! withdrawn its memory (a grace period, as of read-copy-update).

use parking_lot::Mutex;

use super::round::Round;
use super::stage::STAGE_BITS;
use crate::error::Error;
use crate::fault::print;
use crate::mode::Mode;
use crate::sync::atomic::Ordering::*;
use crate::transport::shared::common::Common;

/// Marks the number of a round among those of what the ranks of a process have in common.
const PASSES: u64 = 1 << 62;

/// Looks at all ranks of a round, by whichever rank.
#[derive(Default)]
struct Passes {
    /// The pass that is under way, or comes next.
    number: u64,
    /// The rank that it looks at next.
    next: usize,
    /// Ranks wait for the passes below this number.
    wanted: u64,
}

impl Passes {
    /// The next pass that begins, for which a rank waits.
    fn want(&mut self) -> u64 {
        let last = self.number + u64::from(self.next > 0);
        self.wanted = last + 1;
        last
    }

    /// The pass that is under way, if ranks wait for it.
    fn wanted(&self) -> Option<u64> {
        Some(self.number).filter(|number| *number < self.wanted)
    }

    /// Goes on to the end of pass `last`, as far as ranks are not `inside`. Whether a pass has
    /// ended.
    fn go_on(&mut self, last: u64, ranks: usize, inside: impl Fn(usize) -> bool) -> bool {
        let before = self.number;
        while self.number <= last {
            while self.next < ranks {
                if inside(self.next) {
                    return self.number > before;
                }
                self.next += 1;
            }
            (self.number, self.next) = (self.number + 1, 0);
        }
        self.number > before
    }
}

impl Drop for Round<'_> {
    /// A round that was given up: this rank reads no peer's memory any more, and says so before
    /// it waits until none reads its own, as two ranks may give up at once.
    fn drop(&mut self) {
        if self.waiter.stopped().is_none() {
            self.fail(Error::from("it gave up in the middle of a call"));
        }
        match self.combining {
            Some(combining) => combining.rank_slot(self.me).mark_left(self.round),
            None => self.page.done.0.store(self.round, Release),
        }
        let world = &self.endpoint.world;
        world.publish();
        // Peers that wait for anything else, the fault has ended.
        if world.mode == Mode::Processes {
            self.ring_peers();
        } else if !self.exposed.get() {
            self.help_take_back();
        }
        if self.exposed.get() {
            self.take_back();
            self.hide();
        }
    }
}

impl Round<'_> {
    #[cold]
    fn take_back(&self) {
        let world = &self.endpoint.world;
        world.taking_back.fetch_add(1, SeqCst);
        self.slot.withdrawn.store(1, SeqCst);
        if !world.policy.fences.heavy() {
            print(format_args!("cannot tell whether peers use memory of this rank; aborting"));
            std::process::abort();
        }
        if world.mode == Mode::Processes {
            for peer in (0..self.size()).filter(|peer| *peer != self.me) {
                let dead = || world.is_dead(self.scope.here.world(peer));
                self.waiter.until_gone(|| !self.is_inside(peer) || dead());
            }
        } else {
            let passes = self.passes();
            let last = passes.lock().want();
            self.waiter.until_gone(|| self.look_on(&passes, last));
        }
        world.taking_back.fetch_sub(1, SeqCst);
    }

    /// This rank, which shares an address space with the others, has left the round: if one of them
    /// waits for that, looks at those that it waits for as well.
    pub(super) fn help_take_back(&self) {
        if self.endpoint.world.taking_back.load(Relaxed) > 0 {
            let passes = self.passes();
            let wanted = passes.lock().wanted();
            wanted.map(|last| self.look_on(&passes, last));
        }
    }

    /// Whether a rank may use memory that peers have shown in this round.
    fn is_inside(&self, rank: usize) -> bool {
        self.slot_of(rank).stamp.load(Acquire) >> STAGE_BITS == self.round
            && self.left_by(rank) < self.round
    }

    fn passes(&self) -> Common<Mutex<Passes>> {
        let key = (self.scope.context, PASSES | self.key());
        Common::of(&self.endpoint.world, key, Mutex::default)
    }

    /// Goes on with the passes; whether `last` is over. Whoever ends one wakes those who wait for
    /// it.
    fn look_on(&self, passes: &Mutex<Passes>, last: u64) -> bool {
        let mut passes = passes.lock();
        let ended = passes.go_on(last, self.size(), |rank| self.is_inside(rank));
        let over = passes.number > last;
        drop(passes);
        if ended {
            self.endpoint.world.publish();
            self.ring_peers();
        }
        over
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pass_serves_those_that_came_before_it() {
        let mut passes = Passes::default();
        assert_eq!((passes.wanted(), passes.want(), passes.wanted()), (None, 0, Some(0)));
        // Rank 2 keeps the first pass from its end; who comes meanwhile needs the second.
        assert!(!passes.go_on(0, 4, |rank| rank == 2));
        assert_eq!((passes.next, passes.want()), (2, 1));
        assert!(!passes.go_on(1, 4, |rank| rank == 3));
        assert_eq!((passes.number, passes.next), (0, 3));
        // The first ends, and the second comes as far as to rank 1, which has come since.
        assert!(passes.go_on(1, 4, |rank| rank == 1));
        assert_eq!((passes.number, passes.next), (1, 1));
        assert!(passes.go_on(1, 4, |_| false));
        assert_eq!((passes.number, passes.wanted()), (2, None));
        assert_eq!((passes.want(), passes.wanted()), (2, Some(2)));
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicBool, AtomicU64, fence};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    #[derive(Default)]
    struct Shared {
        passes: Mutex<Passes>,
        /// Of each rank: 1 in the round, 2 having left it.
        stamps: [AtomicU64; 4],
        withdrawn: [AtomicBool; 4],
        freed: [AtomicBool; 4],
    }

    /// Ranks 1 and 2 take their memory back while rank 3 leaves and rank 0 comes, and reads what is
    /// not withdrawn. They look once each, for both, and have it back if a pass that began after
    /// they withdrew it is over.
    #[test]
    fn loom_nobody_reads_what_was_taken_back() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new(Shared::default());
            shared.stamps[3].store(1, Release);
            let take_back = |shared: &Shared, me: usize| {
                shared.withdrawn[me].store(true, Relaxed);
                fence(SeqCst);
                let mut passes = shared.passes.lock().unwrap();
                let last = passes.want();
                passes.go_on(last, 4, |rank| shared.stamps[rank].load(Acquire) == 1);
                if passes.number > last {
                    shared.freed[me].store(true, Relaxed);
                }
            };
            let taking = [1, 2].map(|me| {
                let shared = shared.clone();
                thread::spawn(move || take_back(&shared, me))
            });
            shared.stamps[3].store(2, Release);
            shared.stamps[0].store(1, Release);
            fence(SeqCst);
            for rank in [1, 2] {
                if !shared.withdrawn[rank].load(Relaxed) {
                    assert!(!shared.freed[rank].load(Relaxed));
                }
            }
            shared.stamps[0].store(2, Release);
            taking.into_iter().for_each(|it| it.join().unwrap());
        });
    }
}
