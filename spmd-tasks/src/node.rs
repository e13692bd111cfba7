//! What a task is made of: its work, then its outcome, and who waits for that.

use std::cell::UnsafeCell;
use std::mem::{replace, take};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use spmd_core::Error;
use spmd_core::internal::{Sleeper, as_task, task};

use crate::about::{About, Priority};
use crate::arrivals::Arrivals;
use crate::failure::Failure;
use crate::granting;
use crate::graph::Need;
use crate::group::{Group, Pending};
use crate::job::{Ask, Job, NO_STACK};
use crate::pool::Queues;
use crate::request::{Asks, listed};
use crate::turns::{InTurn, Turn};
use crate::watch::Watched;

/// Somebody carries it out, or has.
const BEGUN: u32 = 1;
/// Its outcome is there.
const OVER: u32 = 1 << 1;
/// Somebody is to be told of the end.
const AWAITED: u32 = 1 << 2;
/// Whoever carries it out may give up.
const CANCELLED: u32 = 1 << 3;
/// Nobody has its handle any more.
const DROPPED: u32 = 1 << 4;
/// Nobody will use its value.
const UNUSED: u32 = 1 << 5;
/// Somebody has been told that it failed.
const KNOWN: u32 = 1 << 6;
/// Somebody waits to be the only one who uses its value.
const TAKEN: u32 = 1 << 7;
/// Somebody uses the group of a task that was not over: who ends it waits for that.
const HELD: u32 = 1 << 8;

/// What a task does.
pub trait Work: Send {
    type Value: Send;
    fn run(self, task: &Header) -> Result<Self::Value, Failure>;
}

/// What all tasks have, whatever they do.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Header {
    state: AtomicU32,
    /// Tasks that it needs and that are not over; one more while it is made.
    needs: AtomicU32,
    /// Who uses its value: its handle, and tasks that need it.
    users: AtomicU32,
    awaiting: Mutex<Vec<Awaiting>>,
    /// Why it has no value, once it is over.
    failure: OnceLock<Failure>,
    /// There as long as the task is not over: who waits for all that the group counts has it.
    group: NonNull<Group>,
    site: &'static Location<'static>,
    about: Option<Box<About>>,
}

/// Who is told of the end of a task.
enum Awaiting {
    Sleeper(Arc<Sleeper>),
    /// Where it is known by this number.
    Arrivals(Arc<Arrivals>, usize),
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

/// A task with a value of this type.
pub(crate) trait Valued<T>: Runnable {
    /// The outcome. The task is over, and the caller uses its value.
    fn outcome(&self) -> &Result<T, Failure>;
    /// Takes the outcome away.
    ///
    /// # Safety
    /// The task is over, and nobody but the caller uses its value, now or later.
    unsafe fn take(&self) -> Result<T, Failure>;
    /// Frees the value. If that panics, the failure that this is, and of what.
    ///
    /// # Safety
    /// [`Header::is_left`] has told the caller to do this, once.
    unsafe fn free(&self) -> Option<(Failure, String)>;
}

// SAFETY: the group may be used from any thread, as long as it is there.
unsafe impl Send for Header {}
// SAFETY: as above; all else is.
unsafe impl Sync for Header {}

impl Header {
    /// Of a task that the group counts from now on, and that comes to its end by [`Node`].
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

    fn name(&self) -> Option<&str> {
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
    fn watched(&self) -> Option<&Watched> {
        self.about.as_ref()?.watched.as_deref()
    }

    /// It comes into a queue.
    #[inline]
    fn is_queued(&self) {
        self.watched().into_iter().for_each(Watched::is_queued);
    }

    pub(crate) fn priority(&self) -> Priority {
        self.about.as_ref().map_or(Priority::Usual, |about| about.priority)
    }

    /// What it asks for, if that is more than one worker.
    pub(crate) fn asks(&self) -> Option<&Arc<Asks>> {
        self.about.as_ref()?.asks.as_ref()
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
        // SAFETY: it is not over, as it is being carried out.
        self.state.load(Relaxed) & CANCELLED != 0 || unsafe { self.group() }.gives_up()
    }

    /// Makes the caller the one who carries it out.
    #[inline]
    fn begin(&self) -> bool {
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

    fn tell_all(&self) {
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
    }
}

/// A task as those keep it who wait for it or for whom it waits.
///
/// # Safety
/// Once the task is over, its work and its value are freed before its lifetime ends, or never.
pub(crate) unsafe fn unbound<'a>(task: Arc<dyn Runnable + 'a>) -> Arc<dyn Runnable> {
    // SAFETY: the type stays the same but for a lifetime. What has that lifetime, the task's work and value,
    // is gone when it ends (this function's contract), and is used by the task alone and by who has its handle.
    unsafe { std::mem::transmute::<Arc<dyn Runnable + 'a>, Arc<dyn Runnable>>(task) }
}

/// Has a task carried out that needs no other one any more.
fn put(pool: &Arc<Queues>, job: Job, priority: Priority, asks: Option<Arc<Asks>>) {
    match asks {
        None => pool.put(job, priority),
        Some(asks) => granting::put(pool, job, asks, priority),
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

/// All is known that the task needs, whose group has this pool and is there, and asks for nothing.
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
        pool.put(task.job(), Priority::Usual);
    } else if state & OVER != 0 {
        header.tell_all();
    }
}

/// The task is carried out now. It may be over: if its scope has given up.
fn needs_nothing<R: Runnable + ?Sized>(task: Arc<R>) {
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
            let (priority, asks) = (header.priority(), header.asks().cloned());
            put(&pool, task.job(), priority, asks);
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

/// `follower`, which is being made, has its turn with some data when `task`, and all whose turn comes
/// before that one's, are over.
pub(crate) fn follows(follower: &Arc<dyn Runnable>, task: &Header) {
    note_need(follower.header(), task, Need::Data);
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

/// A task.
pub(crate) struct Node<W: Work> {
    header: Header,
    content: UnsafeCell<Content<W>>,
}

enum Content<W: Work> {
    Work(W),
    Outcome(Result<W::Value, Failure>),
    Nothing,
}

// SAFETY: what it does and its value are `Send`. The content is used by one at a time: by who has begun
// the task until that is over, then by those who use the value: shared by reference only where the
// value is `Sync` (the bounds of `Task`), and freed by the last one.
unsafe impl<W: Work> Send for Node<W> {}
// SAFETY: as above.
unsafe impl<W: Work> Sync for Node<W> {}

impl<W: Work> Node<W> {
    pub(crate) fn new(header: Header, work: W) -> Node<W> {
        Node { header, content: UnsafeCell::new(Content::Work(work)) }
    }

    /// All is known that it needs: it is carried out once that is there.
    pub(crate) fn is_made(self: &Arc<Self>, group: &Arc<Group>) {
        let header = &self.header;
        // Alone with itself it needs nothing else.
        if header.needs.load(Acquire) == 1 {
            header.needs.store(0, Release);
        } else if header.needs.fetch_sub(1, AcqRel) != 1 {
            return;
        }
        // What is refused is over.
        if header.state.load(Acquire) & BEGUN != 0 {
            return;
        }
        match group.refusal() {
            None => {
                header.is_queued();
                put(&group.pool, self.clone().job(), header.priority(), header.asks().cloned());
            }
            Some(why) => self.is_refused(why.clone()),
        }
    }

    /// It fails before anybody has begun it.
    fn is_refused(&self, why: Arc<Error>) {
        if self.header.begin() {
            self.ends(Err(Failure::returned(self.header.described(), why)));
        }
    }

    /// It is being made. What it asks for may wait for the end of its scope; what nobody has it cannot
    /// get.
    pub(crate) fn asks(&self, group: &Group, itself: impl FnOnce() -> Arc<dyn Runnable>) {
        let Some(asks) = self.header.asks() else { return };
        match group.pool.lacks(&asks.request).filter(|_| group.refusal().is_none()) {
            Some(why) => self.is_refused(Arc::new(Error::argument(why))),
            None => group.waits(|| itself()),
        }
    }

    /// Has it fail before it does anything, by the one who has begun it.
    fn fail(&self, why: Error) {
        let header = &self.header;
        // SAFETY: the caller has begun it, and nobody else uses the content before it is over.
        let work = unsafe { replace(&mut *self.content.get(), Content::Nothing) };
        let failure = match catch_unwind(AssertUnwindSafe(|| drop(work))) {
            Ok(()) => Failure::returned(header.described(), why),
            Err(panic) => Failure::panicked(header.described(), panic),
        };
        self.ends(Err(failure));
    }

    /// Carries it out, by the one who has begun it.
    fn carry_out(&self) {
        let outcome = match self.header.watched() {
            None => self.outcome_of_work(),
            Some(watched) => self.watched_outcome(watched),
        };
        self.ends(outcome);
    }

    #[cold]
    fn watched_outcome(&self, watched: &Watched) -> Result<W::Value, Failure> {
        let bar = watched.begins(self.header.site, self.header.name());
        let outcome = self.outcome_of_work();
        watched.ends(bar, outcome.as_ref().err());
        outcome
    }

    /// Does its work, by the one who has begun it.
    #[inline]
    fn outcome_of_work(&self) -> Result<W::Value, Failure> {
        let header = &self.header;
        // SAFETY: the caller has begun it, and nobody else uses the content before it is over.
        let content = unsafe { replace(&mut *self.content.get(), Content::Nothing) };
        let Content::Work(work) = content else { unreachable!("a task begins once") };
        if header.is_cancelled() {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(work)));
            let task = header.described();
            Err(dropped.map_or_else(
                |panic| Failure::panicked(task.clone(), panic),
                |()| Failure::cancelled(task.clone()),
            ))
        } else {
            let run = || catch_unwind(AssertUnwindSafe(|| work.run(header)));
            let outcome = as_task((&raw const *header).cast(), run);
            outcome.unwrap_or_else(|panic| Err(Failure::panicked(header.described(), panic)))
        }
    }

    fn ends(&self, outcome: Result<W::Value, Failure>) {
        let header = &self.header;
        if let Err(failure) = &outcome {
            // It is over once.
            let _ = header.failure.set(failure.clone());
            header.watched().into_iter().for_each(|watched| watched.fails(failure));
        }
        // SAFETY: as above; what was there is `Nothing`.
        unsafe { *self.content.get() = Content::Outcome(outcome) };
        let before = header.state.fetch_or(OVER, AcqRel);
        while header.state.load(Acquire) & HELD != 0 {
            std::thread::yield_now();
        }
        if let Some(asks) = header.asks() {
            // Before those that need the task, which may ask for the same.
            // SAFETY: the group counts the task until `ends_one`.
            granting::give_back(&unsafe { header.group() }.pool, asks);
        }
        if let Some(turn) = header.turn() {
            turn.ends(header.failure());
        }
        if before & AWAITED != 0 {
            header.tell_all();
        }
        if let Some(failure) = header.failure()
            && before & (DROPPED | KNOWN) == DROPPED
        {
            // SAFETY: the group counts the task until `ends_one`.
            unsafe { header.group() }.note(failure, header.described());
        }
        if before & UNUSED != 0 {
            // SAFETY: who left last has found that it was not over.
            if let Some((failure, task)) = unsafe { self.free() } {
                // SAFETY: the group counts the task until `ends_one`.
                unsafe { header.group() }.note(&failure, task);
            }
        }
        // SAFETY: it counts the task, once, until this.
        unsafe { Group::ends_one(header.group) };
    }

    /// # Safety
    /// `job` is the address of a task that [`Arc::into_raw`] has given for this, which has not been
    /// asked to run.
    unsafe fn act(job: *const (), ask: Ask) -> *const () {
        if ask == Ask::Group {
            // SAFETY: it is there, as it has not been run.
            return unsafe { &*job.cast::<Node<W>>() }.header.group.as_ptr().cast_const().cast();
        }
        // SAFETY: this function's contract.
        let task = unsafe { Arc::from_raw(job.cast::<Node<W>>()) };
        match ask {
            Ask::Fail if task.header.begin() => task.fail(NO_STACK.into()),
            Ask::Fail => {}
            _ => task.run(),
        }
        null()
    }
}

impl<W: Work> Pending for Node<W> {
    fn run(&self) {
        if self.header.begin() {
            self.carry_out();
        }
    }

    fn is_over(&self) -> bool {
        self.header.is_over()
    }
}

impl<W: Work> InTurn for Node<W> {
    fn turn(&self) -> Option<&Turn> {
        self.header.turn()
    }

    fn has_turn(self: Arc<Self>) {
        needs_nothing(self);
    }
}

impl<W: Work> Runnable for Node<W> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn job(self: Arc<Self>) -> Job {
        // SAFETY: the address is for that function, which is called once.
        unsafe { Job::new(Arc::into_raw(self).cast(), Node::<W>::act) }
    }
}

impl<W: Work> Valued<W::Value> for Node<W> {
    fn outcome(&self) -> &Result<W::Value, Failure> {
        assert!(self.header.is_over(), "a task has an outcome when it is over");
        // SAFETY: it is over, so that nobody writes the content but who takes or frees it: after the
        // last of those who use it, of whom the caller is one.
        match unsafe { &*self.content.get() } {
            Content::Outcome(outcome) => outcome,
            _ => unreachable!("the value is there as long as somebody uses it"),
        }
    }

    unsafe fn take(&self) -> Result<W::Value, Failure> {
        // SAFETY: nobody else uses the content (this function's contract).
        match unsafe { replace(&mut *self.content.get(), Content::Nothing) } {
            Content::Outcome(outcome) => outcome,
            _ => unreachable!("the value is there as long as somebody uses it"),
        }
    }

    unsafe fn free(&self) -> Option<(Failure, String)> {
        // SAFETY: nobody uses the content any more (this function's contract).
        let value = unsafe { replace(&mut *self.content.get(), Content::Nothing) };
        let panic = catch_unwind(AssertUnwindSafe(|| drop(value))).err()?;
        let task = self.header.described();
        Some((Failure::panicked(task.clone(), panic), task))
    }
}
