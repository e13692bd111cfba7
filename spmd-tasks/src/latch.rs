//! A one-time wait of one agent for another, which lies on the waiter's stack.

use std::cell::UnsafeCell;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::*};

use spmd_core::internal::{Call, Kind, Sleeper, wait_for_borrowers, wait_for_task};

use crate::group::Group;

const CLOSED: u8 = 0;
/// Somebody sleeps, or is about to.
const AWAITED: u8 = 1;
const OPEN: u8 = 2;

/// Closed at first, and opened once.
pub(crate) struct Latch {
    state: AtomicU8,
    sleeper: UnsafeCell<Option<Arc<Sleeper>>>,
}

// SAFETY: `sleeper` is written by the one who waits before the state is `AWAITED`, which it sets with
// release, and taken by the one who opens after it has seen that, with acquire: never by both at once.
unsafe impl Sync for Latch {}

impl Latch {
    pub(crate) fn new() -> Latch {
        Latch { state: AtomicU8::new(CLOSED), sleeper: UnsafeCell::new(None) }
    }

    /// Waits until it is open, for what is called at `site` as a part of this group. One agent calls it,
    /// once, while nobody unwinds here.
    #[cold]
    pub(crate) fn wait(&self, site: &'static Location<'static>, group: &Arc<Group>) {
        if self.is_open() {
            return;
        }
        let sleeper = Arc::new(Sleeper::here());
        // SAFETY: it is closed, so that only this agent uses the place (see `Sync` above).
        unsafe { *self.sleeper.get() = Some(sleeper.clone()) };
        if self.state.compare_exchange(CLOSED, AWAITED, AcqRel, Acquire).is_ok() {
            let (call, what) = (Call::new(Kind::Fetch, site), || "what is done beside it".into());
            let mut open = || self.is_open();
            group.begins_one();
            // On record first, so that a cycle is found: then what it waits for gives up.
            if wait_for_task(&sleeper, (&call, &what), &|| None, &mut open).is_err() {
                group.give_up();
                wait_for_borrowers(&sleeper, open);
            }
            // SAFETY: it counts one for this wait.
            unsafe { Group::ends_one(NonNull::from(&**group)) };
        }
    }

    fn is_open(&self) -> bool {
        self.state.load(Acquire) == OPEN
    }

    /// Opens it. One agent calls it, once.
    ///
    /// # Safety
    /// The latch is there until it is open; whoever waits may free it from then on.
    pub(crate) unsafe fn open(this: *const Latch) {
        // SAFETY: it is there, as nobody but this function opens it.
        let latch = unsafe { &*this };
        if latch.state.compare_exchange(CLOSED, OPEN, AcqRel, Acquire).is_ok() {
            return;
        }
        // SAFETY: it is awaited, so that only this agent uses the place, and it is there until the
        // store below.
        let sleeper = unsafe { (*latch.sleeper.get()).take() };
        latch.state.store(OPEN, Release);
        sleeper.iter().for_each(|sleeper| sleeper.wake());
    }
}
