//! The protocol of a bell's word; see `README.md`, which proves it.

use crate::sync::atomic::{AtomicU32, Ordering::*, fence};

/// Set while a thread sleeps on the word.
pub(super) const THREAD: u32 = 1;
/// Set while the coroutine that lives behind it is suspended on it.
pub(super) const COROUTINE: u32 = 2;
const SLEEPERS: u32 = THREAD | COROUTINE;

/// Announces a sleeper, who then looks at its condition once more. Gives the value that the word
/// keeps as long as nobody rings.
#[inline]
pub(super) fn announce(word: &AtomicU32, sleeper: u32) -> u32 {
    let ticket = word.fetch_or(sleeper, SeqCst) | sleeper;
    // The look at the condition, which need not be sequentially consistent, comes after this. On
    // x86 a locked instruction such as the one above is that fence.
    if cfg!(all(any(target_arch = "x86", target_arch = "x86_64"), not(loom))) {
        std::sync::atomic::compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
    ticket
}

/// Whether anybody is to be woken; the change and a fence come before.
#[inline]
pub(super) fn has_sleepers(word: &AtomicU32) -> bool {
    word.load(Relaxed) & SLEEPERS != 0
}

/// Takes on the waking of all sleepers, and gives which kinds there are.
pub(super) fn take_sleepers(word: &AtomicU32) -> u32 {
    let mut now = word.load(Relaxed);
    while now & SLEEPERS != 0 {
        let next = (now & !SLEEPERS).wrapping_add(4);
        match word.compare_exchange_weak(now, next, AcqRel, Relaxed) {
            Ok(_) => return now & SLEEPERS,
            Err(other) => now = other,
        }
    }
    0
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// A bell with a futex made of what loom has: to look at the word and to fall asleep is one
    /// step. A sleeper that nobody wakes is a deadlock, which loom reports.
    struct Model {
        word: AtomicU32,
        lock: Mutex<()>,
        woken: Condvar,
        condition: AtomicU32,
    }

    impl Model {
        fn new() -> Arc<Model> {
            Arc::new(Model {
                word: AtomicU32::new(0),
                lock: Mutex::new(()),
                woken: Condvar::new(),
                condition: AtomicU32::new(0),
            })
        }

        fn wait_for(&self, value: u32) {
            loop {
                let ticket = announce(&self.word, THREAD);
                if self.condition.load(Acquire) == value {
                    return;
                }
                self.sleep(ticket);
            }
        }

        fn sleep(&self, ticket: u32) {
            let lock = self.lock.lock().unwrap();
            if self.word.load(SeqCst) == ticket {
                drop(self.woken.wait(lock).unwrap());
            }
        }

        fn change_and_ring(&self) {
            self.condition.fetch_add(1, Release);
            fence(SeqCst);
            if has_sleepers(&self.word) && take_sleepers(&self.word) != 0 {
                drop(self.lock.lock().unwrap());
                self.woken.notify_all();
            }
        }
    }

    /// All orders with up to three preemptions: more have shown nothing and take hours.
    fn model(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(f);
    }

    #[test]
    fn loom_one_waiter_two_ringers() {
        model(|| {
            let model = Model::new();
            let ringers: Vec<_> = (0..2)
                .map(|_| {
                    let model = model.clone();
                    thread::spawn(move || model.change_and_ring())
                })
                .collect();
            model.wait_for(2);
            ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        });
    }

    /// Who awaits announces and looks; another thread sleeps in its place.
    #[test]
    fn loom_another_thread_sleeps() {
        model(|| {
            let model = Model::new();
            let ringer = {
                let model = model.clone();
                thread::spawn(move || model.change_and_ring())
            };
            let look = || {
                let ticket = announce(&model.word, THREAD);
                (model.condition.load(Acquire) != 1).then_some(ticket)
            };
            while let Some(ticket) = look() {
                let model = model.clone();
                thread::spawn(move || model.sleep(ticket)).join().unwrap();
            }
            ringer.join().unwrap();
        });
    }

    #[test]
    fn loom_two_waiters_on_one_bell() {
        model(|| {
            let model = Model::new();
            let waiter = {
                let model = model.clone();
                thread::spawn(move || model.wait_for(1))
            };
            let ringer = {
                let model = model.clone();
                thread::spawn(move || model.change_and_ring())
            };
            model.wait_for(1);
            waiter.join().unwrap();
            ringer.join().unwrap();
        });
    }
}
