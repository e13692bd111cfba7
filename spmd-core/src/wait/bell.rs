//! The word on which an agent sleeps, and how it is woken.

use crate::sync::atomic::AtomicU32;
use std::time::Duration;

use super::fences::Fences;
use super::scheduler::Home;
use super::word::{self, COROUTINE, THREAD};

/// How long those sleep who must look themselves for what they wait for.
const NAP: Duration = Duration::from_micros(50);

/// One rank's bell (or a block's): a word that may lie in memory shared by processes, and the
/// coroutine that lives behind it, if one does.
///
/// States and proof: see `README.md` beside this file.
#[derive(Clone, Copy)]
pub struct Bell<'a> {
    word: &'a AtomicU32,
    home: Option<&'a Home>,
    /// All coroutines of the home's worker live behind it.
    common: bool,
    shared: bool,
    /// Whoever rings wakes the coroutine, whether it has announced itself or not.
    unasked: bool,
    /// What is waited for may come without anybody ringing: sleepers look for it themselves.
    polled: bool,
    fences: Fences,
}

impl<'a> Bell<'a> {
    /// A bell of this process.
    pub(crate) fn new(word: &'a AtomicU32, home: Option<&'a Home>) -> Bell<'a> {
        let fences = Fences::Symmetric;
        Bell { word, home, common: false, shared: false, unasked: false, polled: false, fences }
    }

    /// A bell in memory that other processes have mapped.
    pub(crate) fn shared(word: &'a AtomicU32) -> Bell<'a> {
        let fences = Fences::Symmetric;
        Bell { shared: true, fences, ..Bell::new(word, None) }
    }

    /// A bell of this process on which no other than the coroutines of one worker sleep. All are
    /// woken, by whoever knows the home of one.
    #[inline]
    pub(crate) fn common(word: &'a AtomicU32, home: Option<&'a Home>) -> Bell<'a> {
        Bell { common: true, ..Bell::new(word, home) }
    }

    /// The same bell for those who ring it without a look at who sleeps, and for a coroutine that
    /// waits for them: a wake is cheap where all coroutines have one worker, and need not be asked
    /// for where it always comes.
    #[inline]
    pub(crate) fn unasked(self, unasked: bool) -> Bell<'a> {
        Bell { unasked: self.unasked || unasked, ..self }
    }

    /// The same bell, for those who wait for what another process sends.
    #[inline]
    pub(crate) fn polled(self, polled: bool) -> Bell<'a> {
        Bell { polled, ..self }
    }

    /// The same bell, whose ringers and sleepers use these fences.
    #[inline]
    pub(crate) fn with(self, fences: Fences) -> Bell<'a> {
        Bell { fences, ..self }
    }

    /// Wakes whoever sleeps here, if anybody does.
    ///
    /// The caller has made the change that the sleeper waits for, and the light fence of the bell's
    /// [`Fences`] stands between that change and this call.
    #[inline]
    pub(crate) fn ring_after_fence(self) {
        if self.unasked {
            self.wake_coroutine();
        }
        if word::has_sleepers(self.word) {
            self.ring_slow();
        }
    }

    /// Wakes whoever sleeps here, if anybody does, after a change made before this call.
    #[inline]
    pub fn ring(self) {
        self.fences.light();
        self.ring_after_fence();
    }

    #[cold]
    fn ring_slow(self) {
        let word = word::take_sleepers(self.word);
        if word & COROUTINE != 0 {
            self.wake_coroutine();
        }
        if word & THREAD != 0 {
            futex::wake_all(self.word, self.shared);
        }
    }

    #[inline]
    fn wake_coroutine(self) {
        match self.home {
            Some(home) if self.common => home.wake_all(),
            Some(home) => home.wake(),
            None => {}
        }
    }

    /// Which bell it is: where its word lies.
    pub(crate) fn place(self) -> usize {
        (&raw const *self.word).addr()
    }

    #[inline]
    pub(crate) fn is_polled(self) -> bool {
        self.polled
    }

    /// Whether the coroutine that runs on this thread lives behind this bell.
    #[inline]
    pub(super) fn is_home(self) -> bool {
        !self.polled && (self.common || self.home.is_some_and(Home::is_current))
    }

    /// Announces that the caller is about to sleep as a coroutine. Whether it must test its
    /// condition once more before it suspends.
    #[inline]
    pub(super) fn announce_coroutine(self) -> bool {
        if !self.unasked {
            word::announce(self.word, COROUTINE);
        }
        !self.unasked
    }

    /// Announces that the caller is about to sleep as a thread; gives the ticket for
    /// [`Bell::sleep`]. The caller must test its condition once more in between.
    #[inline]
    pub(super) fn announce_thread(self) -> u32 {
        let ticket = word::announce(self.word, THREAD);
        if self.fences != Fences::Symmetric {
            // Without it a wake-up may be missed: the sleeper then looks by itself, later.
            let _ = self.fences.heavy();
        }
        ticket
    }

    /// Sleeps until the bell rings after the ticket was taken, or the time is over.
    pub(super) fn sleep(self, ticket: u32, limit: Duration) {
        let limit = if self.polled { limit.min(NAP) } else { limit };
        futex::wait(self.word, ticket, limit, self.shared);
    }
}

#[cfg(all(target_os = "linux", not(all(loom, test))))]
mod futex {
    use rustix::thread::futex::{self, Flags};
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    fn flags(shared: bool) -> Flags {
        if shared { Flags::empty() } else { Flags::PRIVATE }
    }

    pub(super) fn wait(word: &AtomicU32, value: u32, limit: Duration, shared: bool) {
        let limit = rustix::time::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // Every outcome (woken, changed, timed out, interrupted) means: look again.
        let _ = futex::wait(word, flags(shared), value, Some(&limit));
    }

    pub(super) fn wake_all(word: &AtomicU32, shared: bool) {
        let _ = futex::wake(word, flags(shared), i32::MAX as u32);
    }
}

#[cfg(all(not(target_os = "linux"), not(all(loom, test))))]
mod futex {
    //! Threads of one process, anywhere: parking_lot's parking lot, keyed by the word's address.
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    pub(super) fn wait(word: &AtomicU32, value: u32, limit: Duration, _shared: bool) {
        let key = word.as_ptr() as usize;
        let unchanged = || word.load(SeqCst) == value;
        let deadline = Some(Instant::now() + limit);
        let token = parking_lot_core::DEFAULT_PARK_TOKEN;
        // SAFETY: the callbacks neither panic nor call into the parking lot, and the key is the
        // address of a word that this module alone parks on.
        unsafe { parking_lot_core::park(key, unchanged, || {}, |_, _| {}, token, deadline) };
    }

    pub(super) fn wake_all(word: &AtomicU32, _shared: bool) {
        let token = parking_lot_core::DEFAULT_UNPARK_TOKEN;
        // SAFETY: the key is the address of a word that this module alone parks on.
        unsafe { parking_lot_core::unpark_all(word.as_ptr() as usize, token) };
    }
}

#[cfg(all(loom, test))]
mod futex {
    //! Loom runs `word.rs` alone; this only has to compile.
    use crate::sync::atomic::AtomicU32;
    use std::time::Duration;

    pub(super) fn wait(_: &AtomicU32, _: u32, _: Duration, _: bool) {}

    pub(super) fn wake_all(_: &AtomicU32, _: bool) {}
}
