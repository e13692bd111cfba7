//! The order of the sends from a communicator, some of which go on: each is posted after those to the
//! same rank that were made before it, by whichever agent has had the communicator then.

use std::sync::Arc;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// Those of a communicator.
#[derive(Default)]
pub(super) struct SendOrders {
    /// How many sends that go on are not posted.
    unposted: AtomicUsize,
    /// By world rank: those that there are such sends to, or have been.
    orders: Mutex<Vec<(usize, Arc<SendOrder>)>>,
}

/// The sends to one rank that go on.
#[derive(Default)]
pub(super) struct SendOrder {
    made: AtomicU64,
    posted: AtomicU64,
}

/// A send's turn.
pub(super) struct SendTurn {
    orders: Arc<SendOrders>,
    order: Arc<SendOrder>,
    number: u64,
}

impl SendOrders {
    /// Whether no send waits for its turn.
    #[inline]
    pub(super) fn are_clear(&self) -> bool {
        self.unposted.load(Acquire) == 0
    }

    /// Whether none to this world rank does.
    pub(super) fn is_clear(&self, to: usize) -> bool {
        let clear = |(rank, order): &(usize, Arc<SendOrder>)| *rank != to || order.is_clear();
        self.are_clear() || self.orders.lock().iter().all(clear)
    }

    /// The turn of a send to this world rank, after all that were made before.
    pub(super) fn take_turn(self: &Arc<Self>, to: usize) -> SendTurn {
        let mut orders = self.orders.lock();
        let known = orders.iter().find(|(rank, _)| *rank == to).map(|(_, order)| order.clone());
        let order = known.unwrap_or_else(|| {
            orders.retain(|(_, order)| !order.is_clear());
            orders.push((to, Arc::default()));
            orders[orders.len() - 1].1.clone()
        });
        self.unposted.fetch_add(1, Relaxed);
        let number = order.made.fetch_add(1, Relaxed);
        SendTurn { orders: self.clone(), order, number }
    }
}

impl SendOrder {
    fn is_clear(&self) -> bool {
        self.made.load(Relaxed) == self.posted.load(Acquire)
    }
}

impl SendTurn {
    /// Whether those before it are posted.
    pub(super) fn has_come(&self) -> bool {
        self.order.posted.load(Acquire) == self.number
    }
}

impl Drop for SendTurn {
    /// It is posted, or never will be: the next one has its turn.
    fn drop(&mut self) {
        self.order.posted.store(self.number + 1, Release);
        self.orders.unposted.fetch_sub(1, Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;

    /// What was posted, to look at which the protocol alone gives the right.
    #[derive(Clone)]
    struct Posted(Arc<UnsafeCell<Vec<u32>>>);

    // SAFETY: loom checks that no two threads access it at a time.
    unsafe impl Send for Posted {}

    impl Posted {
        fn new() -> Posted {
            Posted(Arc::new(UnsafeCell::new(Vec::new())))
        }

        fn post(&self, number: u32) {
            self.0.with_mut(|all| {
                // SAFETY: loom checks that nobody else accesses it now.
                unsafe { &mut *all }.push(number);
            });
        }

        fn are(&self, numbers: &[u32]) {
            self.0.with(|all| {
                // SAFETY: loom checks that nobody writes it now.
                assert_eq!(unsafe { &*all }, numbers);
            });
        }
    }

    /// Two sends that go on, by two agents: the later one is posted after the earlier one, and whoever
    /// finds that all have been posted sees that.
    #[test]
    fn loom_sends_take_turns() {
        loom::model(|| {
            let (orders, posted) = (Arc::<SendOrders>::default(), Posted::new());
            let (first, second) = (orders.take_turn(7), orders.take_turn(7));
            let earlier = {
                let posted = posted.clone();
                thread::spawn(move || {
                    assert!(first.has_come());
                    posted.post(1);
                    drop(first);
                })
            };
            let later = {
                let posted = posted.clone();
                thread::spawn(move || {
                    while !second.has_come() {
                        thread::yield_now();
                    }
                    posted.post(2);
                    drop(second);
                })
            };
            while !orders.are_clear() {
                thread::yield_now();
            }
            posted.are(&[1, 2]);
            assert!(orders.is_clear(7));
            [earlier, later].into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// A send that does not go on overtakes none to the same rank, whatever is not posted to others.
    #[test]
    fn loom_a_send_waits_for_those_before() {
        loom::model(|| {
            let (orders, posted) = (Arc::<SendOrders>::default(), Posted::new());
            let (turn, other) = (orders.take_turn(7), orders.take_turn(8));
            let before = {
                let posted = posted.clone();
                thread::spawn(move || {
                    posted.post(1);
                    drop(turn);
                })
            };
            while !orders.is_clear(7) {
                thread::yield_now();
            }
            posted.post(2);
            posted.are(&[1, 2]);
            assert!(!orders.are_clear() && !orders.is_clear(8));
            before.join().unwrap();
            drop(other);
            // What is clear is forgotten, and begins anew.
            assert!(orders.are_clear() && orders.take_turn(7).has_come());
        });
    }
}
