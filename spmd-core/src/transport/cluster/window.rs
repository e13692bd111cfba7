//! How much one rank may send to one of another process before that has received it.
//!
//! A small message goes with its packet, and waits where the receiver is until that wants it: in
//! MPI, and then in a mailbox. The sender counts what it has sent so and has not been told to be
//! received, for each receiver. Beyond the window it offers small messages as it does large ones,
//! of which it waits for each to be received. The receiver tells what it has received when that is
//! a part of the window. No wait is for what it tells: a sender that has not heard of it yet sends
//! as to one that receives nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Each message counts so many bytes more than its data.
pub(super) const EACH: u64 = 128;

/// Of a rank here and one elsewhere.
#[derive(Default)]
struct Pair {
    /// Sent from here, and not known to be received.
    sent: AtomicU64,
    /// Received here, and not told.
    received: AtomicU64,
}

/// Some things in a row, each made when it is first asked for.
type Lazily<T> = Box<[OnceLock<T>]>;

fn lazily<T>(len: usize) -> Lazily<T> {
    (0..len).map(|_| OnceLock::new()).collect()
}

/// So many ranks of a process have their pairs with one rank in one piece.
const CHUNK: usize = 64;

/// All pairs of a rank here and one elsewhere: by process, rank here, and [`CHUNK`] of ranks there.
/// Of thousands of ranks few talk to each other.
pub(super) struct Windows {
    each: usize,
    pairs: Lazily<Lazily<Lazily<Box<[Pair]>>>>,
}

impl Windows {
    pub(super) fn new(processes: usize, each: usize) -> Windows {
        Windows { each, pairs: lazily(processes) }
    }

    fn pair(&self, here: usize, elsewhere: usize) -> &Pair {
        let (of, there) = (elsewhere / self.each, elsewhere % self.each);
        let ranks = self.pairs[of].get_or_init(|| lazily(self.each));
        let chunks = || lazily(self.each.div_ceil(CHUNK));
        let chunk = &ranks[here % self.each].get_or_init(chunks)[there / CHUNK];
        let pairs = || (0..CHUNK.min(self.each)).map(|_| Pair::default()).collect();
        &chunk.get_or_init(pairs)[there % CHUNK]
    }

    /// Whether a message with so many bytes of data may go from a rank here to one elsewhere, where
    /// those sent and not received may count up to `window`; then it counts as sent.
    #[inline]
    pub(super) fn admits(&self, window: u64, here: usize, elsewhere: usize, bytes: usize) -> bool {
        let (cost, sent) = (bytes as u64 + EACH, &self.pair(here, elsewhere).sent);
        let admitted = sent.fetch_add(cost, Relaxed) + cost <= window;
        if !admitted {
            sent.fetch_sub(cost, Relaxed);
        }
        admitted
    }

    /// So much that a rank here has sent to one elsewhere has been received.
    pub(super) fn opens(&self, here: usize, elsewhere: usize, bytes: u64) {
        let sent = &self.pair(here, elsewhere).sent;
        // No more than was sent, whatever the other one says.
        let _ = sent.fetch_update(Relaxed, Relaxed, |sent| Some(sent.saturating_sub(bytes)));
    }

    /// A rank here has received a message of one elsewhere: how much to tell it, if that is a
    /// quarter of `window`.
    #[inline]
    pub(super) fn receives(
        &self,
        window: u64,
        here: usize,
        elsewhere: usize,
        bytes: usize,
    ) -> Option<u64> {
        let (cost, received) = (bytes as u64 + EACH, &self.pair(here, elsewhere).received);
        let all = received.fetch_add(cost, Relaxed) + cost;
        (all >= window / 4).then(|| received.swap(0, Relaxed)).filter(|all| *all > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 1 << 20;

    #[test]
    fn every_pair_of_many_ranks_has_a_window() {
        const EACH: usize = 200;
        let windows = Windows::new(3, EACH);
        let pairs = || [0, 63, 64, 199].into_iter().flat_map(|a| [0, 64, 199].map(|b| (a, b)));
        for (here, there) in pairs() {
            assert!(windows.admits(2000, here, EACH + there, 800 + there));
        }
        for (here, there) in pairs() {
            let sent = windows.pair(here, EACH + there).sent.load(Relaxed);
            assert_eq!(sent, 800 + there as u64 + super::EACH);
            assert_eq!(windows.pair(here, 2 * EACH + there).sent.load(Relaxed), 0);
        }
    }

    #[test]
    fn a_window_is_open_again_when_what_was_sent_has_been_received() {
        // Ranks 0 and 1 here, 2 and 3 elsewhere.
        let (sender, receiver) = (Windows::new(2, 2), Windows::new(2, 2));
        let bytes = 8192;
        let fit = (WINDOW / (bytes as u64 + EACH)) as usize;
        assert_eq!((0..2 * fit).filter(|_| sender.admits(WINDOW, 1, 2, bytes)).count(), fit);
        // Other pairs have windows of their own.
        assert!(sender.admits(WINDOW, 1, 3, bytes) && sender.admits(WINDOW, 0, 2, bytes));
        let told: u64 = (0..fit).filter_map(|_| receiver.receives(WINDOW, 2, 1, bytes)).sum();
        assert!((WINDOW * 3 / 4..=WINDOW).contains(&told), "{told}");
        sender.opens(1, 2, told);
        assert!(sender.admits(WINDOW, 1, 2, bytes));
        // Whatever is told, it is never more open than at the start.
        sender.opens(1, 2, u64::MAX);
        assert_eq!((0..2 * fit).filter(|_| sender.admits(WINDOW, 1, 2, bytes)).count(), fit);
    }
}
