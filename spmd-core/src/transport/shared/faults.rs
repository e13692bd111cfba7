//! Faults: what stopped whom, in the order in which it happened.
//!
//! A fault is written where it belongs, by whom it belongs to, so that there is always a place for
//! it, and no rank can spoil what another one has said:
//!
//! | what | where | the place is used again |
//! | --- | --- | --- |
//! | a rank's process is gone | `Memory::death` of the rank, by the launcher | never |
//! | everything stops | the last of these | never |
//! | a rank has failed in a block | its `Memory::failure` of the block | three blocks later |
//! | a rank stops a block's own communicator | its page of that board | three blocks later |
//! | a rank stops another communicator | its page of that board | with the board |
//! | a rank ends a circle of waits | its `Memory::verdict` | when these waits are over |
//!
//! **Who still needs it.** Only ranks that are in the block, or have the communicator, look for a
//! fault, and each keeps what it has found ([`Scope::fault`]). A rank enters a block when all that
//! live have ended the block before, and clears the places of the next one when it leaves: those of
//! the block before the last, from which all have returned, as they have entered the last
//! (`ending.rs`). It uses the board of a communicator again when each other member has dropped the
//! communicator, or says on its own page that it knows the fault, or is dead (`contexts.rs`): a
//! member that is half a second late, or computes for an hour, holds one board, no more. A verdict
//! names waits, which their owners end (`deadlock.rs`). So a place that somebody may look for is
//! never cleared, and there is one for every fault: of a rank in a block, and of a rank in a
//! communicator, there is one that counts.
//!
//! **Order.** Each fault gets a number. The first that concerns a communicator is the cause that
//! all its ranks see. *Notices* say by the number whose fault it is, so that a rank looks at each
//! fault once, not at all ranks for each; the newest are kept, more than two a rank. Who has missed
//! more looks at all members once. A notice is a hint: it only counts with the place that it leads
//! to, and a process that spoils notices delays others, who then learn from each other's states
//! that somebody has ended.
//!
//! **A late writer.** Its number is taken before its fault can be read. A reader that meets such a
//! number waits for it for a moment, as it may be the first cause, then leaves it open
//! ([`Scope::examined`] stays before it): when the fault is complete, `ready` moves on, and all
//! look again.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::RangeInclusive;

use super::agents::Wait;
use super::contexts::{BLOCK_BOARDS, board_of};
use super::layout::{FAULT_BYTES, FaultPlace};
use super::{Endpoint, World};
use crate::fault::Fault;
use crate::group::Scope;
use crate::sync::atomic::{AtomicU64 as SharedU64, Ordering::*, fence};

/// Whom a fault stops, whoever raises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Every communicator of this block that holds the rank. `block` 0: of every block.
    Rank { rank: usize, block: u32 },
    /// Every communicator.
    All,
}

/// In notices, instead of a rank: the fault stops everything.
const EVERYBODY: u32 = u32::MAX;

/// How often to look for a fault that is being written.
const PATIENCE: u32 = 10_000;

/// Faults that a rank remembers to have been told of.
const TOLD: usize = 16;

const EMPTY: u32 = 0;
const WRITING: u32 = u32::MAX;

/// What stands in a place.
struct Written {
    number: u32,
    stops: u64,
    text: Vec<u8>,
}

impl<const N: usize> FaultPlace<N> {
    /// Writes a fault, unless one is there. `number` gives it its number, which is given back.
    fn put(&self, stops: u64, text: &[u8], number: impl FnOnce() -> u32) -> Option<u32> {
        self.state.compare_exchange(EMPTY, WRITING, Acquire, Relaxed).ok()?;
        // Who sees what is written now sees that it is being written, too.
        fence(Release);
        let number = number();
        self.stops.store(stops, Relaxed);
        self.len.store(text.len().min(N) as u32, Relaxed);
        self.text.iter().zip(text).for_each(|(cell, byte)| cell.store(*byte, Relaxed));
        self.state.store(number, Release);
        Some(number)
    }

    /// The number of the fault, and what it stops, if there is one.
    fn label(&self) -> Option<(u32, u64)> {
        let (number, stops) = (self.number()?, self.stops.load(Relaxed));
        self.is_still(number).then_some((number, stops))
    }

    /// The number of the fault, if there is one that is complete.
    fn number(&self) -> Option<u32> {
        let state = self.state.load(Acquire);
        (state != EMPTY && state != WRITING).then_some(state)
    }

    /// Whether all that was read after [`FaultPlace::number`] is of the fault with this number: no
    /// other one ever has it, and who has seen a part of a later one sees this word as that left it.
    fn is_still(&self, number: u32) -> bool {
        fence(Acquire);
        self.state.load(Relaxed) == number
    }

    /// The fault, if there is one. Its owner, or a process that is hostile, may write here now.
    fn get(&self) -> Option<Written> {
        let (number, stops) = (self.number()?, self.stops.load(Relaxed));
        let len = (self.len.load(Relaxed) as usize).min(N);
        let text = self.text[..len].iter().map(|byte| byte.load(Relaxed)).collect();
        self.is_still(number).then_some(Written { number, stops, text })
    }

    pub(super) fn clear(&self) {
        self.state.store(EMPTY, Release);
    }

    /// Whether a fault of this communicator is here.
    pub(super) fn holds(&self, context: u64) -> bool {
        self.label().is_some_and(|(_, stops)| stops == context)
    }
}

/// Announces fault `number` of `by`. A later one may have taken its place: then it stays.
fn announce(notice: &SharedU64, number: u32, by: u32) {
    notice.fetch_max(u64::from(number) << 32 | u64::from(by), AcqRel);
}

/// Whose fault has this number.
enum Whose {
    Of(u32),
    /// It is being written.
    Open,
    /// It was too long ago.
    Forgotten,
}

fn whose(notice: &SharedU64, number: u32, patience: &mut u32) -> Whose {
    loop {
        let notice = notice.load(Acquire);
        match ((notice >> 32) as u32).cmp(&number) {
            Equal => return Whose::Of(notice as u32),
            Greater => return Whose::Forgotten,
            Less if *patience == 0 => return Whose::Open,
            Less => *patience -= 1,
        }
        crate::sync::spin();
    }
}

/// What a look at the faults gives that nobody has looked at before.
enum Look<T> {
    Found(T),
    /// There are more than notices.
    TooMany,
    /// Nothing up to this number.
    Nothing(u32),
}

fn look_at<'a, T>(
    numbers: RangeInclusive<u32>,
    mut patience: u32,
    notice: impl Fn(u32) -> &'a SharedU64,
    mut see: impl FnMut(u32, u32) -> Option<T>,
) -> Look<T> {
    let mut done = numbers.start() - 1;
    for number in numbers {
        match whose(notice(number), number, &mut patience) {
            Whose::Forgotten => return Look::TooMany,
            Whose::Open => {}
            Whose::Of(by) => {
                if let Some(found) = see(number, by) {
                    return Look::Found(found);
                }
                if done + 1 == number {
                    done = number;
                }
            }
        }
    }
    Look::Nothing(done)
}

impl World {
    /// Records a fault and wakes everybody.
    pub(crate) fn raise(&self, reach: Reach, fault: &Fault) {
        let memory = &self.memory;
        let (place, stops, by) = match reach {
            Reach::Rank { rank, block: 0 } => (memory.death(rank), 0, rank as u32),
            Reach::Rank { rank, block } => (memory.failure(rank, block), block.into(), rank as u32),
            Reach::All => (memory.death(self.size()), 0, EVERYBODY),
        };
        if self.record(place, stops, by, fault) {
            self.ring_all();
        }
    }

    /// Whether the fault was recorded: none was there.
    fn record(&self, place: &FaultPlace, stops: u64, by: u32, fault: &Fault) -> bool {
        let mut text = postcard::to_allocvec(fault).unwrap_or_default();
        if text.len() > FAULT_BYTES {
            text = postcard::to_allocvec(&fault.shortened(FAULT_BYTES / 2)).unwrap_or_default();
        }
        self.record_text(place, stops, by, &text)
    }

    fn record_text(&self, place: &FaultPlace, stops: u64, by: u32, text: &[u8]) -> bool {
        let count = &self.memory.header().faults;
        let number = place.put(stops, text, || count.claimed.fetch_add(1, AcqRel) + 1);
        let Some(number) = number else { return false };
        announce(self.memory.notice(number), number, by);
        count.ready.fetch_add(1, AcqRel);
        true
    }

    /// Moves on whenever a fault is complete.
    #[inline]
    pub(crate) fn faults_seen(&self) -> u32 {
        self.memory.header().faults.ready.load(Acquire)
    }

    /// The number of the last fault, which may not be complete.
    pub(super) fn faults_claimed(&self) -> u32 {
        self.memory.header().faults.claimed.load(Acquire)
    }

    /// What stops everything.
    pub(crate) fn fault_of_all(&self) -> Option<Fault> {
        self.read(self.memory.death(self.size())).map(|(_, _, fault)| fault)
    }

    /// How a rank has failed in a block.
    pub(crate) fn failure_of(&self, rank: usize, block: u32) -> Option<Fault> {
        let its = |(_, stops): (u32, u64)| stops == 0 || stops == u64::from(block);
        let places = [self.memory.death(rank), self.memory.failure(rank, block)];
        let places = places.into_iter().filter(|place| place.label().is_some_and(its));
        let first = places.filter_map(|place| self.read(place)).min_by_key(|(number, ..)| *number);
        first.map(|(_, _, fault)| fault)
    }

    /// All faults of ranks, and those that stop a block's own communicator, in their order, with
    /// the block that each stops, 0 for all. For reports: it looks at all ranks.
    pub(crate) fn faults(&self) -> Vec<(u32, Fault)> {
        let of_rank = |rank: usize| {
            let blocks = 0..BLOCK_BOARDS as u32;
            let failures = blocks.clone().map(move |block| self.memory.failure(rank, block));
            let own = blocks.map(move |block| &self.memory.board(rank, board_of(block)).fault);
            failures.chain(own).chain([self.memory.death(rank)])
        };
        let places = (0..self.size()).flat_map(of_rank).chain([self.memory.death(self.size())]);
        let mut faults: Vec<_> = places.filter_map(|place| self.read(place)).collect();
        faults.sort_by_key(|(number, ..)| *number);
        faults.into_iter().map(|(_, stops, fault)| (stops as u32, fault)).collect()
    }

    /// A fault, its number, and what it stops.
    fn read(&self, place: &FaultPlace) -> Option<(u32, u64, Fault)> {
        let written = place.get()?;
        let fault: Fault = postcard::from_bytes(&written.text).ok()?;
        // Whoever wrote this may lie, not name a rank that there is not.
        let sound = fault.rank().is_none_or(|rank| rank < self.size());
        sound.then_some((written.number, written.stops, fault))
    }

    /// Looks at the faults after number `examined`, in their order.
    fn look<T>(&self, examined: u32, see: impl FnMut(u32, u32) -> Option<T>) -> Look<T> {
        let claimed = self.faults_claimed();
        if claimed.saturating_sub(examined) as usize > self.memory.layout.notices() {
            return Look::TooMany;
        }
        look_at(examined + 1..=claimed, PATIENCE, |number| self.memory.notice(number), see)
    }

    /// The places in which `by` may have written what stops this communicator.
    fn places_of(&self, scope: &Scope, by: u32) -> impl Iterator<Item = &FaultPlace> {
        let all = (by == EVERYBODY).then(|| self.memory.death(self.size()));
        let rank = Some(by as usize).filter(|rank| *rank < self.size());
        let places = rank.map(|rank| {
            [
                self.memory.death(rank),
                self.memory.failure(rank, scope.block),
                &self.memory.board(rank, scope.board).fault,
            ]
        });
        let (context, block) = (scope.context, u64::from(scope.block));
        let its = move |place: &&FaultPlace| {
            place.label().is_some_and(|(_, stops)| [0, context, block].contains(&stops))
        };
        all.into_iter().chain(places.into_iter().flatten()).filter(its)
    }

    /// What fault `number` of `by` says of this communicator, if that concerns it.
    fn concerning(&self, scope: &Scope, number: u32, by: u32) -> Option<Fault> {
        let mut its = self.places_of(scope, by).filter_map(|place| self.read(place));
        let (_, stops, fault) = its.find(|(its, ..)| *its == number)?;
        let member = || by == EVERYBODY || scope.group.local(by as usize).is_some();
        (stops == scope.context || member()).then_some(fault)
    }

    /// The first fault of this communicator, from all its members: what is cheaper than to look at
    /// the faults one by one when there have been many.
    #[cold]
    fn first_of_all(&self, scope: &Scope) -> Option<Fault> {
        let count = &self.memory.header().faults;
        let ready = count.ready.load(Acquire);
        let claimed = count.claimed.load(Acquire);
        let members = scope.group.iter().map(|rank| rank as u32).chain([EVERYBODY]);
        let places = members.flat_map(|by| self.places_of(scope, by));
        let first = places.filter_map(|place| self.read(place)).min_by_key(|(number, ..)| *number);
        if first.is_none() && ready == claimed {
            scope.examined.set(claimed);
        }
        first.map(|(_, _, fault)| fault)
    }
}

impl Endpoint {
    /// The first fault that stops this communicator.
    pub(crate) fn first_fault(&self, scope: &Scope) -> Option<Fault> {
        if let Some(fault) = scope.fault.get() {
            return Some(Fault::clone(fault));
        }
        let see = |number, by| self.world.concerning(scope, number, by);
        let fault = match self.world.look(scope.examined.get(), see) {
            Look::Found(fault) => fault,
            Look::TooMany => self.world.first_of_all(scope)?,
            Look::Nothing(examined) => {
                scope.examined.set(examined);
                return None;
            }
        };
        let _ = scope.fault.set(Box::new(fault.clone()));
        let mut told = self.told.lock();
        told.truncate(TOLD - 1);
        told.push_front(fault.clone());
        if scope.held {
            let page = self.world.memory.board(self.rank, scope.board);
            page.told.0.store(1, Release);
        }
        Some(fault)
    }

    /// Whether this is one of the last faults that have stopped communicators of this rank.
    pub(crate) fn was_told(&self, fault: &Fault) -> bool {
        self.told.lock().contains(fault)
    }

    /// Stops a communicator that this rank has, and wakes everybody.
    pub(super) fn stop(&self, scope: &Scope, fault: &Fault) {
        if !scope.held {
            return;
        }
        let page = self.world.memory.board(self.rank, scope.board);
        if self.world.record(&page.fault, scope.context, self.rank as u32, fault) {
            self.world.ring_all();
        }
    }

    /// Ends these waits of others by `fault`; whether it could: the owners of those that it has ended
    /// before must know.
    pub(super) fn condemn(&self, waits: &[Wait], fault: &Fault) -> bool {
        if waits.is_empty() {
            return true;
        }
        let mut condemned = self.condemned.lock();
        condemned.retain(|wait| self.world.lasts(*wait));
        if !condemned.is_empty() {
            return false;
        }
        let place = self.world.memory.verdict(self.rank);
        place.clear();
        let text = |fault| postcard::to_allocvec(&(waits, fault)).unwrap_or_default();
        let mut bytes = text(fault);
        if bytes.len() > FAULT_BYTES {
            bytes = text(&fault.shortened(FAULT_BYTES / 4));
        }
        condemned.extend(waits);
        if self.world.record_text(place, 0, self.rank as u32, &bytes) {
            self.world.ring_all();
        }
        true
    }

    /// The verdict on this wait, if there is one among the faults after number `examined`.
    pub(super) fn verdict_on(&self, wait: Wait, examined: u32) -> Option<Fault> {
        let world = &self.world;
        let see = |_, by: u32| {
            let rank = Some(by as usize).filter(|rank| *rank < world.size())?;
            let written = world.memory.verdict(rank).get()?;
            let (waits, fault): (Vec<Wait>, Fault) = postcard::from_bytes(&written.text).ok()?;
            waits.contains(&wait).then_some(fault)
        };
        match world.look(examined, see) {
            Look::Found(fault) => Some(fault),
            Look::TooMany => (0..world.size() as u32).find_map(|by| see(0, by)),
            Look::Nothing(_) => None,
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU8 as SharedU8, AtomicU32 as SharedU32};
    use loom::sync::Arc;
    use loom::thread;

    fn place() -> FaultPlace<1> {
        let word = || SharedU32::new(0);
        FaultPlace {
            state: word(),
            len: word(),
            stops: SharedU64::new(0),
            text: [SharedU8::new(0)],
        }
    }

    /// A place that its owner uses again is read whole, or not at all.
    #[test]
    fn loom_a_fault_is_read_whole() {
        loom::model(|| {
            let shared = Arc::new(place());
            shared.put(11, &[1], || 1);
            let theirs = shared.clone();
            let owner = thread::spawn(move || {
                theirs.clear();
                assert_eq!(theirs.put(22, &[2], || 2), Some(2));
                assert_eq!(theirs.put(33, &[3], || 3), None);
            });
            if let Some(written) = shared.get() {
                let whole = (written.number, written.stops, written.text[0]);
                assert!([(1, 11, 1), (2, 22, 2)].contains(&whole), "{whole:?}");
            }
            owner.join().unwrap();
            assert!(shared.get().is_some_and(|written| written.number == 2));
        });
    }

    struct Log {
        claimed: SharedU32,
        ready: SharedU32,
        notices: [SharedU64; 2],
        places: [FaultPlace<1>; 2],
    }

    impl Log {
        fn raise(&self, by: usize) {
            let claim = || self.claimed.fetch_add(1, AcqRel) + 1;
            let number = self.places[by].put(0, &[by as u8], claim).unwrap();
            announce(&self.notices[number as usize % 2], number, by as u32);
            self.ready.fetch_add(1, AcqRel);
        }

        /// What is found after `examined`, and how far that is.
        fn look(&self, examined: u32, seen: &mut Vec<(u32, u32)>) -> u32 {
            let notice = |number: u32| &self.notices[number as usize % 2];
            let see = |number, by: u32| {
                let written = self.places[by as usize].get().expect("it is complete");
                assert_eq!((written.number, written.text[0] as u32), (number, by));
                seen.push((number, by));
                None::<()>
            };
            let claimed = self.claimed.load(Acquire);
            match look_at(examined + 1..=claimed, 1, notice, see) {
                Look::Nothing(done) => done,
                _ => panic!("there are no more faults than notices"),
            }
        }
    }

    /// Who looks again whenever `ready` has moved on sees every fault, however late its writer is.
    #[test]
    fn loom_no_fault_is_missed() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let word = || SharedU32::new(0);
            let log = Arc::new(Log {
                claimed: word(),
                ready: word(),
                notices: [SharedU64::new(0), SharedU64::new(0)],
                places: [place(), place()],
            });
            let theirs = log.clone();
            let other = thread::spawn(move || theirs.raise(1));
            let late = log.clone();
            let another = thread::spawn(move || late.raise(0));
            let (mut seen, mut examined, mut ready) = (Vec::new(), 0, 0);
            while ready < 2 {
                let now = log.ready.load(Acquire);
                if now == ready {
                    thread::yield_now();
                    continue;
                }
                ready = now;
                examined = log.look(examined, &mut seen);
            }
            assert_eq!(examined, 2);
            assert!([0, 1].iter().all(|by| seen.iter().any(|(_, seen)| seen == by)));
            other.join().unwrap();
            another.join().unwrap();
        });
    }
}
