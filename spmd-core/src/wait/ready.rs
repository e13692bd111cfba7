//! Which coroutines of one worker are ready: one bit each.
//!
//! Other threads set bits in a [`SharedSet`], the worker's own thread in a [`LocalSet`], which
//! needs no atomics.
//!
//! # Why no wake-up is lost
//!
//! A `SharedSet` has a bit per coroutine in `words`, and in `groups` a bit per group of words
//! that may hold bits, beside the bits `ASLEEP`, `EVERYONE` and `CALLED`. A waker sets its bit in a
//! word, then the bit of the group; a waker of all coroutines sets `EVERYONE` alone, and who has
//! something new for the worker `CALLED`. The worker takes all groups, then the words in them.
//!
//! - *A bit set in a word is taken.* Its waker sets the group's bit next, and the worker, which
//!   takes the groups before the words, finds the word later. The waker leaves the group alone
//!   only where it sees the group's bit still set. If the worker took that bit already and has
//!   passed the word, then the waker's `fetch_or` on the word came after the worker's `swap` of
//!   it and acquired what the worker had done before, so that the waker could not have seen the
//!   old groups. If the worker has not passed the word yet, it takes the waker's bit there.
//! - *A sleeping worker is woken.* Sleep and group bits are in one atomic, whose modifications
//!   have one order: the worker falls asleep by exchanging zero for `ASLEEP`, which fails when a
//!   group's bit came first; when the bit comes second, its waker sees `ASLEEP` and must unpark
//!   the worker. So no fence is needed. An unpark that comes before the park makes it return.
//! - *What the waker wrote before is visible to the coroutine*: its `fetch_or` on the word, or
//!   of `EVERYONE`, releases, and the worker's `swap` of the same atomic acquires.

use std::cell::Cell;
use std::ops::Range;

use crate::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;
const ASLEEP: u64 = 1 << 63;
/// All slots are ready, whatever the words say.
const EVERYONE: u64 = 1 << 62;
/// There may be something new for the worker, whatever is ready.
const CALLED: u64 = 1 << 61;
const GROUPS: usize = 61;

/// The coroutines that other threads have made ready.
pub(super) struct SharedSet {
    words: Box<[AtomicU64]>,
    slots: usize,
    groups: AtomicU64,
}

impl SharedSet {
    pub(super) fn new(slots: usize) -> SharedSet {
        let words = (0..slots.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect();
        SharedSet { words, slots, groups: AtomicU64::new(0) }
    }

    /// Makes `slot` ready. Where it returns true, the worker sleeps and the caller must unpark it.
    #[must_use]
    pub(super) fn insert(&self, slot: usize) -> bool {
        let word = slot / BITS;
        let bit = 1 << (slot % BITS);
        if self.words[word].fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        let group = 1 << (word % GROUPS);
        if self.groups.load(Ordering::Relaxed) & group != 0 {
            return false;
        }
        self.groups.fetch_or(group, Ordering::AcqRel) == ASLEEP
    }

    /// Makes all slots ready. Where it returns true, the worker sleeps and the caller must unpark
    /// it.
    #[must_use]
    pub(super) fn insert_all(&self) -> bool {
        self.groups.fetch_or(EVERYONE, Ordering::AcqRel) == ASLEEP
    }

    /// Tells the worker that there may be something new for it. Where it returns true, the worker
    /// sleeps and the caller must unpark it.
    #[must_use]
    pub(super) fn call(&self) -> bool {
        self.groups.fetch_or(CALLED, Ordering::AcqRel) == ASLEEP
    }

    /// Whether there may be something to take.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.groups.load(Ordering::Relaxed) & !ASLEEP == 0
    }

    /// Takes all that is ready, as words of 64 slots. Also ends the sleep. For the worker alone.
    pub(super) fn take(&self, mut each: impl FnMut(usize, u64)) {
        let mut groups = self.groups.swap(0, Ordering::AcqRel) & !(ASLEEP | CALLED);
        if groups & EVERYONE != 0 {
            words_of(0..self.slots).for_each(|(word, bits)| each(word, bits));
            groups &= !EVERYONE;
        }
        while groups != 0 {
            let group = groups.trailing_zeros() as usize;
            groups &= groups - 1;
            for word in (group..self.words.len()).step_by(GROUPS) {
                let bits = self.words[word].swap(0, Ordering::AcqRel);
                if bits != 0 {
                    each(word, bits);
                }
            }
        }
    }

    /// Declares the worker asleep: true if it may park now, after which it must call `take`.
    pub(super) fn fall_asleep(&self) -> bool {
        self.groups.compare_exchange(0, ASLEEP, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the worker sleeps, and nothing is ready.
    pub(super) fn is_asleep(&self) -> bool {
        self.groups.load(Ordering::Acquire) == ASLEEP
    }
}

/// The words that hold these slots, each with the slots' bits.
fn words_of(slots: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = slots.start / BITS..slots.end.div_ceil(BITS);
    words.map(move |word| {
        let start = slots.start.max(word * BITS) - word * BITS;
        let end = slots.end.min((word + 1) * BITS) - word * BITS;
        (word, if start < end { u64::MAX >> (BITS - (end - start)) << start } else { 0 })
    })
}

/// Coroutines that the worker's own thread has marked.
pub(super) struct LocalSet {
    words: Box<[Cell<u64>]>,
    slots: usize,
    count: Cell<usize>,
}

impl LocalSet {
    pub(super) fn new(slots: usize) -> LocalSet {
        let words = (0..slots.div_ceil(BITS)).map(|_| Cell::new(0)).collect();
        LocalSet { words, slots, count: Cell::new(0) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    #[inline]
    pub(super) fn insert(&self, slot: usize) {
        self.insert_word(slot / BITS, 1 << (slot % BITS));
    }

    #[inline]
    pub(super) fn insert_word(&self, word: usize, bits: u64) {
        let before = self.words[word].get();
        self.words[word].set(before | bits);
        self.count.set(self.count.get() + (bits & !before).count_ones() as usize);
    }

    /// Marks all slots but this one.
    pub(super) fn insert_all_but(&self, slot: usize) {
        let parts = [0..slot, slot + 1..self.slots];
        parts.into_iter().flat_map(words_of).for_each(|(word, bits)| self.insert_word(word, bits));
    }

    /// Takes the lowest slot that is `start` or higher.
    #[inline]
    pub(super) fn take_from(&self, start: usize) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let mut mask = u64::MAX << (start % BITS);
        for (index, word) in self.words.iter().enumerate().skip(start / BITS) {
            let bits = word.get() & mask;
            if bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                word.set(word.get() & !(1 << bit));
                self.count.set(self.count.get() - 1);
                return Some(index * BITS + bit);
            }
            mask = u64::MAX;
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn local_set_gives_slots_in_order_from_a_start() {
        let set = LocalSet::new(200);
        for slot in [199, 3, 64, 63, 3] {
            set.insert(slot);
        }
        assert_eq!(set.take_from(4), Some(63));
        assert_eq!(set.take_from(64), Some(64));
        assert_eq!(set.take_from(65), Some(199));
        assert_eq!(set.take_from(200), None);
        assert!(!set.is_empty());
        assert_eq!(set.take_from(0), Some(3));
        assert!(set.is_empty());
    }

    #[test]
    fn all_slots_become_ready_at_once() {
        for slots in [1, 2, 63, 64, 65, 128, 200] {
            let (local, shared) = (LocalSet::new(slots), SharedSet::new(slots));
            for one in [0, slots / 2, slots - 1] {
                local.insert_all_but(one);
                let taken = std::iter::from_fn(|| local.take_from(0));
                assert!(taken.eq((0..slots).filter(|slot| *slot != one)));
                assert!(local.is_empty());
            }
            assert!(!shared.insert(slots / 2) && !shared.insert_all());
            shared.take(|word, bits| local.insert_word(word, bits));
            assert!(std::iter::from_fn(|| local.take_from(0)).eq(0..slots));
            assert!(shared.is_empty() && shared.fall_asleep() && shared.insert_all());
        }
    }

    #[test]
    fn shared_set_reports_a_sleeping_worker_once() {
        let slots = 64 * 130;
        let set = SharedSet::new(slots);
        assert!(set.fall_asleep());
        assert!(set.insert(5));
        assert!(!set.insert(5));
        assert!(!set.insert(slots - 1));
        assert!(!set.insert(64 * 61));
        assert!(!set.fall_asleep());
        let mut taken = Vec::new();
        set.take(|word, bits| taken.push((word, bits)));
        taken.sort_unstable();
        assert_eq!(taken, [(0, 1 << 5), (61, 1), (129, 1 << 63)]);
        assert!(set.is_empty());
        assert!(set.fall_asleep());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, fence};
    use loom::thread;

    use super::*;

    /// Tries all interleavings with up to three preemptions; without the bound they take hours.
    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Wakers of `slots` publish a value and wake; the worker takes and parks until it has them
    /// all. A lost wake-up is a deadlock, which loom reports; a missing happens-before shows as a
    /// slot that is ready without its value.
    fn wakers_against_worker(slots: &'static [usize]) {
        check(move || {
            let set = Arc::new(SharedSet::new(65));
            let published = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let worker = thread::current();
            for (index, &slot) in slots.iter().enumerate() {
                let (set, published) = (set.clone(), published.clone());
                let worker = worker.clone();
                thread::spawn(move || {
                    published[index].store(1, Ordering::Relaxed);
                    if set.insert(slot) {
                        worker.unpark();
                    }
                });
            }
            let mut missing = slots.to_vec();
            while !missing.is_empty() {
                set.take(|word, bits| {
                    for (index, slot) in slots.iter().enumerate() {
                        if slot / BITS == word && bits & 1 << (slot % BITS) != 0 {
                            assert_eq!(published[index].load(Ordering::Relaxed), 1);
                            missing.retain(|other| other != slot);
                        }
                    }
                });
                if !missing.is_empty() && set.fall_asleep() {
                    thread::park();
                }
            }
        });
    }

    #[test]
    fn one_waker() {
        wakers_against_worker(&[7]);
    }

    #[test]
    fn wakers_of_one_word() {
        wakers_against_worker(&[3, 4]);
    }

    #[test]
    fn wakers_of_two_groups() {
        wakers_against_worker(&[3, 64]);
    }

    /// Somebody puts work where the worker looks for it, and calls it if it says that it sleeps.
    #[test]
    fn new_work() {
        check(|| {
            let set = Arc::new(SharedSet::new(1));
            let (work, sleeps) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let worker = thread::current();
            let (its, put, asleep) = (set.clone(), work.clone(), sleeps.clone());
            thread::spawn(move || {
                put.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if asleep.load(Ordering::Relaxed) == 1 && its.call() {
                    worker.unpark();
                }
            });
            while work.load(Ordering::Relaxed) == 0 {
                sleeps.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if work.load(Ordering::Relaxed) == 0 && set.fall_asleep() {
                    thread::park();
                }
                sleeps.store(0, Ordering::Relaxed);
                set.take(|_, _| ());
            }
        });
    }

    /// A waker of all beside the waker of one.
    #[test]
    fn all_and_one() {
        check(|| {
            let set = Arc::new(SharedSet::new(65));
            let published = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let worker = thread::current();
            for index in 0..2 {
                let (set, published) = (set.clone(), published.clone());
                let worker = worker.clone();
                thread::spawn(move || {
                    published[index].store(1, Ordering::Relaxed);
                    if if index == 0 { set.insert_all() } else { set.insert(63) } {
                        worker.unpark();
                    }
                });
            }
            let seen = |index: usize| published[index].load(Ordering::Relaxed) == 1;
            let mut taken = 0;
            while !(seen(0) && seen(1) && taken & 2 != 0) {
                if set.fall_asleep() {
                    thread::park();
                }
                set.take(|word, _| taken |= 1 << word);
            }
        });
    }

    /// A waker that finds its bit set leaves the worker to the one that set it, and what it
    /// wrote must still be seen by the coroutine.
    #[test]
    fn two_wakes_of_one_slot() {
        check(|| {
            let set = Arc::new(SharedSet::new(1));
            let count = Arc::new(AtomicUsize::new(0));
            let worker = thread::current();
            for _ in 0..2 {
                let (set, count, worker) = (set.clone(), count.clone(), worker.clone());
                thread::spawn(move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    if set.insert(0) {
                        worker.unpark();
                    }
                });
            }
            while count.load(Ordering::Relaxed) < 2 {
                if set.fall_asleep() {
                    thread::park();
                }
                set.take(|_, _| ());
            }
        });
    }
}
