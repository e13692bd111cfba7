//! The thread that carries out what a rank has started, so that it goes on whatever the rank does.
//!
//! A coroutine never changes its thread. So the rank hands a call over before it begins, and the
//! thread makes a started call of its own of it (`started/`), of which the rank has but the end
//! (`handover.rs`). It waits on the bell of the rank.

use std::cell::Cell;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::asleep::wait_as_thread;
use super::coroutine::Resumed;
use super::handover::{HandedCall, Handovers, Helped};
use super::policy::{SERVE_EVERY, WaitHooks};
use super::start::StartedHandle;
use super::started::{self, Startable, StartedEntry};
use super::threads::{Busy, Helper};
use super::{current, is_started};
use crate::error::{Error, Result};
use crate::fault::print;

/// With whether nobody may ring for it.
type Handed = (Box<dyn Startable + Send>, Arc<HandedCall>, bool);

#[derive(Default)]
struct Shared {
    calls: Handovers<Handed>,
    ended: AtomicBool,
}

/// The thread, until it is dropped: the rank's calls are over by then.
pub(crate) struct HelperThread {
    of: Arc<dyn Helped>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl HelperThread {
    /// Errors: the system refuses a thread.
    pub(crate) fn start(of: Arc<dyn Helped>, name: String) -> Result<HelperThread> {
        let shared = Arc::<Shared>::default();
        let (its, helped) = (shared.clone(), of.clone());
        let run = move || {
            // The calls that it has are never over without it, and their buffers may be borrowed.
            if catch_unwind(AssertUnwindSafe(|| its.run(&*helped))).is_err() {
                print(format_args!("the thread of started calls has panicked; aborting"));
                std::process::abort();
            }
        };
        let thread = thread::Builder::new().name(name).spawn(run);
        let thread = thread.map_err(|error| {
            let what = "starting a thread for calls that a rank has started (SPMD_PROGRESS=calls \
                        does without)";
            Error::system(what, error)
        })?;
        Ok(HelperThread { of, shared, thread: Some(thread) })
    }

    /// Hands a call over, which begins as soon as it has its turn; `polled` if what it waits for may
    /// come without anybody ringing the rank's bell.
    ///
    /// Errors: a started call runs here.
    ///
    /// # Safety
    /// What the call uses lives until it is over.
    pub(crate) unsafe fn start_call<'a>(
        &self,
        call: Box<dyn Startable + Send + 'a>,
        polled: bool,
    ) -> Result<StartedHandle> {
        if is_started() {
            return Err(Error::argument("a started call cannot start another one".into()));
        }
        type Unbound<'a> = Box<dyn Startable + Send + 'a>;
        // SAFETY: the type stays the same but for a lifetime. What the call uses lives until it is
        // over (this function's contract), and when the rank sees that it is, nothing is left of it:
        // `HandedCall::complete` is told so.
        let call = unsafe { transmute::<Unbound<'a>, Unbound<'static>>(call) };
        let handed = Arc::new(HandedCall::new(self.of.clone()));
        let handle = StartedHandle::handed(handed.clone(), self.of.bell());
        self.of.hands_over();
        self.shared.calls.put((call, handed, polled));
        self.wake();
        Ok(handle)
    }

    /// It sleeps on the bell while it has calls, and parks while it has none.
    fn wake(&self) {
        self.thread.iter().for_each(|thread| thread.thread().unpark());
        self.of.bell().ring();
    }
}

impl Drop for HelperThread {
    fn drop(&mut self) {
        self.shared.ended.store(true, Release);
        self.wake();
        // It does not panic: what a call panics with is that call's outcome.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    /// What the thread does.
    fn run(&self, of: &dyn Helped) {
        let _counted = Helper::new();
        started::prepare();
        while self.waits_for_calls(of) {
            let _busy = Busy::new();
            loop {
                self.begin_new(of);
                started::go_on_alone(None, of.policy());
                started::go_on();
                if !current::progresses() && !self.calls.is_filled() {
                    break;
                }
                self.wait(of);
            }
        }
    }

    /// Waits until calls are handed over; not, if that was the end of them.
    fn waits_for_calls(&self, of: &dyn Helped) -> bool {
        let (spins, _) = of.policy().patience(false);
        for _ in 0..spins {
            if self.calls.is_filled() {
                return true;
            }
            std::hint::spin_loop();
        }
        while !self.calls.is_filled() {
            if self.ended.load(Acquire) {
                return false;
            }
            thread::park();
        }
        true
    }

    /// Goes on with the calls that have come.
    fn begin_new(&self, of: &dyn Helped) {
        for (call, handed, polled) in self.calls.take() {
            let bell = of.bell().polled(polled);
            let entry = Rc::new(StartedEntry::for_another(call, handed, bell));
            if !entry.resume(Resumed::Woken).ended {
                started::insert(entry);
            }
            of.is_taken();
        }
    }

    /// Waits until a call has gone on, or come.
    fn wait(&self, of: &dyn Helped) {
        let bell = of.bell();
        let bell = bell.polled(started::poll(Some(bell.place())));
        let (spins, yields) = of.policy().patience_beside(bell.is_polled());
        let went_on = Cell::new(false);
        let mut ready = || {
            let goes_on = || {
                let made = started::pass(Resumed::Woken);
                made.ended || made.went_on
            };
            went_on.get() || self.calls.is_filled() || goes_on()
        };
        for look in 1..=spins + yields {
            if ready() {
                return;
            }
            if look % SERVE_EVERY == 0 || look > spins {
                of.serve();
            }
            if look <= spins { std::hint::spin_loop() } else { thread::yield_now() }
        }
        let mut hooks = Helping { of, went_on: &went_on };
        let waited = wait_as_thread(bell, (spins, yields), false, &mut hooks, &mut ready);
        debug_assert!(waited.is_ok(), "nothing interrupts it");
    }
}

/// The hooks of the thread's waits. Its calls tell themselves what they wait for.
struct Helping<'a> {
    of: &'a dyn Helped,
    /// A call has gone on in a rare check.
    went_on: &'a Cell<bool>,
}

impl WaitHooks for Helping<'_> {
    fn interrupted(&self) -> Option<Error> {
        None
    }
    fn awake(&mut self) {}
    fn overdue(&mut self, _: Duration, _: &mut dyn FnMut() -> bool) -> Result<()> {
        let made = started::sweep();
        self.went_on.set(made.ended || made.went_on);
        self.of.overdue();
        Ok(())
    }
    fn serve(&mut self) -> bool {
        self.of.serve()
    }
}
