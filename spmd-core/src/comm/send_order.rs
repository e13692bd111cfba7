//! The order of the sends from a communicator, some of which go on: each is posted after those to the
//! same rank that were made before it, by whichever agent has had the communicator then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use parking_lot::Mutex;

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
