//! Who may touch a sender's buffer: the protocols by which it is handed to a receiver and taken
//! back. Loom checks them as they are here.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};

const POSTED: u32 = 0;
const READING: u32 = 1;
const DONE: u32 = 2;
const WITHDRAWN: u32 = 3;

/// The state of a buffer handed over within one address space.
///
/// ```text
/// posted --receiver--> reading --receiver--> done
///    \\-----sender----> withdrawn
/// ```
pub(super) struct Access(AtomicU32);

impl Access {
    pub(super) fn new() -> Access {
        Access(AtomicU32::new(POSTED))
    }

    /// Receiver: whether it may read, until [`Access::finish`].
    pub(super) fn take(&self) -> bool {
        self.0.compare_exchange(POSTED, READING, AcqRel, Acquire).is_ok()
    }

    /// Receiver: it has read.
    pub(super) fn finish(&self) {
        self.0.store(DONE, Release);
    }

    /// Receiver: it will not read.
    pub(super) fn refuse(&self) {
        let _ = self.0.compare_exchange(POSTED, DONE, AcqRel, Acquire);
    }

    /// Sender: whether the receiver is through with it.
    pub(super) fn is_done(&self) -> bool {
        self.0.load(Acquire) == DONE
    }

    /// Sender: takes the buffer back; whether it is the sender's alone now. If not, the receiver
    /// is reading at this moment.
    pub(super) fn withdraw(&self) -> bool {
        match self.0.compare_exchange(POSTED, WITHDRAWN, AcqRel, Acquire) {
            Ok(_) => true,
            Err(now) => now != READING,
        }
    }
}

/// Between processes each side writes words of its own only. The receiver announces what it is
/// about to read, then asks here whether that was withdrawn; the sender withdraws
/// ([`withdraw`]), then looks at the announcement. Of the two fences one is first, so one of them
/// sees the other.
pub(super) fn announce(reading: &AtomicU64, number: u64, withdrawn: &AtomicU64) -> bool {
    // What was written for this message before is seen with it.
    reading.store(number, Release);
    fence(SeqCst);
    withdrawn.load(Acquire) < number
}

/// The sender's side of [`announce`]: message `number` and those before it are withdrawn. It must
/// then wait until `reading` is not `number`.
pub(super) fn withdraw(withdrawn: &AtomicU64, number: u64) {
    withdrawn.store(number, Release);
    fence(SeqCst);
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// The sender writes its buffer again as soon as it may; loom sees every order in which the
    /// receiver could read it at that time.
    #[test]
    fn loom_a_handover_is_read_or_withdrawn() {
        loom::model(|| {
            let shared = Arc::new((Access::new(), UnsafeCell::new(1)));
            let receiver = {
                let shared = shared.clone();
                thread::spawn(move || {
                    if shared.0.take() {
                        // SAFETY: the access was taken; loom checks that nobody writes now.
                        assert_eq!(shared.1.with(|value| unsafe { *value }), 1);
                        shared.0.finish();
                    }
                })
            };
            while !shared.0.withdraw() {
                thread::yield_now();
            }
            // SAFETY: the buffer was taken back; loom checks that nobody reads now.
            shared.1.with_mut(|value| unsafe { *value = 2 });
            receiver.join().unwrap();
        });
    }

    #[test]
    fn loom_a_withdrawal_and_an_announcement_see_each_other() {
        loom::model(|| {
            let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0), UnsafeCell::new(1)));
            let receiver = {
                let shared = shared.clone();
                thread::spawn(move || {
                    if announce(&shared.0, 7, &shared.1) {
                        // SAFETY: not withdrawn; loom checks that nobody writes now.
                        assert_eq!(shared.2.with(|value| unsafe { *value }), 1);
                    }
                    shared.0.store(0, Release);
                })
            };
            withdraw(&shared.1, 7);
            while shared.0.load(Acquire) == 7 {
                thread::yield_now();
            }
            // SAFETY: withdrawn, and nobody announced; loom checks that nobody reads now.
            shared.2.with_mut(|value| unsafe { *value = 2 });
            receiver.join().unwrap();
        });
    }
}
