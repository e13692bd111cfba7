//! What all tasks have: their state, what they need, and who is told of their end.

use std::mem::take;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use spmd_core::internal::{Sleeper, task};

use crate::about::{About, Priority};
use crate::arrivals::{Arrivals, Countdown};
use crate::choice::Either;
use crate::failure::Failure;
use crate::granting;
use crate::graph::Need;
use crate::group::{Group, Pending};
use crate::job::Job;
use crate::placement::Scope;
use crate::pool::Queues;
use crate::remote::errand::Errand;
use crate::request::{Asks, listed};
use crate::turns::{InTurn, Turn};
use crate::watch::Watched;

/// Somebody carries it out, or has.
pub(crate) const BEGUN: u32 = 1;
/// Its outcome is there.
pub(crate) const OVER: u32 = 1 << 1;
/// Somebody is to be told of the end.
pub(crate) const AWAITED: u32 = 1 << 2;
/// Whoever carries it out may give up.
const CANCELLED: u32 = 1 << 3;
/// Nobody has its handle any more.
pub(crate) const DROPPED: u32 = 1 << 4;
/// Nobody will use its value.
pub(crate) const UNUSED: u32 = 1 << 5;
/// Somebody has been told that it failed.
pub(crate) const KNOWN: u32 = 1 << 6;
/// Somebody waits to be the only one who uses its value.
const TAKEN: u32 = 1 << 7;
/// Somebody uses the group of a task that was not over: who ends it waits for that.
pub(crate) const HELD: u32 = 1 << 8;

/// What all tasks have, whatever they do.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Header {
    pub(crate) state: AtomicU32,
    /// Tasks that it needs and that are not over; one more while it is made.
    pub(crate) needs: AtomicU32,
    /// Who uses its value: its handle, and tasks that need it.
    users: AtomicU32,
    awaiting: Mutex<Vec<Awaiting>>,
    /// Why it has no value, once it is over.
    pub(crate) failure: OnceLock<Failure>,
    /// There as long as the task is not over: who waits for all that the group counts has it.
    pub(crate) group: NonNull<Group>,
    site: &'static Location<'static>,
    about: Option<Box<About>>,
}

/// Who is told of the end of a task.
enum Awaiting {
    Sleeper(Arc<Sleeper>),
    /// Where it is known by this number.
    Arrivals(Arc<Arrivals>, usize),
    /// Where it counts as one.
    Countdown(Arc<Countdown>),
    /// A task that needs it.
    Dependent(Arc<dyn Runnable>),
    /// A task whose turn with some data comes after this one's.
    Follower(Arc<dyn Runnable>),
}

/// Something to be carried out.
pub trait Runnable: Pending + InTurn {
    fn header(&self) -> &Header;
    fn job(self: Arc<Self>) -> Job;
}

// SAFETY: the group may be used from any thread, as long as it is there.
unsafe impl Send for Header {}
// SAFETY: as above; all else is.
unsafe impl Sync for Header {}

impl Header {
    /// Of a task that the group counts from now on, and that comes to its end by [`Node`](crate::node::Node).
    #[inline]
    pub(crate) fn new(
        group: &Arc<Group>,
        site: &'static Location<'static>,
        about: Option<Box<About>>,
    ) -> Header {
        group.begins_one();
        let about = if group.watch.is_on() { Some(watched(group, site, about)) } else { about };
        Header::of_rank(group, site, about)
    }

    /// What a rank itself has, of which its parts that others carry out are: no task.
    #[inline]
    pub(crate) fn of_rank(
        group: &Arc<Group>,
        site: &'static Location<'static>,
        about: Option<Box<About>>,
    ) -> Header {
        Header {
            state: AtomicU32::new(0),
            needs: AtomicU32::new(1),
            users: AtomicU32::new(1),
            awaiting: Mutex::default(),
            failure: OnceLock::new(),
            group: NonNull::from(&**group),
            site,
            about,
        }
    }

    /// That of the task that runs here, if one does.
    pub(crate) fn here<'a>() -> Option<&'a Header> {
        // SAFETY: a task says that it runs here by a pointer to its own header, which is there until it
        // is over; whoever uses this is called by it.
        unsafe { task().cast::<Header>().as_ref() }
    }

    /// The group of a task that is not over.
    ///
    /// # Safety
    /// The task is not over as long as what this gives is used: whoever calls this carries it out, or
    /// makes it, or is a rank or task of its group that waits.
    pub(crate) unsafe fn group(&self) -> &Group {
        // SAFETY: it is there until it counts none of its tasks any more.
        unsafe { self.group.as_ref() }
    }

    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.about.as_ref()?.name.as_deref()
    }

    /// The task, with the line that spawned it.
    pub(crate) fn described(&self) -> String {
        let (file, line) = (self.site.file(), self.site.line());
        match self.name() {
            Some(name) => format!("the task {name:?} spawned at {file}:{line}"),
            None => format!("the task spawned at {file}:{line}"),
        }
    }

    /// What is written down of it, if anybody asks for that.
    #[inline]
    pub(crate) fn watched(&self) -> Option<&Watched> {
        self.about.as_ref()?.watched.as_deref()
    }

    /// It comes into a queue.
    #[inline]
    pub(crate) fn is_queued(&self) {
        self.watched().into_iter().for_each(Watched::is_queued);
    }

    pub(crate) fn priority(&self) -> Priority {
        self.about.as_ref().map_or(Priority::Usual, |about| about.priority)
    }

    /// What it asks for, if that is more than one worker.
    pub(crate) fn asks(&self) -> Option<&Arc<Asks>> {
        let about = self.about.as_ref()?;
        about.either.as_ref().and_then(|either| either.asks()).or(about.asks.as_ref())
    }

    /// What there is to choose, if it has code for the host and for GPUs.
    #[inline]
    pub(crate) fn either(&self) -> Option<&Either> {
        self.about.as_ref()?.either.as_deref()
    }

    /// What others with the same code are known by.
    pub(crate) fn known_as(&self) -> String {
        self.name().map_or_else(|| self.site.to_string(), str::to_owned)
    }

    /// Where it, and what it spawns, may run.
    #[inline]
    pub(crate) fn scope(&self) -> Option<&Arc<Scope>> {
        self.about.as_ref()?.scope.as_ref()
    }

    /// Where it runs, and why there, has been chosen.
    pub(crate) fn runs(&self, why: String) {
        let _ = self.about.as_ref().map(|about| about.runs.set(why));
    }

    /// Why it runs where it does.
    pub(crate) fn explained(&self) -> String {
        let chosen = self.about.as_ref().and_then(|about| about.runs.get().cloned());
        let asks = self.asks().map(|asks| match asks.is_granted() {
            true => format!("; it asked for {}, and got {}", asks.request, listed(&asks.granted())),
            false => format!("; it waits for {}", asks.request),
        });
        let place = chosen.unwrap_or_else(|| "on a worker of the rank that spawned it".into());
        format!("{} runs {place}{}", self.described(), asks.unwrap_or_default())
    }

    /// The task, with what it waits for, if that is resources.
    pub(crate) fn described_waiting(&self) -> String {
        let task = self.described();
        match self.asks().filter(|asks| self.needs.load(Acquire) == 0 && !asks.is_granted()) {
            Some(asks) => format!("{task}, which waits for {}", asks.request),
            None => task,
        }
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Acquire) & OVER != 0
    }

    /// Why it has no value, if it is over and has none.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Whether all is there that it needs, and nobody carries it out.
    pub(crate) fn is_ready(&self) -> bool {
        self.needs.load(Acquire) == 0 && self.state.load(Acquire) & BEGUN == 0
    }

    /// Whether whoever carries it out, who calls this, may give up.
    pub(crate) fn is_cancelled(&self) -> bool {
        let is_cancelled = self.state.load(Relaxed) & CANCELLED != 0;
        let called_off = || self.errand().is_some_and(|errand| errand.is_cancelled());
        // SAFETY: it is not over, as it is being carried out.
        is_cancelled || called_off() || unsafe { self.group() }.gives_up()
    }

    fn errand(&self) -> Option<&Arc<Errand>> {
        self.about.as_ref()?.errand.as_ref()
    }

    /// Makes the caller the one who carries it out.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        let begun = self.state.load(Relaxed) & BEGUN != 0;
        !begun && self.state.fetch_or(BEGUN, AcqRel) & BEGUN == 0
    }

    /// It needs one less. Whether that was the last, which nobody counts.
    fn needs_no_other(&self) -> bool {
        let mut needs = self.needs.load(Acquire);
        while needs > 1 {
            match self.needs.compare_exchange_weak(needs, needs - 1, AcqRel, Acquire) {
                Ok(_) => return false,
                Err(now) => needs = now,
            }
        }
        true
    }

    /// What it waits for when it needs nothing else.
    pub(crate) fn turn(&self) -> Option<&Turn> {
        self.about.as_ref()?.turn.as_ref()
    }

    fn await_end(&self, who: Awaiting) -> bool {
        let mut awaiting = self.awaiting.lock();
        let follows = matches!(who, Awaiting::Follower(_));
        awaiting.push(who);
        // Whoever ends it sees that, and then takes the lock; or has ended it before.
        let over = self.state.fetch_or(AWAITED, AcqRel) & OVER != 0;
        let over = over && !(follows && self.gave_up_early());
        if over {
            awaiting.pop();
        }
        !over
    }

    /// Whether it is over although it still needs others, as its scope has given up: those who follow it
    /// by what data they use go on when these are over, too.
    fn gave_up_early(&self) -> bool {
        self.needs.load(Acquire) != 0
    }

    /// Has this one woken at the end of the task; not, if it is over.
    pub(crate) fn wakes(&self, sleeper: &Arc<Sleeper>) -> bool {
        self.await_end(Awaiting::Sleeper(sleeper.clone()))
    }

    /// Has this one told that the task of this number is over; not, if it is.
    pub(crate) fn tells(&self, arrivals: &Arc<Arrivals>, number: usize) -> bool {
        self.await_end(Awaiting::Arrivals(arrivals.clone(), number))
    }

    /// Has this one told of the end of the task; not, if it is over.
    pub(crate) fn counts_for(&self, countdown: &Arc<Countdown>) -> bool {
        self.await_end(Awaiting::Countdown(countdown.clone()))
    }

    pub(crate) fn forget_countdown(&self, countdown: &Arc<Countdown>) {
        let is =
            |who: &Awaiting| matches!(who, Awaiting::Countdown(it) if Arc::ptr_eq(it, countdown));
        self.awaiting.lock().retain(|who| !is(who));
    }

    /// Forgets who waits there.
    pub(crate) fn forget_sleeper(&self, sleeper: &Arc<Sleeper>) {
        let is = |who: &Awaiting| matches!(who, Awaiting::Sleeper(it) if Arc::ptr_eq(it, sleeper));
        self.awaiting.lock().retain(|who| !is(who));
    }

    pub(crate) fn forget_arrivals(&self, arrivals: &Arc<Arrivals>) {
        let is =
            |who: &Awaiting| matches!(who, Awaiting::Arrivals(it, _) if Arc::ptr_eq(it, arrivals));
        self.awaiting.lock().retain(|who| !is(who));
    }

    pub(crate) fn tell_all(&self) {
        let mut awaiting = self.awaiting.lock();
        let mut told = take(&mut *awaiting);
        if self.gave_up_early() {
            let follows = |who: &mut Awaiting| matches!(who, Awaiting::Follower(_));
            awaiting.extend(told.extract_if(.., follows));
        }
        drop(awaiting);
        for who in told {
            match who {
                Awaiting::Sleeper(sleeper) => sleeper.wake(),
                Awaiting::Arrivals(arrivals, number) => arrivals.tell(number),
                Awaiting::Countdown(countdown) => countdown.tell(self.failure().is_some()),
                Awaiting::Dependent(task) => {
                    is_near(task.header(), self);
                    has_one_less(task);
                }
                Awaiting::Follower(task) => has_one_less(task),
            }
        }
    }

    /// Somebody more uses the value.
    pub(crate) fn is_used(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// Waits in this place until nobody else uses the value; not, if nobody does. The task is over.
    pub(crate) fn wakes_when_unshared(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut awaiting = self.awaiting.lock();
        self.state.fetch_or(TAKEN, SeqCst);
        if self.is_unshared() {
            return false;
        }
        awaiting.push(Awaiting::Sleeper(sleeper.clone()));
        true
    }

    /// Whether the caller alone uses the value.
    pub(crate) fn is_unshared(&self) -> bool {
        self.users.load(SeqCst) == 1
    }

    /// One uses the value no more. Whether it is to be freed now, by the caller.
    #[must_use]
    pub(crate) fn is_left(&self) -> bool {
        match self.users.fetch_sub(1, SeqCst) {
            1 => self.state.fetch_or(UNUSED, AcqRel) & OVER != 0,
            2 if self.state.load(SeqCst) & TAKEN != 0 => {
                self.tell_all();
                false
            }
            _ => false,
        }
    }

    /// Nobody has the handle any more, whose end this is. Whether the task was over.
    pub(crate) fn is_dropped(&self) -> bool {
        self.state.fetch_or(DROPPED, AcqRel) & OVER != 0
    }

    /// The same, where nobody but the handle used the value of a task that is not over: who ends it
    /// frees it. Not, if it was over, or others use it.
    pub(crate) fn is_left_early(&self) -> bool {
        // Who else uses it has got it from the handle.
        if self.users.load(Acquire) != 1 {
            return false;
        }
        let state = self.state.load(Relaxed);
        let left = state | DROPPED | UNUSED;
        state & OVER == 0 && self.state.compare_exchange(state, left, AcqRel, Relaxed).is_ok()
    }

    /// Somebody is told that it failed. Whether somebody was before.
    pub(crate) fn is_known(&self) -> bool {
        self.state.fetch_or(KNOWN, AcqRel) & KNOWN != 0
    }

    /// Has it give up, if it asks for that.
    pub(crate) fn cancel(&self) {
        self.state.fetch_or(CANCELLED, AcqRel);
        self.errand().into_iter().for_each(|errand| errand.cancel());
    }
}

/// Has a task carried out that needs no other one any more; `put` puts one that asks for nothing where others
/// find it.
pub(crate) fn put(
    pool: &Arc<Queues>,
    (task, job): (&Header, Job),
    put: fn(&Arc<Queues>, Job, Priority),
) {
    if let Some(either) = task.either() {
        choose(pool, task, either);
    }
    match task.asks().cloned() {
        None => put(pool, job, task.priority()),
        Some(asks) => granting::put(pool, job, asks, task.priority()),
    }
}

/// Chooses where the task runs.
#[cold]
fn choose(pool: &Queues, task: &Header, either: &Either) {
    let (name, gpus) = (task.known_as(), pool.ledger.units("gpu"));
    let why = pool.choices.choose(either, &name, (pool.workers(), &gpus));
    why.into_iter().for_each(|why| task.runs(why));
    // Ended by somebody who gave it up meanwhile.
    if task.is_over() {
        pool.choices.is_over(either, &name);
    }
}

/// The first task, which needs the second, would be near its resources.
fn is_near(dependent: &Header, task: &Header) {
    if let (Some(asks), Some(other)) = (dependent.asks(), task.asks()) {
        asks.is_near(other);
    }
}

/// One of the tasks that this one needs is over: it is carried out after the last.
pub(crate) fn has_one_less(task: Arc<dyn Runnable>) {
    let header = task.header();
    if header.needs_no_other() {
        match header.turn() {
            None => needs_nothing(task),
            Some(_) => Turn::take(task),
        }
    }
}

/// All is known that the task needs, whose group has this pool and is there.
pub(crate) fn is_made(task: Arc<dyn Runnable>, pool: &Arc<Queues>) {
    let header = task.header();
    if !header.needs_no_other() {
        return;
    }
    if header.turn().is_some() {
        return Turn::take(task);
    }
    if header.state.load(Relaxed) & BEGUN == 0 {
        header.is_queued();
    }
    header.needs.store(0, Release);
    // As in `needs_nothing`.
    let state = header.state.fetch_or(0, AcqRel);
    if state & BEGUN == 0 {
        put(pool, (header, task.clone().job()), Queues::put);
    } else if state & OVER != 0 {
        header.tell_all();
    }
}

/// The task is carried out now. It may be over: if its scope has given up.
pub(crate) fn needs_nothing<R: Runnable + ?Sized>(task: Arc<R>) {
    let header = task.header();
    let has_begun = header.state.fetch_or(HELD, AcqRel) & BEGUN != 0;
    // SAFETY: it had not begun, and whoever ends it waits until it is not held any more.
    let pool = (!has_begun).then(|| unsafe { header.group() }.pool.clone());
    if pool.is_some() {
        header.is_queued();
    }
    header.needs.store(0, Release);
    // Whoever ends it sees that, or has before: then those who follow it are told here.
    let is_over = header.state.fetch_and(!HELD, AcqRel) & OVER != 0;
    match pool {
        Some(pool) => {
            put(&pool, (header, task.clone().job()), Queues::release);
        }
        None if is_over => header.tell_all(),
        None => {}
    }
}

/// A task that is being made needs something more, until [`has_one_less`].
pub(crate) fn needs_one_more(task: &dyn Runnable) {
    task.header().needs.fetch_add(1, Relaxed);
}

/// `dependent`, which is being made, needs `task`.
pub(crate) fn depends(dependent: Arc<dyn Runnable>, task: &Header, why: Need) {
    note_need(dependent.header(), task, why);
    needs(dependent, task, Awaiting::Dependent);
}

/// `follower`, which is being made, has its turn with some data, or in a sequence, when `task`, and all whose
/// turn comes before that one's, are over.
pub(crate) fn follows(follower: &Arc<dyn Runnable>, task: &Header, why: Need) {
    note_need(follower.header(), task, why);
    needs(follower.clone(), task, Awaiting::Follower);
}

/// For who looks at them.
fn note_need(needy: &Header, task: &Header, why: Need) {
    if let (Some(task), Some(needy)) = (task.watched(), needy.watched()) {
        needy.needs(task, why);
    }
}

fn needs(needy: Arc<dyn Runnable>, task: &Header, kind: fn(Arc<dyn Runnable>) -> Awaiting) {
    needy.header().needs.fetch_add(1, Relaxed);
    let is_over = !task.await_end(kind(needy.clone()));
    if is_over {
        is_near(needy.header(), task);
        needy.header().needs.fetch_sub(1, AcqRel);
    }
}

/// What is said of a task that somebody watches.
#[cold]
fn watched(
    group: &Group,
    site: &'static Location<'static>,
    about: Option<Box<About>>,
) -> Box<About> {
    let mut about = about.unwrap_or_default();
    about.watched = Some(Box::new(group.watch.watches(about.name.as_deref(), site)));
    about
}
