//! Loops that poll for a message which can never come: all who could send it have gone.
//!
//! To ask once more is no mistake: a rank may look for an optional message between steps of its work,
//! or let others run until a thread of its own has finished. So it is an error only for a rank that
//! has done nothing else for long, while nobody else could act in its process.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::Comm;
use crate::call::Call;
use crate::error::Result;
use crate::transport::message::Wanted;
use crate::transport::shared::poller::Poller;
use crate::transport::shared::{Endpoint, Mode};
use crate::wait;

/// How many polls in vain lie between two looks at who has gone.
const RARELY: u32 = 64;
/// After how much time within polls a loop is looked at. The second look in a row that finds that it
/// can but poll ends it: what somebody did before the first one, the loop has seen by then.
const STRETCH: Duration = Duration::from_millis(1500);

/// A poll may take as little as the loop around it. No step of a program's work takes less than this.
const NOTHING: Duration = Duration::from_nanos(100);

/// The polls in vain of one communicator.
#[derive(Default)]
pub(super) struct Polling {
    polls: Cell<u32>,
    /// Polls in vain since one found something, or others were let run.
    in_a_row: Cell<u32>,
}

/// The polls of a rank, on all its communicators, since those asked for were found to have gone, or
/// to live in other processes, which cannot be known to have.
#[derive(Default)]
pub(crate) struct Hopeless {
    /// Whether there are any.
    some: AtomicBool,
    loops: Mutex<Option<Loop>>,
}

/// A loop that polls.
struct Loop {
    /// The time within polls.
    polling: Duration,
    /// The time between them: what the program does besides.
    between: Duration,
    /// How many there were.
    polls: u32,
    /// The end of the last poll, after others were let run.
    last: Instant,
    /// Whether it was found once that it can but poll.
    suspect: bool,
    /// Some were for ranks of other processes.
    elsewhere: bool,
    /// The record for those who know what has become of these ranks.
    poller: Option<Poller>,
}

/// What a loop is found to be after some time.
#[derive(Debug, PartialEq)]
enum Found {
    /// It does something else, too, or somebody else could act.
    Alive,
    /// Twice in a row, it did nothing but poll for those who have gone, and nobody could act.
    Hopeless,
    /// The same, but it polled also for those of whom others know whether they have gone.
    LeftToOthers,
}

impl Loop {
    fn new(now: Instant) -> Loop {
        Loop {
            polling: Duration::ZERO,
            between: Duration::ZERO,
            polls: 0,
            last: now,
            suspect: false,
            elsewhere: false,
            poller: None,
        }
    }

    /// What the time since the last look shows, if it was long enough.
    fn look(&mut self, end: Instant, alone: impl FnOnce() -> bool) -> Option<Found> {
        if self.polling < STRETCH {
            return None;
        }
        let suspect = self.does_little_else() && alone();
        let before = std::mem::replace(&mut self.suspect, suspect);
        (self.polling, self.between, self.polls) = (Duration::ZERO, Duration::ZERO, 0);
        self.last = end;
        Some(match (suspect && before, self.elsewhere) {
            (true, false) => Found::Hopeless,
            (true, true) => Found::LeftToOthers,
            (false, _) => Found::Alive,
        })
    }

    /// Takes note of a poll. The time in which others were let run is theirs, and a look at the clock
    /// is nothing that the program does.
    fn polls(&mut self, begin: Instant, end: Instant) {
        let since = begin.saturating_duration_since(self.last);
        self.between += since.saturating_sub(look_at_the_clock());
        self.polling += end.saturating_duration_since(begin);
        self.polls += 1;
    }

    fn does_little_else(&self) -> bool {
        self.polling > self.between * 3 || self.between < NOTHING * self.polls
    }
}

/// How long it takes to ask for the time, which may be as long as a poll.
fn look_at_the_clock() -> Duration {
    static LOOK: OnceLock<Duration> = OnceLock::new();
    *LOOK.get_or_init(|| (0..32).map(|_| Instant::now().elapsed()).min().unwrap_or_default())
}

impl Hopeless {
    /// A poll begins: the time, if that matters.
    #[inline]
    pub(super) fn begins(&self) -> Option<Instant> {
        self.some.load(Relaxed).then(Instant::now)
    }

    /// A poll ends for those who have gone, or live elsewhere. Gives the loop, and what it is found to
    /// be, if it is time to look at it.
    fn polled(
        &self,
        (begin, end): (Option<Instant>, Instant),
        elsewhere: bool,
        alone: impl FnOnce() -> bool,
    ) -> (MappedMutexGuard<'_, Loop>, Option<Found>) {
        let place = self.loops.lock();
        let mut polls = MutexGuard::map(place, |place| place.get_or_insert_with(|| Loop::new(end)));
        self.some.store(true, Relaxed);
        begin.into_iter().for_each(|begin| polls.polls(begin, end));
        polls.elsewhere |= elsewhere;
        let found = polls.look(end, alone);
        (polls, found)
    }

    /// Others have been let run.
    fn goes_on(&self, now: Instant) {
        if let Some(found) = &mut *self.loops.lock() {
            found.last = now;
        }
    }
}

impl Endpoint {
    /// The rank does something else than to poll for those who have gone, or may have.
    #[inline]
    pub(crate) fn acts(&self) {
        if self.hopeless.some.load(Relaxed) {
            self.leaves_its_loop();
        }
    }

    #[cold]
    fn leaves_its_loop(&self) {
        self.hopeless.some.store(false, Relaxed);
        let poller = self.hopeless.loops.lock().take().and_then(|polls| polls.poller);
        poller.into_iter().for_each(|poller| self.stops_to_poll(poller));
    }
}

impl Comm {
    /// A poll that began at `begin` ([`Hopeless::begins`]) has found nothing: lets others run, so that
    /// something may come. An error if nothing can come any more, and the rank does nothing but poll.
    pub(super) fn polled_in_vain(
        &self,
        begin: Option<Instant>,
        call: &Call<'_>,
        wanted: &Wanted,
    ) -> Result<()> {
        // A sender that waits for room in its ring may be the one for whom the awaited one waits.
        self.endpoint.make_room();
        let polls = self.polling.polls.get().wrapping_add(1);
        self.polling.polls.set(polls);
        if begin.is_none() && !polls.is_multiple_of(RARELY) {
            self.let_others_run();
            return Ok(());
        }
        let (hopeless, end) = (&self.endpoint.hopeless, Instant::now());
        let waiter = self.waiter(call)?;
        let elsewhere = waiter.is_for_elsewhere(wanted.source);
        let mut ready = || self.route.transport.peek(wanted).map_or(true, |it| it.is_some());
        if !elsewhere && waiter.gone(wanted.source).is_none() {
            self.endpoint.acts();
        } else {
            let alone = || self.nobody_else_can_act();
            let (mut polls, found) = hopeless.polled((begin, end), elsewhere, alone);
            match found {
                None => {}
                Some(Found::Hopeless) => {
                    drop(polls);
                    self.endpoint.acts();
                    waiter.give_up_on(wanted.source, &mut ready)?;
                    return Ok(());
                }
                Some(Found::LeftToOthers) if polls.poller.is_none() => {
                    polls.poller = self.endpoint.starts_to_poll(&waiter, wanted.source);
                }
                Some(Found::LeftToOthers) => {}
                Some(Found::Alive) => {
                    let poller = polls.poller.take();
                    poller.into_iter().for_each(|poller| self.endpoint.stops_to_poll(poller));
                }
            }
            let poller = polls.poller.iter_mut();
            poller.for_each(|it| self.endpoint.still_polls(it, wanted.source, &mut ready));
        }
        self.let_others_run();
        hopeless.goes_on(Instant::now());
        Ok(())
    }

    /// Whether no thread of this process can do what the rank may be waiting for besides messages: none
    /// runs but ranks, of which no other one can have a communicator of this rank.
    fn nobody_else_can_act(&self) -> bool {
        let (endpoint, world) = (&self.endpoint, &self.endpoint.world);
        let others = endpoint.extra_comms.load(Relaxed) > usize::from(!self.primary);
        let gone = |rank| rank == endpoint.rank || world.has_ended(rank, self.scope.block);
        let held = others && world.mode != Mode::Processes && !world.local().all(gone);
        !held && wait::nobody_else_runs(&world.running)
    }

    /// A poll has found something.
    #[inline]
    pub(super) fn polled_well(&self) {
        self.polling.in_a_row.set(0);
        self.endpoint.acts();
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

#[cfg(test)]
mod tests;
