//! Loops of polls, which may be all that a rank still does.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

/// After how much time a loop is looked at. The second look in a row that finds that it can but poll
/// ends it: what somebody did before the first one, the loop has seen by then.
const STRETCH: Duration = Duration::from_millis(1500);

/// How many polls show what a loop does, though most of the time others ran: on a busy machine all of
/// that lies between polls, and a loop would be looked at after minutes.
const ENOUGH: u32 = 10_000;

/// A poll may take as little as the loop around it. No step of a program's work takes less than
/// this.
const NOTHING: Duration = Duration::from_nanos(100);

/// The record of a loop.
pub(crate) struct Poller {
    pub(super) slot: usize,
    pub(super) on: u32,
    /// When it was last seen to go on, in milliseconds.
    pub(super) confirmed: u64,
}

/// The polls of a rank, on all its communicators, since those asked for were found to have gone, or
/// to live in other processes, which cannot be known to have.
#[derive(Default)]
pub(crate) struct Hopeless {
    /// Whether there are any.
    pub(super) some: AtomicBool,
    pub(super) loops: Mutex<Option<Loop>>,
}

/// A loop that polls.
pub(crate) struct Loop {
    /// The time within polls.
    polling: Duration,
    /// The time between them: what the program does besides.
    between: Duration,
    /// How many there were.
    polls: u32,
    /// The last look at the loop.
    looked: Instant,
    /// The end of the last poll, after others were let run.
    last: Instant,
    /// Whether it was found once that it can but poll.
    suspect: bool,
    /// Some were for ranks of other processes.
    elsewhere: bool,
    /// The record for those who know what has become of these ranks.
    pub(crate) poller: Option<Poller>,
}

/// What a loop is found to be after some time.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
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
            looked: now,
            last: now,
            suspect: false,
            elsewhere: false,
            poller: None,
        }
    }

    /// What the time since the last look shows, if it was long enough.
    fn look(&mut self, end: Instant, alone: impl FnOnce() -> bool) -> Option<Found> {
        let since = end.saturating_duration_since(self.looked);
        if self.polling < STRETCH && (since < STRETCH || self.polls < ENOUGH) {
            return None;
        }
        let suspect = self.does_little_else() && alone();
        let before = std::mem::replace(&mut self.suspect, suspect);
        (self.polling, self.between, self.polls) = (Duration::ZERO, Duration::ZERO, 0);
        (self.last, self.looked) = (end, end);
        Some(match (suspect && before, self.elsewhere) {
            (true, false) => Found::Hopeless,
            (true, true) => Found::LeftToOthers,
            (false, _) => Found::Alive,
        })
    }

    /// Takes note of a poll. The time in which others were let run is theirs, and a look at the
    /// clock is nothing that the program does.
    fn polls(&mut self, begin: Instant, end: Instant) {
        let since = begin.saturating_duration_since(self.last);
        self.between += since.saturating_sub(look_at_the_clock());
        self.polling += end.saturating_duration_since(begin);
        self.polls = self.polls.saturating_add(1);
    }

    /// Less time lies between its polls than within them: where a program is compiled without
    /// optimisation, that is as long as several hundred nanoseconds, and so is a poll.
    fn does_little_else(&self) -> bool {
        self.polling > self.between || self.between < NOTHING * self.polls
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
    pub(crate) fn begins(&self) -> Option<Instant> {
        self.some.load(Relaxed).then(Instant::now)
    }

    /// What a poll does besides, before others are let run, belongs to it.
    pub(crate) fn polled_until(&self, now: Instant, end: Instant) {
        if let Some(found) = &mut *self.loops.lock() {
            found.polling += now.saturating_duration_since(end);
        }
    }

    /// A poll ends for those who have gone, or live elsewhere. Gives the loop, and what it is found
    /// to be, if it is time to look at it.
    pub(crate) fn polled(
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
    pub(crate) fn goes_on(&self, now: Instant) {
        if let Some(found) = &mut *self.loops.lock() {
            found.last = now;
        }
    }
}

#[cfg(test)]
mod tests;
