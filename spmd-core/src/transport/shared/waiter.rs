//! A call that may have to wait: what ends its wait, what is told of it, and its record.

mod held_up;
mod on_record;
pub(crate) mod started;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use super::endpoint::Endpoint;
use super::layout::Agent;
use super::record::{BEYOND_WINDOW, Noted};
use super::suspicion::Suspicion;
use crate::call::Call;
use crate::current;
use crate::error::{Error, Result, Timeout};
use crate::fault::{Cause, Fault};
use crate::group::{Group, Scope};
use crate::mode::Mode;
use crate::panics::{error_text, panic_text, panic_under_way};
use crate::wait::{self, Bell, WaitHooks};

/// One call that may have to wait.
pub(crate) struct Waiter<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) scope: &'a Scope,
    pub(crate) call: &'a Call<'a>,
    pub(crate) noted: Noted,
    /// The world rank plus one that it waits for now, or [`Agent::ANY`].
    on: Cell<u32>,
    /// What ends the wait, as [`Agent::ended_by`].
    ended_by: Cell<u32>,
    /// What it waits for may come from another process, which rings no bell here.
    polled: bool,
    /// It waits because the receiver of its message keeps as much as it may.
    beyond_window: Cell<bool>,
    /// What happens to single ranks or to the communicator does not end it.
    steadfast: bool,
    /// It is not put on record: it neither keeps its rank from acting nor from being waited for.
    off_record: bool,
    faults_seen: Cell<u32>,
    /// The number of the last fault before the wait went on record.
    faults_at_start: Cell<u32>,
    slot: Cell<Option<Option<usize>>>,
    suspicion: Cell<Option<Suspicion>>,
    /// A thread is counted as one that sleeps.
    asleep: Cell<bool>,
    /// It is of a task, and counted as one that may act, as it is not on record.
    untold: Cell<bool>,
    /// The rank's tasks know that its own thread sleeps.
    leaves_core: Cell<bool>,
    /// On a thread that runs no rank: it is counted as one that waits.
    outsider: Cell<Option<wait::Outsider>>,
    /// All threads were seen to wait, after so many of them had gone on.
    standstill: Cell<Option<usize>>,
}

impl<'a> Waiter<'a> {
    #[inline]
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        scope: &'a Scope,
        call: &'a Call<'a>,
        noted: Noted,
    ) -> Waiter<'a> {
        Waiter {
            endpoint,
            scope,
            call,
            noted,
            on: Cell::new(0),
            ended_by: Cell::new(Agent::ACT),
            polled: false,
            beyond_window: Cell::new(false),
            steadfast: false,
            off_record: false,
            faults_seen: Cell::new(scope.faults_seen.get()),
            faults_at_start: Cell::new(0),
            slot: Cell::new(None),
            suspicion: Cell::new(None),
            asleep: Cell::new(false),
            untold: Cell::new(false),
            leaves_core: Cell::new(false),
            outsider: Cell::new(None),
            standstill: Cell::new(None),
        }
    }

    /// The same for what may come from another process.
    #[inline]
    pub(crate) fn polled(self) -> Waiter<'a> {
        Waiter { polled: self.endpoint.world.joined, ..self }
    }

    /// The same for what ranks do that go on when others fail.
    pub(crate) fn despite_failures(self) -> Waiter<'a> {
        Waiter { steadfast: true, ..self }
    }

    /// The same for a message that goes on beside what its rank does.
    #[inline]
    pub(crate) fn off_record(self) -> Waiter<'a> {
        Waiter { off_record: true, ..self }
    }

    /// Waits for `poll`, which can be made true by the world rank `on` alone (`None`: by any
    /// member).
    #[inline]
    pub(crate) fn until_by<T>(
        &self,
        on: Option<usize>,
        poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        self.waits_on(on);
        self.until(poll)
    }

    /// Says that it waits because the receiver of its message keeps as much as its window allows.
    #[cold]
    pub(crate) fn beyond_window(&self) {
        self.beyond_window.set(true);
    }

    /// The call, with why it waits where that is not plain.
    fn described(&self) -> String {
        let beyond = self.beyond_window.get().then_some(BEYOND_WINDOW);
        format!("{}{}", self.call, beyond.unwrap_or_default())
    }

    /// Says whom the wait is for from now on: a world rank, or any member.
    #[inline]
    pub(crate) fn waits_on(&self, rank: Option<usize>) {
        self.on.set(rank.map_or(Agent::ANY, |rank| rank as u32 + 1));
    }

    /// Says what ends the wait from now on: [`Agent::ACT`], [`Agent::MESSAGE`], [`Agent::DATA`] or
    /// [`Agent::LOCK`].
    #[inline]
    pub(crate) fn ended_by(&self, what: u32) {
        self.ended_by.set(what);
    }

    /// Waits for `poll`, which says by [`Waiter::waits_on`] whom it waits for.
    #[inline]
    pub(crate) fn until<T>(&self, poll: impl FnMut() -> Option<T>) -> Result<T> {
        let endpoint = self.endpoint;
        let mut watching = WaiterHooks { waiter: self, late: || Ok(()) };
        let bell = || endpoint.bell().polled(self.polled || endpoint.world.is_needed());
        wait::until(bell, &endpoint.world.policy, &mut watching, poll)
    }

    /// [`Waiter::until`] on another bell. `late` is called while the wait lasts: it says whom the
    /// wait is for, or what is wrong.
    #[inline]
    pub(crate) fn until_at<'b, T>(
        &self,
        bell: impl Fn() -> Bell<'b>,
        late: impl FnMut() -> Result<()>,
        poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let world = &self.endpoint.world;
        let bell = || if world.is_needed() { bell().polled(true) } else { bell() };
        wait::until(bell, &world.policy, &mut WaiterHooks { waiter: self, late }, poll)
    }

    /// Waits until `gone`, whatever happens: for peers that still use this rank's memory.
    pub(crate) fn until_gone(&self, gone: impl FnMut() -> bool) {
        wait::until_done(self.endpoint.bell(), gone);
    }

    /// The fault that stops this communicator, if there is one.
    #[inline]
    pub(crate) fn stopped(&self) -> Option<Error> {
        let now = self.endpoint.world.faults_seen();
        if now == self.faults_seen.get() { None } else { self.stopped_by(now) }
    }

    #[cold]
    fn stopped_by(&self, now: u32) -> Option<Error> {
        let endpoint = self.endpoint;
        if let Some(fault) = self.verdict() {
            return Some(self.condemned(&fault));
        }
        let found = match self.steadfast {
            true => endpoint.world.fault_of_all(),
            false => endpoint.first_fault(self.scope),
        };
        if found.is_none() {
            self.faults_seen.set(now);
            if !self.steadfast {
                self.scope.faults_seen.set(now);
            }
        }
        found.map(|fault| Error::stopped(fault, self.call))
    }

    /// The verdict that this wait is in a cycle, if another rank has found that. A rank that has
    /// just learnt that others ended asks this first: they may have ended because of it.
    fn verdict(&self) -> Option<Fault> {
        let slot = self.slot.get()??;
        let endpoint = self.endpoint;
        let epoch = endpoint.world.memory.head(endpoint.rank).agents[slot].epoch.load(Relaxed);
        endpoint.verdict_on((endpoint.rank, slot, epoch), self.faults_at_start.get())
    }

    /// Records a fault of this communicator and gives the error of the first one there is.
    pub(crate) fn stop(&self, fault: &Fault) -> Error {
        self.endpoint.stop(self.scope, fault);
        let first = self.endpoint.first_fault(self.scope).filter(|_| !self.steadfast);
        Error::stopped(first.unwrap_or_else(|| fault.clone()), self.call)
    }

    /// The error of a verdict on this wait. Others may have ended because of it, and said so first: that is
    /// no news to this rank.
    fn condemned(&self, fault: &Fault) -> Error {
        self.stop(fault);
        self.endpoint.is_told(fault);
        Error::stopped(fault.clone(), self.call)
    }

    /// Runs code of the program's own. If that panics, the others are stopped; gives what it
    /// panicked with.
    pub(crate) fn guard(&self, operation: impl FnOnce()) -> Option<Box<dyn Any + Send>> {
        let outcome = wait::in_operation(|| catch_unwind(AssertUnwindSafe(operation)));
        let payload = outcome.err()?;
        let cause = Cause::Panicked(panic_text(&*payload));
        self.stop(&Fault::Rank { rank: self.endpoint.rank, cause });
        Some(payload)
    }

    /// Tells the others that this rank gives up with `error`, unless they are stopped already.
    pub(crate) fn give_up(&self, error: &Error) {
        if self.stopped().is_none() {
            // A call that ends because its rank panics is no cause.
            let cause = match panic_under_way() {
                Some(text) => Cause::Panicked(text),
                None => Cause::Returned(error_text(&error.with_causes())),
            };
            self.stop(&Fault::Rank { rank: self.endpoint.rank, cause });
        }
    }

    /// Whether the wait has lasted, so that it is time for checks that cost something.
    #[inline]
    pub(crate) fn lasts(&self) -> bool {
        self.slot.get().is_some()
    }

    /// The rank whose end makes it impossible that the world rank `on` (`None`: any other member)
    /// does what is waited for.
    pub(crate) fn gone(&self, on: Option<usize>) -> Option<usize> {
        let world = &self.endpoint.world;
        let block = self.scope.block;
        let gone = |rank: usize| rank != self.endpoint.rank && world.has_ended(rank, block);
        let Some(rank) = on else {
            let mut others = self.scope.group.iter().filter(|r| *r != self.endpoint.rank);
            // A rank of this process says that it fails before it does. Others may have been
            // killed, and of them each process looks for itself alone.
            let failed = match world.mode {
                Mode::Processes => others.clone().find(|rank| world.has_failed(*rank, block)),
                Mode::Threads | Mode::Virtual => None,
            };
            let first = others.next();
            return failed.or_else(|| first.filter(|_| !self.sees_another()));
        };
        gone(rank).then_some(rank)
    }

    /// Whether nobody can do that but ranks of other processes over MPI, of which this one does not
    /// know whether they have ended.
    pub(crate) fn is_for_elsewhere(&self, on: Option<usize>) -> bool {
        let (world, scope) = (&self.endpoint.world, self.scope);
        let gone = |rank| rank == self.endpoint.rank || world.has_ended(rank, scope.block);
        world.joined
            && match on {
                Some(rank) => !world.local().contains(&rank),
                None => scope.here.len() < scope.group.len() && scope.here.iter().all(gone),
            }
    }

    /// An error if it has waited for longer than it may.
    pub(crate) fn in_time(&self, waited: Duration) -> Result<()> {
        let Some(limit) = self.endpoint.world.timeout.filter(|limit| waited > *limit) else {
            return Ok(());
        };
        let on = self.on.get();
        let waiting_for = match (on as usize).checked_sub(1) {
            Some(rank) if on != Agent::ANY => format!("rank {rank}"),
            _ => "any rank".into(),
        };
        let call = self.described();
        Err(Error::Timeout(Box::new(Timeout { call, waiting_for, limit })))
    }

    /// An error if nobody can do any more what is waited for.
    fn left(&self, on: u32, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        match on {
            0 => Ok(()),
            Agent::ANY => self.give_up_on(None, ready),
            rank => self.give_up_on(Some(rank as usize - 1), ready),
        }
    }

    /// The same for what the world rank `on` is to do.
    pub(crate) fn give_up_on(
        &self,
        on: Option<usize>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let Some(rank) = self.gone(on) else { return Ok(()) };
        let awaited = self.on.get();
        // What it did before it left may have arrived just now, its failure included.
        // Or it was all that was awaited of this rank, and the wait has gone on to another one.
        if ready() || self.on.get() != awaited {
            return Ok(());
        }
        if let Some(error) = self.stopped() {
            return Err(error);
        }
        let waiting = format!("rank {}: {}", self.endpoint.rank, self.described());
        Err(self.stop(&match self.endpoint.world.block_of(rank) < self.scope.block {
            true => Fault::Absent { rank, waiting },
            false => Fault::Left { rank, waiting },
        }))
    }
}

impl Waiter<'_> {
    /// Whether another member is still in the block. The one that was seen last is looked at first:
    /// in a world, by whichever rank.
    fn sees_another(&self) -> bool {
        let (world, scope) = (&self.endpoint.world, self.scope);
        let stays = |index: &usize| {
            let rank = scope.group.world(*index);
            rank != self.endpoint.rank && !world.has_ended(rank, scope.block)
        };
        // In another group than the world, which few ranks leave early, each rank looks for itself.
        if !matches!(scope.group, Group::World(_)) {
            return (0..scope.group.len()).any(|index| stays(&index));
        }
        let seen = world.seen.load(Relaxed);
        let other = (seen..scope.group.len()).chain(0..seen).find(stays);
        if let Some(other) = other {
            world.seen.store(other, Relaxed);
        }
        other.is_some()
    }

    /// A thread, or a task, sleeps from now on.
    fn sleeps(&self) {
        if wait::is_task() {
            self.endpoint.agents.leave_off_record();
            return self.untold.set(true);
        }
        let world = &self.endpoint.world;
        if world.mode == Mode::Virtual {
            world.sleeping_threads.fetch_add(1, SeqCst);
            self.asleep.set(true);
        }
        if let Some(tasks) = self.endpoint.tasks.get()
            && current::with(|rank| rank.is_some_and(|it| it.is_of(self.endpoint)))
        {
            self.leaves_core.set(true);
            tasks.leaves_core();
        }
    }

    /// The wait is over.
    fn is_over(&self) {
        if self.asleep.take() {
            self.endpoint.world.sleeping_threads.fetch_sub(1, SeqCst);
        }
        if self.leaves_core.take() {
            self.endpoint.tasks.get().into_iter().for_each(|tasks| tasks.needs_core());
        }
        self.unrecord();
        if self.untold.take() {
            self.endpoint.agents.is_told();
        }
    }
}

/// The hooks of a wait.
pub(crate) struct WaiterHooks<'w, 'a, L> {
    pub(crate) waiter: &'w Waiter<'a>,
    pub(crate) late: L,
}

impl<L: FnMut() -> Result<()>> WaitHooks for WaiterHooks<'_, '_, L> {
    #[inline]
    fn interrupted(&self) -> Option<Error> {
        self.waiter.stopped()
    }

    fn asleep(&mut self) {
        self.waiter.sleeps();
    }

    fn awake(&mut self) {
        self.waiter.is_over();
    }

    fn calls_went_on(&mut self) {
        self.waiter.unrecord();
    }

    #[inline]
    fn serve(&mut self) -> bool {
        self.waiter.endpoint.serve()
    }

    fn overdue(&mut self, waited: Duration, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        let waiter = self.waiter;
        (self.late)()?;
        if waiter.slot.get().is_none() {
            waiter.record();
        }
        // A sender that waits for room in its ring to this rank must not wait for this wait.
        waiter.endpoint.collect_all();
        if !waiter.steadfast {
            waiter.endpoint.health.check()?;
        }
        waiter.in_time(waited)?;
        let on = waiter.on.get();
        waiter.left(on, ready)?;
        waiter.held_up(on)?;
        let Some(slot) = waiter.confirm(waited, ready) else { return Ok(()) };
        let suspicion = waiter.suspicion.take();
        match waiter.endpoint.search_deadlock(waiter.scope, slot, suspicion) {
            Ok(suspicion) => {
                waiter.suspicion.set(suspicion);
                Ok(())
            }
            // One that it cannot tell to the others now is found again.
            Err(cycle) if !ready() && waiter.endpoint.condemn(&cycle.others, &cycle.fault) => {
                Err(waiter.condemned(&cycle.fault))
            }
            Err(_) => Ok(()),
        }
    }
}
