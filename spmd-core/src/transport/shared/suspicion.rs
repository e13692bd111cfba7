//! What a search for cycles of waits has found so far (`deadlock.rs`).

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::agents::Wait;
use crate::clock::thread_time;

/// Waits that depend on each other only.
pub(super) struct Suspicion {
    /// When all of them had been seen.
    pub(super) since: u64,
    pub(super) waits: Vec<Wait>,
}

/// Searches that come to all ranks of this process.
#[derive(Default)]
pub(super) struct Wide {
    /// What the last one has found: whoever begins, a search that comes to all finds the same.
    pub(super) earlier: Option<Suspicion>,
    /// When the next one may begin.
    next: Option<Instant>,
    /// A rank that the last one has found to act, and that is looked at first.
    pub(super) acted: usize,
}

/// How much longer than such a search the time to the next one is.
const WIDE_PAUSE: u32 = 20;

/// The turn of one rank for such a search.
pub(super) struct Turn<'a> {
    pub(super) wide: MutexGuard<'a, Wide>,
    /// Of this thread. What the machine gives others meanwhile is no work of the search: were it
    /// counted, a search that waited 0.1 s for a core would put off the next one by two seconds.
    start: Duration,
    /// Others need not wait: this one has found something.
    pub(super) found: bool,
}

impl Turn<'_> {
    /// Now, unless it is another one's or too early.
    pub(super) fn now(wide: &Mutex<Wide>) -> Option<Turn<'_>> {
        let wide = wide.try_lock()?;
        let early = wide.next.is_some_and(|next| Instant::now() < next);
        (!early).then(|| Turn { wide, start: thread_time(), found: false })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let took = thread_time().saturating_sub(self.start);
        let took = if self.found { Duration::ZERO } else { took };
        self.wide.next = Some(Instant::now() + took * WIDE_PAUSE);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_waited_for_a_core_puts_off_no_other() {
        let wide = Mutex::new(Wide::default());
        let turn = Turn::now(&wide).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        drop(turn);
        std::thread::sleep(Duration::from_millis(200));
        assert!(Turn::now(&wide).is_some());
    }

    #[test]
    fn a_search_that_works_puts_off_the_next_one() {
        let wide = Mutex::new(Wide::default());
        let turn = Turn::now(&wide).unwrap();
        while thread_time() - turn.start < Duration::from_millis(20) {}
        drop(turn);
        let begun = Instant::now();
        while Turn::now(&wide).is_none() {}
        assert!(begun.elapsed() > Duration::from_millis(300));
    }
}
