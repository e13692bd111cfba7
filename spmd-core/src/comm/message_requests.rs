//! Messages as requests.

use std::cell::Cell;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::communicator::Comm;
use super::going::{Going, check};
use super::messages::{check_place, message_call};
use super::outstanding::{Outstanding, Receive, SendOrder, quietly};
use super::request::Request;
use super::request_scope::RequestScope;
use crate::buffer::{Buffer, BufferMut};
use crate::call::{Call, Form, Kind};
use crate::error::{Error, Result};
use crate::panics::{discard, panic_text};
use crate::rank::{Source, Status, TagOrAny};
use crate::transport::message::{Data, MatchPattern, SendMode, UnexpectedMessage};
use crate::transport::shared::layout::Agent;
use crate::transport::shared::posted::PostedReceive;
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::{Arrived, Body};
use crate::wait::{self, Startable, StartedHandle};

/// Messages that go on while their rank does something else (MPI 5.0 section 3.7), which own their
/// buffers. Messages from one rank to another on a communicator are matched in the order in which
/// they were sent, and with receives in the order in which these were made, whether as requests or
/// not.
impl Comm {
    /// Sends `buf` to `dest`; the request gives it back. A message of up to 8 KiB is gone when this
    /// returns, unless its receiver keeps as many others as it may.
    ///
    /// Errors: as [`Comm::send`], here or from [`Request::wait`].
    ///
    /// ```
    /// # use spmd_core::spmd;
    /// spmd(2, |ctx| {
    ///     let other = 1 - ctx.rank();
    ///     // Both send first, as much as they like.
    ///     let sent = ctx.isend(vec![ctx.rank(); 100_000], other, 0)?;
    ///     let (got, _) = ctx.irecv(vec![9; 100_000], other, 0)?.wait()?;
    ///     assert_eq!(got[0], other);
    ///     sent.wait().map(drop)
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    pub fn isend<B: Buffer + 'static>(&self, buf: B, dest: usize, tag: u32) -> Result<Request<B>> {
        // SAFETY: what it owns lives as long as anybody wants.
        unsafe { self.start_send(Form::Isend, buf, (dest, tag), Location::caller()) }
    }

    /// The same, which is over when the receiver has taken the message, however small it is.
    ///
    /// Errors: as [`Comm::isend`].
    ///
    /// ```
    /// # use spmd_core::spmd;
    /// spmd(2, |ctx| match ctx.rank() {
    ///     0 => ctx.issend([1], 1, 0)?.wait().map(drop),
    ///     _ => ctx.recv(&mut [0], 0, 0).map(drop),
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    pub fn issend<B: Buffer + 'static>(&self, buf: B, dest: usize, tag: u32) -> Result<Request<B>> {
        // SAFETY: what it owns lives as long as anybody wants.
        unsafe { self.start_send(Form::Issend, buf, (dest, tag), Location::caller()) }
    }

    /// Receives a message into `buf`, which may be longer than it; the request gives it back, with
    /// what was received.
    ///
    /// Errors: as [`Comm::recv`], here or from [`Request::wait`].
    ///
    /// ```
    /// # use spmd_core::{spmd, ANY};
    /// spmd(2, |ctx| {
    ///     let request = ctx.irecv([0; 10], ANY, 7)?;
    ///     ctx.send(&[1, 2, 3], 1 - ctx.rank(), 7)?;
    ///     let (got, status) = request.wait()?;
    ///     assert_eq!(got[..status.len()], [1, 2, 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    pub fn irecv<B: BufferMut + 'static>(
        &self,
        buf: B,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Request<(B, Status)>> {
        let from = (source.source(), tag.tag());
        // SAFETY: what it owns lives as long as anybody wants.
        unsafe { self.start_recv(buf, from, Location::caller()) }
    }
}

/// The same of what outlives the scope.
impl<'scope> RequestScope<'scope, '_> {
    /// [`Comm::isend`] of what is borrowed.
    ///
    /// Errors: as [`Comm::isend`].
    ///
    /// ```
    /// # use spmd_core::spmd;
    /// spmd(2, |ctx| {
    ///     let (mine, mut theirs) = ([ctx.rank(); 1000], [9; 1000]);
    ///     ctx.requests(|requests| {
    ///         requests.isend(&mine, 1 - ctx.rank(), 0)?;
    ///         requests.irecv(&mut theirs, 1 - ctx.rank(), 0)?;
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(theirs, [1 - ctx.rank(); 1000]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    pub fn isend<B: Buffer + 'scope>(&self, buf: B, dest: usize, tag: u32) -> Result<Request<B>> {
        let site = Location::caller();
        // SAFETY: what it borrows lives as long as `'scope`, within which `keep` has it end.
        let sent = unsafe { self.comm().start_send(Form::Isend, buf, (dest, tag), site)? };
        Ok(self.keep(sent))
    }

    /// [`Comm::issend`] of what is borrowed.
    ///
    /// Errors: as [`Comm::issend`].
    #[track_caller]
    pub fn issend<B: Buffer + 'scope>(&self, buf: B, dest: usize, tag: u32) -> Result<Request<B>> {
        let site = Location::caller();
        // SAFETY: as for `isend`.
        let sent = unsafe { self.comm().start_send(Form::Issend, buf, (dest, tag), site)? };
        Ok(self.keep(sent))
    }

    /// [`Comm::irecv`] into what is borrowed.
    ///
    /// Errors: as [`Comm::irecv`].
    #[track_caller]
    pub fn irecv<B: BufferMut + 'scope>(
        &self,
        buf: B,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Request<(B, Status)>> {
        let from = (source.source(), tag.tag());
        // SAFETY: as for `isend`.
        let received = unsafe { self.comm().start_recv(buf, from, Location::caller())? };
        Ok(self.keep(received))
    }
}

impl Comm {
    /// Starts a send.
    ///
    /// # Safety
    /// What `buf` borrows lives until it is over.
    unsafe fn start_send<'a, B: Buffer + 'a>(
        &self,
        form: Form,
        buf: B,
        (dest, tag): (usize, u32),
        site: &'static Location<'static>,
    ) -> Result<Request<B>> {
        let (kind, mode) = match form {
            Form::Issend => (Kind::Ssend, SendMode::Synchronous),
            _ => (Kind::Send, SendMode::Standard),
        };
        let view = buf.view();
        let call = message_call(kind, view.dtype(), view.len(), Some(dest), Some(tag), site);
        let call = call.form(form);
        check_place(&call, view.place())?;
        let at_once = self.carried(&call, || {
            let waiter = self.waiter(&call)?;
            self.check_rank(&call, "destination", dest)?;
            let to = self.scope.group.world(dest);
            let at_once = mode == SendMode::Standard
                && self.is_clear(to)
                && self.route.transport.sends_at_once(to, view.bytes())?;
            if at_once {
                let pending = self.post(&view, view.dtype(), dest, tag, mode, &waiter)?;
                self.complete(pending, &waiter)?;
            }
            Ok(at_once)
        })?;
        if at_once {
            return Ok(Request::ended(buf));
        }
        let (outstanding, noted) = (Outstanding::of(self)?, self.note(&call));
        let (comm, to) = (outstanding.comm(self), self.scope.group.world(dest));
        let order = outstanding.order(self, to);
        let turn = order.made.get();
        order.made.set(turn + 1);
        let result = Rc::new(Cell::new(None));
        let sending = Sending {
            comm: comm.clone(),
            order: order.clone(),
            turn,
            call: call.clone(),
            mode,
            to: (dest, tag),
            buf,
            result: result.clone(),
        };
        // SAFETY: it owns what it uses, but for what `buf` borrows, which lives until it is over
        // (this function's contract).
        let handle = unsafe { wait::start(self.endpoint.bell(), Box::new(sending)) };
        let handle = handle.inspect_err(|_| order.made.set(turn))?;
        if handle.is_over() {
            handle.result()?;
        }
        let sent = Rc::new(Sent { comm, call, noted, to, handle });
        if !sent.is_over() {
            outstanding.sends(sent.clone());
        }
        Ok(Request::going(sent, result))
    }

    /// Whether all sends from here to this world rank that go on are on their way.
    fn is_clear(&self, to: usize) -> bool {
        if !wait::progresses() || wait::is_started() {
            return true;
        }
        Outstanding::of(self).map_or(true, |outstanding| outstanding.order(self, to).is_clear())
    }

    /// Waits until they are: a message does not overtake those that were sent before it.
    #[cold]
    pub(super) fn after_earlier_sends(&self, to: usize, waiter: &Waiter<'_>) -> Result<()> {
        if self.is_clear(to) {
            return Ok(());
        }
        let order = Outstanding::of(self)?.order(self, to);
        waiter.until_by(Some(to), || order.is_clear().then_some(()))
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// What `buf` borrows lives until it is over.
    unsafe fn start_recv<'a, B: BufferMut + 'a>(
        &self,
        mut buf: B,
        (source, tag): (Option<usize>, Option<u32>),
        site: &'static Location<'static>,
    ) -> Result<Request<(B, Status)>> {
        let mut view = buf.view_mut();
        let call = message_call(Kind::Recv, view.dtype(), view.len(), source, tag, site);
        let call = call.form(Form::Irecv);
        check_place(&call, view.place())?;
        let mut large = None;
        let (pattern, status) = self.carried(&call, || {
            let waiter = self.waiter(&call)?;
            let pattern = self.pattern(&call, source, tag)?;
            let Some(arrived) = self.route.transport.take(&pattern)? else {
                return Ok((pattern, None));
            };
            let Arrived { envelope, body } = arrived;
            match body {
                Body::UnexpectedMessage(data @ Data::There(_)) => {
                    large = Some(UnexpectedMessage { envelope, data });
                    Ok((pattern, None))
                }
                body => {
                    let arrived = Arrived { envelope, body };
                    let status = self.receive_arrived(arrived, &call, &mut view, &waiter)?;
                    Ok((pattern, Some(status)))
                }
            }
        })?;
        if let Some(status) = status {
            return Ok(Request::ended((buf, status)));
        }
        let (outstanding, noted) = (Outstanding::of(self)?, self.note(&call));
        let number = outstanding.number();
        let (result, posted) = (Rc::default(), PostedReceive::new(&outstanding.arrivals, number));
        let receiving = Rc::new(Receiving {
            comm: outstanding.comm(self),
            outstanding: Rc::downgrade(&outstanding),
            call,
            noted,
            pattern,
            number,
            place: Cell::new(None),
            posted,
            agent: wait::agent(),
            buf: Cell::new(Some(buf)),
            result: Rc::clone(&result),
            failure: Cell::new(None),
            over: Cell::new(false),
            tests: Cell::new(0),
        });
        let (receive, going): (Rc<dyn Receive + 'a>, Rc<dyn Going + 'a>) =
            (receiving.clone(), receiving.clone());
        // SAFETY: the types stay the same but for a lifetime. What `buf` borrows lives until the
        // receive is over (this function's contract); then the buffer is in `result`, which has a
        // type that cannot outlive it, or is gone.
        let (receive, going) = unsafe {
            (
                transmute::<Rc<dyn Receive + 'a>, Rc<dyn Receive + 'static>>(receive),
                transmute::<Rc<dyn Going + 'a>, Rc<dyn Going + 'static>>(going),
            )
        };
        outstanding.add(number, receive);
        let come = match large {
            Some(message) => Err(message),
            None => self.endpoint.post_receive(pattern, &receiving.posted),
        };
        match come {
            Ok(place) => receiving.place.set(Some(place)),
            Err(message) => outstanding.arrived(number, message),
        }
        outstanding.transfer();
        Ok(Request::going(going, result))
    }
}

/// A send that has not begun.
struct Sending<B> {
    comm: Rc<Comm>,
    order: Rc<SendOrder>,
    turn: u64,
    call: Call<'static>,
    mode: SendMode,
    to: (usize, u32),
    buf: B,
    result: Rc<Cell<Option<B>>>,
}

impl<B: Buffer> Startable for Sending<B> {
    fn has_turn(&self) -> bool {
        self.order.posted.get() == self.turn
    }

    fn skip(&self) {
        self.order.posted.set(self.turn + 1);
    }

    fn run(self: Box<Self>) -> Result<()> {
        let Sending { comm, order, turn, call, mode, to: (dest, tag), buf, result } = *self;
        let sent = catch_unwind(AssertUnwindSafe(|| {
            let view = buf.view();
            let waiter = comm.waiter(&call)?;
            let pending = comm.post(&view, view.dtype(), dest, tag, mode, &waiter);
            // The next one may follow.
            order.posted.set(turn + 1);
            comm.complete(pending?, &waiter)
        }));
        order.posted.set(order.posted.get().max(turn + 1));
        sent.unwrap_or_else(|payload| resume_unwind(payload))?;
        result.set(Some(buf));
        Ok(())
    }
}

/// A send that goes on.
struct Sent {
    comm: Rc<Comm>,
    call: Call<'static>,
    noted: Noted,
    /// A world rank.
    to: usize,
    handle: StartedHandle,
}

/// Waits, as for this message and on record, for what `on` can bring about. An error that ends the
/// wait ends the message, too, unless this gives it.
fn await_message(
    (comm, call, noted): (&Comm, &Call<'_>, Noted),
    (on, what): (Option<usize>, u32),
    on_record: bool,
    over: &dyn Fn() -> bool,
) -> Result<()> {
    let waiter = Waiter::new(&comm.endpoint, &comm.scope, call, noted).polled();
    let waiter = if on_record { waiter } else { waiter.off_record() };
    waiter.ended_by(what);
    waiter.until_by(on, || over().then_some(()))
}

impl Going for Sent {
    fn is_over(&self) -> bool {
        self.handle.is_over()
    }

    fn test(&self) -> bool {
        self.handle.test()
    }

    fn check_own(&self) -> Result<()> {
        check(self, self.handle.is_own())
    }

    fn until_over(&self) -> Result<()> {
        self.check_own()?;
        let of = (&*self.comm, &self.call, self.noted);
        let waited = await_message(of, (Some(self.to), Agent::ACT), true, &|| self.is_over());
        // All others end the send, too.
        if let Err(error @ Error::Argument(_)) = waited {
            return Err(error);
        }
        wait::until_done(self.comm.endpoint.bell(), || self.is_over());
        Ok(())
    }

    fn releasers(&self) -> u64 {
        self.comm.scope.context
    }

    fn until_any(&self, alike: bool, over: &dyn Fn() -> bool) {
        let of = (&*self.comm, &self.call, self.noted);
        if await_message(of, (None, Agent::MESSAGE), alike, over).is_err() {
            wait::until_done(self.comm.endpoint.bell(), over);
        }
    }

    fn failure(&self) -> Result<()> {
        self.handle.failure()
    }

    fn is_settled(&self) -> bool {
        self.handle.is_settled()
    }

    fn end(&self) {
        if !self.is_over() && std::thread::panicking() {
            wait::refuse();
        }
        wait::until_done(self.comm.endpoint.bell(), || self.is_over());
    }

    fn described(&self) -> String {
        self.call.to_string()
    }
}

/// A receive that goes on.
struct Receiving<B> {
    comm: Rc<Comm>,
    outstanding: Weak<Outstanding>,
    call: Call<'static>,
    noted: Noted,
    pattern: MatchPattern,
    /// Its number among the outstanding ones.
    number: usize,
    /// Its number among the posted ones.
    place: Cell<Option<u64>>,
    posted: Arc<PostedReceive>,
    agent: wait::AgentKey,
    buf: Cell<Option<B>>,
    result: Rc<Cell<Option<(B, Status)>>>,
    failure: Cell<Option<Error>>,
    over: Cell<bool>,
    /// How many times it was asked for.
    tests: Cell<u32>,
}

impl<B: BufferMut> Receiving<B> {
    /// Takes it back, unless its message has come. Whether it has.
    fn withdraw(&self) -> bool {
        let Some(place) = self.place.get() else { return false };
        let back = !self.over.get() && self.comm.endpoint.withdraw_receive(&self.pattern, place);
        if back {
            self.over.set(true);
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

    /// Ends it if no message can come any more.
    fn look_for_the_end(&self) {
        let mut ready = || {
            wait::go_on();
            self.over.get()
        };
        let ended = self.comm.waiter(&self.call).and_then(|waiter| {
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
        let poll = || if self.over.get() { Some(Ok(())) } else { self.broken().map(Err) };
        let ended = waiter.until_by(self.pattern.source, poll).and_then(|ended| ended);
        if let Err(error) = ended
            && self.withdraw()
        {
            self.fail(error);
            self.withdrawn();
        }
        wait::until_done(self.comm.endpoint.bell(), || self.over.get());
    }
}

/// How many times a program asks whether a receive is over before it is looked whether it can be.
const RARELY: u32 = 64;

impl<B: BufferMut> Receive for Receiving<B> {
    fn receive(&self, message: UnexpectedMessage) {
        let received = catch_unwind(AssertUnwindSafe(|| {
            let mut buf = self.buf.take().expect("a receive gets one message");
            let waiter = self.comm.waiter(&self.call)?;
            let arrived = Arrived::from(message);
            self.comm.route.transport.receives(&arrived)?;
            let mut view = buf.view_mut();
            let status = self.comm.receive_arrived(arrived, &self.call, &mut view, &waiter)?;
            Ok((buf, status))
        }));
        match received {
            Ok(Ok(received)) => self.result.set(Some(received)),
            Ok(Err(error)) => self.failure.set(Some(error)),
            Err(payload) => {
                let why = format!("{}: its buffer panicked: {}", self.call, panic_text(&*payload));
                discard(payload);
                self.failure.set(Some(Error::argument(why)));
            }
        }
        self.over.set(true);
    }

    fn fail(&self, error: Error) {
        self.failure.set(Some(error));
        self.over.set(true);
        let buf = self.buf.take();
        quietly(|| drop(buf));
    }

    fn is_settled(&self) -> bool {
        let failure = self.failure.take();
        let settled = self.over.get() && failure.is_none();
        self.failure.set(failure);
        settled
    }

    fn posted(&self) -> &PostedReceive {
        &self.posted
    }

    fn is_over(&self) -> bool {
        self.over.get()
    }

    fn take_failure(&self) -> Option<Error> {
        self.failure.take()
    }

    fn finish(&self) {
        if !self.over.get() {
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

impl<B: BufferMut> Going for Receiving<B> {
    fn is_over(&self) -> bool {
        self.over.get()
    }

    fn test(&self) -> bool {
        if !self.over.get() {
            wait::go_on();
        }
        let tests = self.tests.replace(self.tests.get().wrapping_add(1));
        if !self.over.get() && tests.is_multiple_of(RARELY) {
            self.look_for_the_end();
        }
        self.over.get()
    }

    fn check_own(&self) -> Result<()> {
        check(self, self.agent == wait::agent())
    }

    fn until_over(&self) -> Result<()> {
        self.check_own()?;
        Receive::finish(self);
        Ok(())
    }

    fn releasers(&self) -> u64 {
        self.comm.scope.context
    }

    fn until_any(&self, alike: bool, over: &dyn Fn() -> bool) {
        let of = (&*self.comm, &self.call, self.noted);
        if await_message(of, (None, Agent::MESSAGE), alike, over).is_err() {
            // What has ended the wait ends this one, at least.
            self.until_over_on_record();
        }
    }

    fn failure(&self) -> Result<()> {
        let failure = self.failure.take();
        if let (Some(outstanding), Some(_)) = (self.outstanding.upgrade(), &failure) {
            outstanding.settle(self.number);
        }
        failure.map_or(Ok(()), Err)
    }

    fn is_settled(&self) -> bool {
        Receive::is_settled(self)
    }

    fn end(&self) {
        if std::thread::panicking() {
            self.give_up();
        }
        wait::until_done(self.comm.endpoint.bell(), || self.over.get());
    }

    fn cancel(&self) -> bool {
        let back = self.withdraw();
        if back {
            let status = Status { source: usize::MAX, tag: 0, len: 0 };
            self.result.set(self.buf.take().map(|buf| (buf, status)));
            self.withdrawn();
        }
        back
    }

    fn described(&self) -> String {
        self.call.to_string()
    }
}
