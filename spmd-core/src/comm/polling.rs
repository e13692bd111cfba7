//! Loops that poll for a message which can never come: all who could send it have gone.
//!
//! To ask once more is no mistake: a rank may look for an optional message between steps of its work,
//! or let others run until a thread of its own has finished. So it is an error only for a rank that
//! has done nothing else for long, while nobody else could act in its process.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Comm;
use crate::call::Call;
use crate::error::Result;
use crate::transport::message::Wanted;
use crate::transport::shared::Mode;
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

/// The polls of a rank, on all its communicators, since those asked for were found to have gone.
#[derive(Default)]
pub(crate) struct Hopeless {
    /// Whether there are any.
    some: AtomicBool,
    loops: Mutex<Option<Loop>>,
}

/// A loop that polls.
#[derive(Clone, Copy)]
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
}

impl Loop {
    fn new(now: Instant, suspect: bool) -> Loop {
        Loop { polling: Duration::ZERO, between: Duration::ZERO, polls: 0, last: now, suspect }
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

    /// The rank does something, or may still get what it polls for.
    #[inline]
    pub(super) fn clear(&self) {
        if self.some.load(Relaxed) {
            self.put(&mut self.loops.lock(), None);
        }
    }

    fn put(&self, place: &mut Option<Loop>, new: Option<Loop>) {
        *place = new;
        self.some.store(new.is_some(), Relaxed);
    }

    /// A poll for those who have gone ends. Whether the loop is to end: it does little else, and so
    /// it is found twice that nobody can act but this rank.
    fn polled(&self, begin: Option<Instant>, end: Instant, alone: impl FnOnce() -> bool) -> bool {
        let mut place = self.loops.lock();
        let mut found = place.unwrap_or_else(|| Loop::new(end, false));
        begin.into_iter().for_each(|begin| found.polls(begin, end));
        if found.polling < STRETCH {
            self.put(&mut place, Some(found));
            return false;
        }
        let suspect = found.does_little_else() && alone();
        self.put(&mut place, Some(Loop::new(end, suspect)));
        suspect && found.suspect
    }

    /// Others have been let run.
    fn goes_on(&self, now: Instant) {
        if let Some(found) = &mut *self.loops.lock() {
            found.last = now;
        }
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
        if waiter.gone(wanted.source).is_none() {
            hopeless.clear();
        } else if hopeless.polled(begin, end, || self.nobody_else_can_act()) {
            hopeless.clear();
            let mut ready = || self.route.transport.peek(wanted).map_or(true, |it| it.is_some());
            waiter.give_up_on(wanted.source, &mut ready)?;
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
        self.endpoint.hopeless.clear();
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
mod tests {
    use super::*;
    use crate::{ANY, Result, Spmd};

    const SECOND: Duration = Duration::from_secs(1);

    /// Polls of `poll` each, with `between` between them, until the loop is to end; `None` if it is
    /// not within a hundred of them.
    fn polls_until_the_end(
        hopeless: &Hopeless,
        (poll, between): (Duration, Duration),
        mut alone: impl FnMut() -> bool,
    ) -> Option<u32> {
        let mut now = Instant::now();
        let ended = |number: &u32| {
            let begin = hopeless.begins().map(|_| now + between);
            let end = now + between + poll;
            let ended = hopeless.polled(begin, end, &mut alone);
            // In which others run, for long.
            now = end + 10 * SECOND;
            hopeless.goes_on(now);
            assert!(*number > 1 || begin.is_none());
            ended
        };
        (1..=100).find(ended)
    }

    #[test]
    fn a_loop_that_only_polls_ends_after_three_seconds_of_polls() {
        let poll = (SECOND / 2, SECOND / 10);
        // The first poll only tells that those asked for have gone.
        assert_eq!(polls_until_the_end(&Hopeless::default(), poll, || true), Some(7));
    }

    #[test]
    fn a_loop_that_works_between_its_polls_goes_on() {
        let poll = (SECOND / 2, SECOND / 4);
        assert_eq!(polls_until_the_end(&Hopeless::default(), poll, || true), None);
    }

    /// However fast a poll is, and the loop around it slow.
    #[test]
    fn a_loop_is_told_from_work_by_the_time_of_its_turns() {
        let now = Instant::now();
        let nanos = |turn: u64| Duration::from_nanos(1000 * turn);
        let with = |poll, between| Loop {
            polling: nanos(poll),
            between: nanos(between),
            polls: 1000,
            ..Loop::new(now, false)
        };
        assert!(with(50, 60).does_little_else() && with(50, 10).does_little_else());
        assert!(!with(50, 120).does_little_else() && !with(300, 120).does_little_else());
        assert!(with(400, 120).does_little_else());
    }

    /// What another thread did before it ended, the loop sees after it has ended.
    #[test]
    fn a_loop_goes_on_while_somebody_else_can_act() {
        let poll = (SECOND / 2, Duration::ZERO);
        assert_eq!(polls_until_the_end(&Hopeless::default(), poll, || false), None);
        let mut looks = 0;
        let ended = polls_until_the_end(&Hopeless::default(), poll, || {
            looks += 1;
            looks > 1
        });
        assert_eq!((ended, looks), (Some(10), 3));
        let mut looks = 0;
        let by_turns = || {
            looks += 1;
            looks % 2 == 0
        };
        assert_eq!(polls_until_the_end(&Hopeless::default(), poll, by_turns), None);
    }

    #[test]
    fn what_the_rank_does_besides_is_seen() -> Result<()> {
        Spmd::new(3).virtual_ranks().workers(1).run(|ctx| {
            let hopeless = &ctx.endpoint.hopeless;
            if ctx.rank() == 1 {
                return Ok(());
            }
            let poll_in_vain = || -> Result<()> {
                while hopeless.begins().is_none() {
                    ctx.iprobe(1, 0)?;
                }
                Ok(())
            };
            if ctx.rank() == 0 {
                ctx.send(&[1], 0, 0)?;
                poll_in_vain()?;
                assert!(ctx.iprobe(2, 0)?.is_none() && hopeless.begins().is_none());
                poll_in_vain()?;
                assert!(ctx.iprobe(ANY, 1)?.is_none() && hopeless.begins().is_none());
                poll_in_vain()?;
                assert!(ctx.iprobe(ANY, 0)?.is_some() && hopeless.begins().is_none());
                poll_in_vain()?;
                assert!(ctx.iprobe(1, 0)?.is_none() && hopeless.begins().is_some());
                ctx.recv(&mut [0], 0, 0)?;
                assert!(hopeless.begins().is_none());
                return ctx.send(&[1], 2, 0);
            }
            ctx.recv(&mut [0], 0, 0).map(drop)
        })?;
        Ok(())
    }
}
