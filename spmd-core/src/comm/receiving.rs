//! Receives that go on while their rank does something else.

use std::any::Any;
use std::cell::Cell;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use super::by_host::ReceiveBuffer;
use super::communicator::Comm;
use super::going::{Going, goes};
use super::message::Message;
use super::message_requests::both;
use super::messages::message_call;
use super::outstanding::{Number, Outstanding, Receive, receives};
use super::request::Request;
use super::sending::await_message;
use crate::buffer::BufferMut;
use crate::call::{Call, Form, Kind};
use crate::error::{Error, Result};
use crate::panics::{discard, panic_text, quietly};
use crate::pooled::Pooled;
use crate::rank::{NO_MESSAGE, Status};
use crate::transport::message::{Data, MatchPattern, UnexpectedMessage};
use crate::transport::shared::layout::Agent;
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::{Arrived, Body, Endpoint};
use crate::wait::{self, AgentKey, Completion};

impl Comm {
    /// Starts a receive, whose request gives what `gives` makes of the buffer and of what was
    /// received.
    ///
    /// # Safety
    /// What `buf` borrows lives until it is over.
    #[inline]
    pub(super) unsafe fn start_recv<'a, B: BufferMut + 'a, R: 'a>(
        &self,
        form: Form,
        (mut buf, gives): (B, fn(B, Status) -> R),
        from: (Option<usize>, Option<u32>),
        site: &'static Location<'static>,
    ) -> Result<Request<R>> {
        if !wait::progresses()
            && let Some(status) = self.takes_repeat(&mut buf.erased_mut(), from)
        {
            return Ok(Request::ended(gives(buf, status)));
        }
        // SAFETY: this function's contract.
        unsafe { self.start_any_recv(form, (buf, gives), from, site) }
    }

    /// The same of any receive.
    ///
    /// # Safety
    /// As [`Comm::start_recv`].
    #[inline(never)]
    unsafe fn start_any_recv<'a, B: BufferMut + 'a, R: 'a>(
        &self,
        form: Form,
        (mut buf, gives): (B, fn(B, Status) -> R),
        (source, tag): (Option<usize>, Option<u32>),
        site: &'static Location<'static>,
    ) -> Result<Request<R>> {
        let view = buf.erased_mut();
        let call = message_call(Kind::Recv, view.dtype(), view.len(), source, tag, site);
        let call = call.form(form);
        let mut buf = ReceiveBuffer::new(buf, &call)?;
        let mut view = buf.erased_mut();
        // What has come is for those that were posted before, if they want it; and where none is left
        // that waits, this one may have its message without being posted.
        let before = if wait::progresses() { Outstanding::look_of(self)? } else { None };
        let mut large = None;
        let (pattern, status) = self.carried(&call, || {
            self.check_stopped(&call)?;
            let pattern = self.pattern(&call, source, tag)?;
            if before.is_some() {
                return Ok((pattern, None));
            }
            let Some(arrived) = self.route.transport.take(&pattern)? else {
                return Ok((pattern, None));
            };
            if let Some(status) = self.receive_as_it_is(&arrived, &mut view) {
                return Ok((pattern, Some(status)));
            }
            let Arrived { envelope, body } = arrived;
            match body {
                Body::UnexpectedMessage(data @ Data::There(_)) => {
                    large = Some(UnexpectedMessage::new(envelope, data));
                    Ok((pattern, None))
                }
                body => {
                    let arrived = Arrived { envelope, body };
                    let waiter = self.waiter(&call)?;
                    let status = self.receive_arrived(arrived, &call, &mut view, &waiter)?;
                    Ok((pattern, Some(status)))
                }
            }
        })?;
        if let Some(status) = status {
            // SAFETY: so many elements were received.
            unsafe { buf.land(&call, status.len)? };
            return Ok(Request::ended(gives(buf.into_inner(), status)));
        }
        let outstanding = before.map_or_else(|| Outstanding::of(self), Ok)?;
        // SAFETY: what `buf` borrows lives until the receive is over (this function's contract).
        unsafe { self.post_recv(outstanding.number(), (buf, gives), call, pattern, large) }
    }

    /// Starts the receive of a message that was set aside.
    ///
    /// # Safety
    /// What `buf` borrows lives until it is over.
    pub(super) unsafe fn start_recv_of<'a, B: BufferMut + 'a>(
        &self,
        mut buf: B,
        message: &Message<'_>,
        site: &'static Location<'static>,
    ) -> Result<Request<(B, Status)>> {
        let (view, status) = (buf.erased_mut(), message.status());
        let (source, tag) = (Some(status.source), Some(status.tag));
        let call = message_call(Kind::Recv, view.dtype(), view.len(), source, tag, site);
        let call = call.form(Form::Irecv);
        let buf = ReceiveBuffer::new(buf, &call)?;
        let number = Outstanding::of(self)?.number();
        let taken = self.carried(&call, || self.waiter(&call).and_then(|_| message.take(&call)))?;
        // SAFETY: what `buf` borrows lives until the receive is over (this function's contract).
        unsafe { self.post_recv(number, (buf, both), call, message.pattern(), Some(taken)) }
    }

    /// Has a receive go on, posted after all others, or of a message that has come.
    ///
    /// # Safety
    /// What `buf` borrows lives until it is over.
    unsafe fn post_recv<'a, B: BufferMut + 'a, R: 'a>(
        &self,
        number: Number,
        (mut buf, gives): (ReceiveBuffer<B>, fn(B, Status) -> R),
        call: Call<'static>,
        pattern: MatchPattern,
        come: Option<UnexpectedMessage>,
    ) -> Result<Request<R>> {
        self.beyond.cluster.iter().for_each(|cluster| cluster.has_requests());
        let outstanding = number.outstanding();
        if outstanding.beside.has_room()
            && let Some(helper) = self.thread_for(|| buf.erased_mut().bytes())?
        {
            let outstanding = outstanding.clone();
            drop(number);
            let (to, of) = ((&*helper, &outstanding), (buf, gives));
            // SAFETY: what `buf` borrows lives until the receive is over (this function's contract).
            return unsafe { self.post_recv_beside(to, of, call, pattern, come) };
        }
        let noted = self.note(&call);
        let result = Pooled::new(Cell::new(None));
        let receiving = Pooled::new(Receiving {
            comm: outstanding.comm(self),
            outstanding: Rc::downgrade(outstanding),
            call,
            noted,
            pattern,
            number: number.get(),
            place: Cell::new(None),
            agent: wait::agent(),
            buf: Cell::new(Some(buf)),
            status: Cell::new(NO_MESSAGE),
            gives,
            result: result.clone(),
            failure: Cell::new(None),
            panic: Cell::new(None),
            over: Completion::default(),
            tests: Cell::new(0),
        });
        let (receive, going) = (receives(receiving.clone()), goes(receiving.clone()));
        // SAFETY: the types stay the same but for a lifetime. What `buf` borrows lives until the
        // receive is over (this function's contract); then the buffer is in `result`, which has a
        // type that cannot outlive it, or is gone.
        let (receive, going) = unsafe {
            (
                transmute::<Pooled<dyn Receive + 'a>, Pooled<dyn Receive + 'static>>(receive),
                transmute::<Pooled<dyn Going + 'a>, Pooled<dyn Going + 'static>>(going),
            )
        };
        let outstanding = number.add(receive);
        let come = match come {
            Some(message) => Err(message),
            None => self.endpoint.post_receive(pattern, (&outstanding.arrivals, receiving.number)),
        };
        match come {
            Ok(place) => receiving.place.set(Some(place)),
            Err(message) => outstanding.arrived(receiving.number, Arrived::from(message)),
        }
        outstanding.transfer();
        Ok(Request::going(going, result))
    }
}

/// A receive that goes on.
struct Receiving<B, R> {
    comm: Rc<Comm>,
    outstanding: Weak<Outstanding>,
    call: Call<'static>,
    noted: Noted,
    pattern: MatchPattern,
    /// Its number among the outstanding ones.
    number: usize,
    /// Its number among the posted ones.
    place: Cell<Option<u64>>,
    agent: AgentKey,
    buf: Cell<Option<ReceiveBuffer<B>>>,
    /// Of its message, once that is in the buffer, or on the host.
    status: Cell<Status>,
    gives: fn(B, Status) -> R,
    result: Pooled<Cell<Option<R>>>,
    failure: Cell<Option<Error>>,
    /// With what its buffer has panicked.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    over: Completion,
    /// How many times it was asked for.
    tests: Cell<u32>,
}

impl<B: BufferMut, R> Receiving<B, R> {
    /// Takes it back, unless its message has come. Whether it has.
    fn withdraw(&self) -> bool {
        let Some(place) = self.place.get() else { return false };
        let back =
            !self.over.is_over() && self.comm.endpoint.withdraw_receive(&self.pattern, place);
        if back {
            self.over.complete();
        }
        back
    }

    /// It is over, and was taken back.
    fn withdrawn(&self) {
        if let Some(outstanding) = self.outstanding.upgrade() {
            outstanding.withdrawn(self.number);
        }
    }

    /// What is wrong with what has come, while this is not over.
    fn broken(&self) -> Option<Error> {
        let outstanding = self.outstanding.upgrade()?;
        outstanding.broken(self.pattern.source)
    }

    /// It has failed.
    fn fail(&self, error: Error) {
        self.failure.set(Some(error));
        self.over.complete();
        let buf = self.buf.take();
        quietly(|| drop(buf));
    }

    /// Ends it if no message can come any more, or has not come for too long.
    fn look_for_the_end(&self, waited: Duration) {
        let mut ready = || {
            wait::go_on();
            self.over.is_over()
        };
        let ended = self.comm.waiter(&self.call).and_then(|waiter| {
            waiter.waits_on(self.pattern.source);
            waiter.in_time(waited)?;
            waiter.give_up_on(self.pattern.source, &mut ready)?;
            self.broken().map_or(Ok(()), Err)
        });
        if let Err(error) = ended
            && self.withdraw()
        {
            self.fail(error);
            self.withdrawn();
        }
    }

    fn until_over_on_record(&self) {
        let waiter = Waiter::new(&self.comm.endpoint, &self.comm.scope, &self.call, self.noted);
        let waiter = waiter.polled();
        waiter.ended_by(Agent::MESSAGE);
        let poll = || if self.over.is_over() { Some(Ok(())) } else { self.broken().map(Err) };
        let ended = waiter.until_by(self.pattern.source, poll).and_then(|ended| ended);
        if let Err(error) = ended
            && self.withdraw()
        {
            self.fail(error);
            self.withdrawn();
        }
        wait::until_done(self.comm.endpoint.bell(), || self.over.is_over());
    }
}

/// How many times a program asks whether a receive is over before it is looked whether it can be.
const RARELY: u32 = 64;

impl<B: BufferMut, R> Receive for Receiving<B, R> {
    fn receive(&self, arrived: Arrived<'_>) {
        let mut buf = self.buf.take().expect("a receive gets one message");
        let received = catch_unwind(AssertUnwindSafe(|| {
            let arrived = arrived;
            self.comm.check_stopped(&self.call)?;
            self.comm.route.transport.receives(&arrived)?;
            let mut view = buf.erased_mut();
            if let Some(status) = self.comm.receive_as_it_is(&arrived, &mut view) {
                return Ok(status);
            }
            let waiter = self.comm.waiter(&self.call)?;
            self.comm.receive_arrived(arrived, &self.call, &mut view, &waiter)
        }));
        let received = received.unwrap_or_else(|payload| {
            let why = format!("{}: its buffer panicked: {}", self.call, panic_text(&*payload));
            // Its end may be anything, and what has come may be locked.
            self.panic.set(Some(payload));
            Err(Error::argument(why))
        });
        self.buf.set(Some(buf));
        match received {
            Ok(status) => self.status.set(status),
            Err(error) => self.failure.set(Some(error)),
        }
    }

    fn conclude(&self) {
        self.panic.take().into_iter().for_each(discard);
        let Some(mut buf) = self.buf.take() else { return };
        let (failure, status) = (self.failure.take(), self.status.get());
        // SAFETY: what has no failure has received so many elements.
        let mut land = || unsafe { buf.land(&self.call, status.len) };
        let failure = failure.or_else(|| land().err());
        let failed = failure.is_some();
        self.failure.set(failure);
        match failed {
            true => quietly(|| drop(buf)),
            false => quietly(|| self.result.set(Some((self.gives)(buf.into_inner(), status)))),
        }
        self.over.complete();
    }

    fn give_up_message(&self, error: Error) {
        if let Ok(waiter) = self.comm.waiter(&self.call) {
            waiter.give_up(&error);
        }
        self.fail(error);
    }

    fn is_settled(&self) -> bool {
        let failure = self.failure.take();
        let settled = self.over.is_over() && failure.is_none();
        self.failure.set(failure);
        settled
    }

    fn is_over(&self) -> bool {
        self.over.is_over()
    }

    fn take_failure(&self) -> Option<Error> {
        self.failure.take()
    }

    fn finish(&self) {
        if !self.over.is_over() {
            self.until_over_on_record();
        }
    }

    fn give_up(&self) {
        if self.withdraw() {
            let why = "the rank has failed, or panics, before a message has come";
            self.fail(Error::argument(format!("{}: {why}", self.call)));
            self.withdrawn();
        }
    }
}

impl<B: BufferMut, R> Going for Receiving<B, R> {
    fn completion(&self) -> &Completion {
        &self.over
    }

    fn agent(&self) -> AgentKey {
        self.agent
    }

    fn test(&self) -> bool {
        if !self.over.is_over() {
            wait::go_on();
        }
        let tests = self.tests.replace(self.tests.get().wrapping_add(1));
        if !self.over.is_over() && tests.is_multiple_of(RARELY) {
            self.look_for_the_end(Duration::ZERO);
        }
        self.over.is_over()
    }

    fn test_awaited(&self, waited: Duration) -> bool {
        wait::go_on();
        if !self.over.is_over() {
            self.look_for_the_end(waited);
        }
        self.over.is_over()
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        Some(self.comm.endpoint.clone())
    }

    fn until_over(&self) -> Result<()> {
        if !self.over.is_over() {
            self.check_own()?;
            Receive::finish(self);
        }
        Ok(())
    }

    fn releasers(&self) -> u64 {
        self.comm.scope.context
    }

    fn until_any(&self, alike: bool, over: &dyn Fn() -> bool) -> Result<()> {
        let of = (&*self.comm, &self.call, self.noted);
        if await_message(of, (None, Agent::MESSAGE), alike, over).is_err() {
            // What has ended the wait ends this one, at least.
            self.until_over_on_record();
        }
        Ok(())
    }

    fn failure(&self) -> Result<()> {
        let Some(failure) = self.failure.take() else { return Ok(()) };
        if let Some(outstanding) = self.outstanding.upgrade() {
            outstanding.settle(self.number);
        }
        Err(failure)
    }

    fn is_settled(&self) -> bool {
        Receive::is_settled(self)
    }

    fn end(&self) {
        if std::thread::panicking() {
            self.give_up();
        }
        wait::until_done(self.comm.endpoint.bell(), || self.over.is_over());
    }

    fn cancel(&self) -> bool {
        let back = self.withdraw();
        if back {
            let buf = self.buf.take();
            self.result.set(buf.map(|buf| (self.gives)(buf.into_inner(), NO_MESSAGE)));
            self.withdrawn();
        }
        back
    }

    fn described(&self) -> String {
        self.call.to_string()
    }
}
