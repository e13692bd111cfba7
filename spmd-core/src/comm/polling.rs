//! Loops that poll for a message which can never come: all who could send it have gone.
//!
//! To ask once more is no mistake, as a rank may look for an optional message between steps of its
//! work. So it is an error only for a rank that has done nothing else for a while.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::Comm;
use crate::error::Result;
use crate::transport::message::Wanted;
use crate::transport::shared::agents::Waiter;
use crate::wait;

/// How many polls in vain lie between two looks at who has gone.
const RARELY: u32 = 64;
/// How long a loop may poll for those who have gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// The polls in vain of one communicator.
#[derive(Default)]
pub(super) struct Polling {
    polls: Cell<u32>,
    /// Polls in vain since one found something, or others were let run.
    in_a_row: Cell<u32>,
    hopeless: Cell<Option<Hopeless>>,
}

/// What has happened since those asked for were found to have gone.
#[derive(Clone, Copy)]
struct Hopeless {
    since: Instant,
    /// The end of the last poll.
    last: Instant,
    /// The time between polls: what the program does besides.
    between: Duration,
}

impl Hopeless {
    fn new() -> Hopeless {
        let now = Instant::now();
        Hopeless { since: now, last: now, between: Duration::ZERO }
    }

    fn again(self, now: Instant) -> Hopeless {
        Hopeless { between: self.between + (now - self.last), last: now, ..self }
    }

    /// Whether the loop has done nothing but poll, for long.
    fn is_all_it_does(&self, now: Instant) -> bool {
        let waited = now - self.since;
        waited > PATIENCE && self.between < waited / 4
    }
}

impl Comm {
    /// A poll begins.
    #[inline]
    pub(super) fn polls(&self) {
        if let Some(hopeless) = self.polling.hopeless.get() {
            self.polling.hopeless.set(Some(hopeless.again(Instant::now())));
        }
    }

    /// A poll has found nothing: lets others run, so that something may come. An error if nothing
    /// can come any more, and the rank does nothing but poll.
    pub(super) fn polled_in_vain(&self, waiter: &Waiter<'_>, wanted: &Wanted) -> Result<()> {
        let polling = &self.polling;
        // A sender that waits for room in its ring may be the one for whom the awaited one waits.
        self.endpoint.make_room();
        let Some(mut hopeless) = polling.hopeless.get() else {
            let polls = polling.polls.get().wrapping_add(1);
            polling.polls.set(polls);
            if polls.is_multiple_of(RARELY) && waiter.gone(wanted.source).is_some() {
                polling.hopeless.set(Some(Hopeless::new()));
            }
            self.let_others_run();
            return Ok(());
        };
        let now = Instant::now();
        if hopeless.is_all_it_does(now) {
            let mut ready = || self.route.transport.peek(wanted).map_or(true, |it| it.is_some());
            waiter.give_up_on(wanted.source, &mut ready)?;
        }
        if now - hopeless.since > PATIENCE {
            hopeless = Hopeless::new();
        }
        self.let_others_run();
        hopeless.last = Instant::now();
        polling.hopeless.set(Some(hopeless));
        Ok(())
    }

    /// A poll has found something.
    #[inline]
    pub(super) fn polled_well(&self) {
        self.polling.in_a_row.set(0);
        self.polling.hopeless.set(None);
    }

    /// To let others run costs a thread more than many polls, and a coroutine hardly more than one.
    fn let_others_run(&self) {
        let polling = &self.polling;
        let in_a_row = polling.in_a_row.get() + 1;
        if wait::fleet::in_coroutine() || in_a_row >= self.endpoint.world.policy.polls() {
            polling.in_a_row.set(0);
            wait::relax();
        } else {
            polling.in_a_row.set(in_a_row);
        }
    }
}
