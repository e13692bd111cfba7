//! The one place that waits. See `README.md` beside this file for the protocol and its proof.

mod asleep;
pub(crate) mod bell;
mod blocking;
mod completion;
mod coroutine;
mod current;
mod fences;
mod handover;
mod helper;
mod name;
#[cfg(target_os = "linux")]
mod overflow;
mod policy;
mod progress;
mod ready;
pub(crate) mod scheduler;
mod stack;
mod start;
mod started;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod until;
mod wakers;
mod word;
mod worker;

pub(crate) use bell::Bell;
pub(crate) use completion::{Completed, Completion};
pub(crate) use coroutine::{AgentKey, is_task, key as agent};
pub use current::{as_task, task};
pub(crate) use current::{current, is_started, progresses, set_current};
pub(crate) use fences::Fences;
pub(crate) use handover::{Helped, Outcome};
pub(crate) use helper::HelperThread;
pub(crate) use policy::{Policy, WaitHooks, cores};
pub(crate) use start::{StartedHandle, companion, refuse, start, until_over};
pub(crate) use started::{Companion, Startable, all_over, finish, go_on, settle, unknown_failure};
pub(crate) use threads::{
    Opener, Opening, Outsider, RankThread, all_wait, nobody_else_runs, starting_own_threads,
};
pub(crate) use until::{pause, until, until_done, until_woken};
pub(crate) use wakers::{HasBell, awaits};

use std::cell::Cell;

thread_local! {
    static IN_OPERATION: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reduction operation; a call of the rank API from within is refused.
pub fn in_operation<R>(operation: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            IN_OPERATION.set(self.0);
        }
    }
    let _reset = Reset(IN_OPERATION.replace(true));
    operation()
}

/// Whether the caller runs inside a reduction operation.
#[inline]
pub(crate) fn is_in_operation() -> bool {
    IN_OPERATION.get()
}

/// Whether whoever runs here cannot wait for others: a virtual rank that is panicking.
pub(crate) fn cannot_wait() -> bool {
    scheduler::in_coroutine() && std::thread::panicking() && !is_started()
}

/// Lets others run, in a loop that polls what nobody tells of.
pub(crate) fn relax() {
    // A started call would go back to whoever has started it, who may sleep, as nobody wakes it.
    if is_started() {
        return std::thread::yield_now();
    }
    match scheduler::current() {
        // One that is panicking keeps its worker.
        Some(home) if !std::thread::panicking() => {
            home.wake();
            current::kept_over(scheduler::suspend);
        }
        _ => std::thread::yield_now(),
    }
}
