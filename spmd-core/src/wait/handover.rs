//! Calls that one thread hands to another one, which carries them out: how they come there, and how
//! their ends come back.

use std::sync::Arc;

use super::bell::Bell;
use super::policy::Policy;
use super::worker::Payload;
use crate::error::Result;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// What a call gives, or its panic.
pub(crate) type Outcome = Result<Result<()>, Payload>;

/// What was handed over and not taken yet, in order: at most what the rank has started and not seen
/// the end of. One thread takes it.
pub(super) struct Handovers<T> {
    all: Mutex<Vec<T>>,
    /// Whether there may be something.
    filled: AtomicBool,
}

impl<T> Default for Handovers<T> {
    fn default() -> Handovers<T> {
        Handovers { all: Mutex::default(), filled: AtomicBool::new(false) }
    }
}

impl<T> Handovers<T> {
    /// Adds one. The thread that takes it is woken after that.
    pub(super) fn put(&self, one: T) {
        self.all.lock().push(one);
        self.filled.store(true, Release);
    }

    #[inline]
    pub(super) fn is_filled(&self) -> bool {
        self.filled.load(Acquire)
    }

    /// Takes what is there.
    pub(super) fn take(&self) -> Vec<T> {
        if !self.is_filled() {
            return Vec::new();
        }
        // What comes between the two is taken, and looked for in vain later.
        self.filled.swap(false, Acquire);
        std::mem::take(&mut *self.all.lock())
    }
}

/// A call as both threads see it. Whatever it has used is gone before it is over.
pub(super) struct Handover<O> {
    outcome: Mutex<Option<O>>,
    over: AtomicBool,
    refused: AtomicBool,
}

impl<O> Default for Handover<O> {
    fn default() -> Handover<O> {
        let (over, refused) = (AtomicBool::new(false), AtomicBool::new(false));
        Handover { outcome: Mutex::default(), over, refused }
    }
}

impl<O> Handover<O> {
    /// It is over, and has ended like this. Who has handed it over is woken after that.
    pub(super) fn complete(&self, outcome: O) {
        *self.outcome.lock() = Some(outcome);
        self.over.store(true, Release);
    }

    /// Whether it is over: what it has done is seen then.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// How it has ended, once.
    pub(super) fn take(&self) -> Option<O> {
        if self.is_over() { self.outcome.lock().take() } else { None }
    }

    /// It is to give up. The thread that carries it out is woken after that.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Release);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Acquire)
    }
}

/// The rank that a thread helps.
pub(crate) trait Helped: Send + Sync {
    /// The one that is rung for its calls.
    fn bell(&self) -> Bell<'_>;
    fn policy(&self) -> &Policy;
    /// As [`WaitHooks::serve`].
    fn serve(&self) -> bool;
    /// The thread has waited for some time: makes the rare checks that are not the calls' own.
    fn overdue(&self);
    /// A call is handed over, which may act from now on.
    fn hands_over(&self);
    /// The thread has gone on with it, and it tells itself what it waits for.
    fn is_taken(&self);
}

/// How many that were handed over have ended.
static ENDED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// A call that was handed over, as the rank and its helper see it.
pub(super) struct HandedCall {
    handover: Handover<Outcome>,
    place: AtomicU64,
    by: Arc<dyn Helped>,
}

impl HandedCall {
    pub(super) fn new(by: Arc<dyn Helped>) -> HandedCall {
        HandedCall { handover: Handover::default(), place: AtomicU64::new(0), by }
    }

    /// How it has ended, once it is over.
    pub(super) fn take(&self) -> Option<Outcome> {
        self.handover.take()
    }

    /// Whether it is over, as far as its helper knows.
    pub(super) fn is_over(&self) -> bool {
        self.handover.is_over()
    }

    /// Has it give up.
    pub(super) fn refuse(&self) {
        self.handover.refuse();
        self.by.bell().ring();
    }

    pub(super) fn is_refused(&self) -> bool {
        self.handover.is_refused()
    }

    /// Where it comes among all that were handed over and have ended, if it is over.
    pub(super) fn place(&self) -> Option<u64> {
        self.is_over().then(|| self.place.load(Relaxed))
    }

    /// It is over, and nothing of it is left.
    pub(super) fn complete(&self, outcome: Outcome) {
        self.place.store(ENDED.fetch_add(1, Relaxed), Relaxed);
        self.handover.complete(outcome);
        self.by.bell().ring();
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::*;
    use crate::sync::spin;

    /// A buffer, to access which the protocol alone gives the right.
    #[derive(Default)]
    struct Lent(UnsafeCell<u32>);

    // SAFETY: loom checks that no two threads access it at a time.
    unsafe impl Sync for Lent {}
    // SAFETY: as above.
    unsafe impl Send for Lent {}

    impl Lent {
        fn add(&self, number: u32) -> u32 {
            self.0.with_mut(|value| {
                // SAFETY: loom checks that nobody else accesses it now.
                let value = unsafe { &mut *value };
                *value += number;
                *value
            })
        }
    }

    type Handed = (Arc<Handover<u32>>, Arc<Lent>);

    /// All orders with up to three preemptions.
    fn model(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        (builder.preemption_bound, builder.max_branches) = (Some(3), 10_000);
        builder.check(f);
    }

    /// The thread that carries calls out: it sleeps where nothing is to be done.
    fn carry_out(calls: &Handovers<Handed>, mut expected: u32) {
        while expected > 0 {
            if !calls.is_filled() {
                thread::park();
            }
            for (call, lent) in calls.take() {
                let outcome = lent.add(10);
                // What the call has used is gone.
                drop(lent);
                call.complete(outcome);
                expected -= 1;
            }
        }
    }

    /// Two calls, the second of which is handed over while the first goes on: each comes there, is seen
    /// to be over with all that it has done, and nothing of it is left then.
    #[test]
    fn loom_calls_are_handed_over_and_end() {
        model(|| {
            let calls = Arc::<Handovers<Handed>>::default();
            let its = calls.clone();
            let helper = thread::spawn(move || carry_out(&its, 2));
            let hand = || {
                let (call, lent) = (Arc::<Handover<u32>>::default(), Arc::<Lent>::default());
                assert_eq!(lent.add(1), 1);
                calls.put((call.clone(), lent.clone()));
                helper.thread().unpark();
                (call, lent)
            };
            let both = [hand(), hand()];
            for (call, lent) in both {
                while !call.is_over() {
                    spin();
                }
                assert_eq!((call.take(), call.take()), (Some(11), None));
                assert_eq!(lent.add(1), 12);
                assert_eq!(Arc::strong_count(&lent), 1);
            }
            helper.join().unwrap();
        });
    }

    /// A call that waits for what nobody does, until it is told to give up.
    #[test]
    fn loom_a_call_is_refused() {
        model(|| {
            let (call, lent) = (Arc::<Handover<u32>>::default(), Arc::<Lent>::default());
            let (its, used) = (call.clone(), lent.clone());
            let helper = thread::spawn(move || {
                used.add(1);
                while !its.is_refused() {
                    spin();
                }
                used.add(1);
                drop(used);
                its.complete(0);
            });
            call.refuse();
            while !call.is_over() {
                spin();
            }
            assert_eq!((call.take(), lent.add(1)), (Some(0), 3));
            helper.join().unwrap();
        });
    }
}
