//! Messages that the thread beside a rank carries out, as rank and thread share them.

use std::cell::{RefCell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use parking_lot::Mutex;

use super::communicator::Comm;
use super::going::Going;
use crate::buffer::ViewMut;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::pooled::Pooled;
use crate::rank::{NO_MESSAGE, Status};
use crate::transport::Transport;
use crate::transport::message::{MatchPattern, UnexpectedMessage};
use crate::transport::shared::posted::Arrivals;
use crate::transport::shared::{Arrived, Endpoint};
use crate::wait::Startable;

/// A buffer of which the thread has a view, and which stays in its place until that is through.
pub(super) struct Kept<B>(UnsafeCell<Option<B>>);

impl<B> Kept<B> {
    pub(super) fn new(buf: B) -> Kept<B> {
        Kept(UnsafeCell::new(Some(buf)))
    }

    /// To have a view of it made.
    ///
    /// # Safety
    /// Nobody else uses it as long as what this gives lives.
    #[expect(clippy::mut_from_ref, reason = "the caller sees to it")]
    pub(super) unsafe fn lent(&self) -> &mut B {
        // SAFETY: nobody else uses it (this function's contract).
        unsafe { &mut *self.0.get() }.as_mut().expect("it is taken after that")
    }

    /// Takes it out, the first time.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub(super) unsafe fn take(&self) -> Option<B> {
        // SAFETY: nobody else uses it (this function's contract).
        unsafe { &mut *self.0.get() }.take()
    }
}

/// How many receives of a rank its thread looks after at a time; more go on in the rank's calls.
pub(super) const RECEIVES: usize = 64;

/// One as a request, and as rank and thread share it.
type GoingReceive = (Pooled<dyn Going>, Arc<ReceiveBeside>);

/// Such receives of an agent.
#[derive(Default)]
pub(super) struct Beside {
    /// Those that may not be over.
    all: RefCell<Vec<GoingReceive>>,
    pub(super) looks: Arc<Looks>,
}

/// How many receives there are, and how often the thread has looked for their messages: for that of
/// one at a time, as each look is for all.
#[derive(Default)]
pub(super) struct Looks {
    receives: AtomicUsize,
    made: AtomicUsize,
}

impl Beside {
    pub(super) fn has_room(&self) -> bool {
        self.looks.receives.load(Relaxed) < RECEIVES
    }

    pub(super) fn add(&self, going: Pooled<dyn Going>, receive: Arc<ReceiveBeside>) {
        self.looks.receives.fetch_add(1, Relaxed);
        self.all.borrow_mut().push((going, receive));
    }

    /// Forgets those that are over. Looks for messages, so that peers do not take the rank for one
    /// that waits for them.
    #[inline]
    pub(super) fn look(&self) {
        if !self.all.borrow().is_empty() {
            self.look_for_all();
        }
    }

    fn look_for_all(&self) {
        let mut all = self.all.borrow_mut();
        let before = all.len();
        all.retain(|(going, _)| !going.is_over());
        self.looks.receives.fetch_sub(before - all.len(), Relaxed);
        if let Some((_, first)) = all.iter().find(|(_, receive)| !receive.has_come()) {
            first.deliver();
        }
        for (_, receive) in &*all {
            receive.goes_on();
        }
    }

    pub(super) fn are_over(&self) -> bool {
        self.all.borrow().iter().all(|(going, _)| going.is_over())
    }

    /// Waits until all are over.
    pub(super) fn finish(&self) {
        let all: Vec<_> = self.all.borrow().iter().map(|(going, _)| going.clone()).collect();
        for going in all {
            // What is wrong is told as of any call that was started.
            let _ = going.until_over();
        }
    }

    /// Takes receives back whose messages have not come.
    pub(super) fn give_up(&self) {
        self.all.borrow().iter().for_each(|(_, receive)| receive.give_up());
    }
}

/// A receive as the rank and its thread see it.
pub(super) struct ReceiveBeside {
    endpoint: Arc<Endpoint>,
    transport: Arc<dyn Transport>,
    looks: Arc<Looks>,
    pattern: MatchPattern,
    /// Where its message comes.
    arrivals: Arc<Arrivals>,
    /// Where nothing comes.
    nobody: Arc<Arrivals>,
    /// Its number among the posted ones; none if its message had come before.
    place: Mutex<Option<u64>>,
    /// It was taken back.
    end: AtomicBool,
    /// Why, if that is an error.
    why: Mutex<Option<Error>>,
    /// The rank is said to act, as this one goes on.
    told: AtomicBool,
    /// Of its message, once that is in the buffer.
    status: Mutex<Option<Status>>,
}

impl ReceiveBeside {
    pub(super) fn new(comm: &Comm, pattern: MatchPattern, looks: &Arc<Looks>) -> ReceiveBeside {
        ReceiveBeside {
            endpoint: comm.endpoint.clone(),
            transport: comm.route.transport.clone(),
            looks: looks.clone(),
            pattern,
            arrivals: Arc::default(),
            nobody: Arc::default(),
            place: Mutex::default(),
            end: AtomicBool::new(false),
            why: Mutex::default(),
            told: AtomicBool::new(false),
            status: Mutex::default(),
        }
    }

    /// Posts it after all others, or has it begin with a message that has come.
    pub(super) fn post(self: &Arc<Self>, come: Option<UnexpectedMessage>) {
        let post = || self.endpoint.post_receive(self.pattern, (&self.arrivals, 0));
        match come.map_or_else(post, Err) {
            Ok(place) => *self.place.lock() = Some(place),
            Err(message) => {
                self.arrivals.give(0, message);
                self.endpoint.bell().ring();
            }
        }
    }

    /// What its message was, once, if it is over and went well.
    pub(super) fn take_status(&self) -> Option<Status> {
        self.status.lock().take()
    }

    pub(super) fn source(&self) -> Option<usize> {
        self.pattern.source
    }

    fn has_come(&self) -> bool {
        self.told.load(Acquire) || self.arrivals.has_some() || self.end.load(Acquire)
    }

    /// Has what has come given to its receives.
    fn deliver(&self) {
        let mut take = |_, _: Arrived<'_>| unreachable!("nobody has posted a receive there");
        let delivered = self.transport.deliver(&self.nobody, &mut take);
        if let Err((from, error)) = delivered
            && (from.is_none() || self.pattern.source.is_none() || from == self.pattern.source)
        {
            self.withdraw(Some(error));
        }
    }

    /// Whether it has its message, or was taken back. From then to its end its rank may act, whatever
    /// else that waits for.
    #[inline]
    fn goes_on(&self) -> bool {
        let come = self.has_come();
        if come && !self.told.load(Acquire) {
            self.tells();
        }
        come
    }

    /// Looks for its message: as [`ReceiveBeside::goes_on`].
    pub(super) fn look(&self) -> bool {
        if !self.has_come() {
            self.deliver();
        }
        self.goes_on()
    }

    fn tells(&self) {
        if !self.told.swap(true, AcqRel) {
            self.endpoint.begins_started();
        }
    }

    /// Takes it back, unless its message has come, or it was taken back before. Whether it has.
    pub(super) fn withdraw(&self, why: Option<Error>) -> bool {
        let Some(place) = *self.place.lock() else { return false };
        let back = self.endpoint.withdraw_receive(&self.pattern, place);
        if back {
            *self.why.lock() = why;
            self.end.store(true, Release);
            self.endpoint.bell().ring();
        }
        back
    }

    /// The same of a rank that has failed.
    pub(super) fn give_up(&self) {
        let why = "the rank has failed, or panics, before a message has come to a receive";
        self.withdraw(Some(Error::argument(why.into())));
    }

    /// Takes the message to its buffer.
    fn carry_out(&self, comm: &Comm, call: &Call<'_>, view: &mut ViewMut<'_>) -> Result<Status> {
        let Some((_, message)) = self.arrivals.take().pop() else {
            return self.why.lock().take().map_or(Ok(NO_MESSAGE), Err);
        };
        if self.place.lock().is_some() {
            self.endpoint.release_posted(&message);
        }
        comm.check_stopped(call)?;
        let arrived = Arrived::from(message);
        self.transport.receives(&arrived)?;
        let waiter = comm.waiter(call)?;
        comm.receive_arrived(arrived, call, view, &waiter)
    }
}

/// A receive on the thread.
pub(super) struct Landing {
    /// As messages use it that go on.
    pub(super) comm: Comm,
    pub(super) call: Call<'static>,
    /// The rank's buffer, which stays where it is until the receive is over.
    pub(super) view: ViewMut<'static>,
    pub(super) receive: Arc<ReceiveBeside>,
}

impl Startable for Landing {
    fn has_turn(&self) -> bool {
        let Looks { receives, made } = &*self.receive.looks;
        let looks = || made.fetch_add(1, Relaxed).is_multiple_of(receives.load(Relaxed).max(1));
        (self.receive.has_come() || looks()) && self.receive.look()
    }

    /// The system has no stack for it: whoever has sent its message is told.
    fn skip(&self) {
        let why = format!("{}: the system has no room for a stack", self.call);
        if let Ok(waiter) = self.comm.waiter(&self.call) {
            waiter.give_up(&Error::argument(why));
        }
        self.receive.endpoint.ends_started();
    }

    fn run(self: Box<Self>) -> Result<()> {
        let Landing { comm, call, mut view, receive } = *self;
        let carry_out = || receive.carry_out(&comm, &call, &mut view);
        // To look at values of the program's own type may panic.
        let received = catch_unwind(AssertUnwindSafe(carry_out));
        receive.endpoint.ends_started();
        let received = received.unwrap_or_else(|payload| resume_unwind(payload));
        *receive.status.lock() = Some(received?);
        Ok(())
    }
}
