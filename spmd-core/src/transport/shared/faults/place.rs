//! One place for a fault, which its owner writes, and others read meanwhile.

use crate::sync::atomic::{AtomicU32, Ordering::*, fence};
use crate::transport::shared::layout::FaultPlace;

const EMPTY: u32 = 0;
const WRITING: u32 = u32::MAX;

/// The number of the next fault. A hostile process may write anything over the count; a number is
/// none of the words that say something else.
pub(super) fn next_number(claimed: &AtomicU32) -> u32 {
    claimed.fetch_add(1, AcqRel).wrapping_add(1).clamp(EMPTY + 1, WRITING - 1)
}

/// What stands in a place.
pub(super) struct Written {
    pub(super) number: u32,
    pub(super) stops: u64,
    pub(super) text: Vec<u8>,
}

impl<const N: usize> FaultPlace<N> {
    /// Writes a fault, unless one is there. `number` gives it its number, which is given back.
    pub(super) fn put(&self, stops: u64, text: &[u8], number: impl FnOnce() -> u32) -> Option<u32> {
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
    pub(super) fn label(&self) -> Option<(u32, u64)> {
        let (number, stops) = (self.number()?, self.stops.load(Relaxed));
        self.is_still(number).then_some((number, stops))
    }

    /// The number of the fault, if there is one that is complete.
    fn number(&self) -> Option<u32> {
        let state = self.state.load(Acquire);
        (state != EMPTY && state != WRITING).then_some(state)
    }

    /// Whether all that was read after [`FaultPlace::number`] is of the fault with this number: no
    /// other one ever has it, and who has seen a part of a later one sees this word as that left
    /// it.
    fn is_still(&self, number: u32) -> bool {
        fence(Acquire);
        self.state.load(Relaxed) == number
    }

    /// The fault, if there is one. Its owner, or a process that is hostile, may write here now.
    pub(super) fn get(&self) -> Option<Written> {
        let (number, stops) = (self.number()?, self.stops.load(Relaxed));
        let len = (self.len.load(Relaxed) as usize).min(N);
        let text = self.text[..len].iter().map(|byte| byte.load(Relaxed)).collect();
        self.is_still(number).then_some(Written { number, stops, text })
    }

    pub(in crate::transport::shared) fn clear(&self) {
        self.state.store(EMPTY, Release);
    }

    /// Whether a fault of this communicator is here.
    pub(in crate::transport::shared) fn holds(&self, context: u64) -> bool {
        self.label().is_some_and(|(_, stops)| stops == context)
    }
}

#[cfg(all(test, loom))]
pub(super) mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU8, AtomicU64};
    use loom::sync::Arc;
    use loom::thread;

    pub(in super::super) fn place() -> FaultPlace<1> {
        let word = || AtomicU32::new(0);
        FaultPlace {
            state: word(),
            len: word(),
            stops: AtomicU64::new(0),
            text: [AtomicU8::new(0)],
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
}
