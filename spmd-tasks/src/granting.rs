//! Jobs that wait until they have what they ask for, and give it back when they are done.

use std::ptr::null;
use std::sync::Arc;

use crate::about::Priority;
use crate::job::{Ask, Job};
use crate::ledger::Waiting;
use crate::pool::{Here, Queues};
use crate::request::Asks;

/// Has a job done once there is what it asks for.
pub(crate) fn put(queues: &Arc<Queues>, job: Job, asks: Arc<Asks>, priority: Priority) {
    begin(queues, queues.ledger.asks(job, asks, priority));
}

/// Whoever asked for something is over: it is there for others, if it was granted.
pub(crate) fn give_back(queues: &Arc<Queues>, asks: &Asks) {
    if asks.take_back() {
        begin(queues, queues.ledger.give_back(asks));
    }
}

/// These have it.
fn begin(queues: &Arc<Queues>, granted: Vec<Waiting>) {
    for Waiting { job, asks, priority, .. } in granted {
        let cpu = asks.request.cpu;
        let job = Granted { job, asks: asks.clone(), queues: queues.clone() }.job();
        match cpu {
            0 => queues.drivers.put(job),
            1 => match &asks.request.workers {
                None => queues.put_for_all(job, priority),
                Some(workers) => queues.put_pinned(job, workers),
            },
            _ => queues.put_wide(job, cpu),
        }
    }
}

struct Granted {
    job: Job,
    asks: Arc<Asks>,
    queues: Arc<Queues>,
}

impl Granted {
    fn job(self) -> Job {
        let what = Box::into_raw(Box::new(self));
        // SAFETY: the address is for that function, which is called with `Run` or `Fail` once; what lies
        // there may be used on any thread, as a job may.
        unsafe { Job::new(what.cast(), Granted::act) }
    }

    /// # Safety
    /// `what` is an address that [`Granted::job`] has made for this, which has not been asked to run or
    /// fail.
    unsafe fn act(what: *const (), ask: Ask) -> *const () {
        if ask == Ask::Group {
            // SAFETY: it is there, as it has not been run.
            return unsafe { &*what.cast::<Granted>() }.job.group();
        }
        // SAFETY: this function's contract: it comes from a box, and nobody uses it after this.
        let granted = *unsafe { Box::from_raw(what.cast_mut().cast::<Granted>()) };
        let Granted { job, asks, queues } = granted;
        let lent = asks.request.cpu.saturating_sub(1);
        let here = Here::of(&queues).filter(|_| lent > 0);
        here.into_iter().for_each(|here| here.borrows(lent));
        match ask {
            Ask::Fail => job.fail(),
            _ => job.run(),
        }
        here.into_iter().for_each(Here::gives_back);
        // Where the task was over before it had it.
        give_back(&queues, &asks);
        null()
    }
}
