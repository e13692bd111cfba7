//! Sends that go on while their rank does something else.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

use super::by_host::SendBuffer;
use super::communicator::Comm;
use super::going::{Going, goes};
use super::messages::message_call;
use super::outstanding::Outstanding;
use super::request::Request;
use super::send_order::SendTurn;
use crate::buffer::{Buffer, View};
use crate::call::{Call, Form, Kind};
use crate::error::{Error, Result};
use crate::pooled::Pooled;
use crate::transport::message::SendMode;
use crate::transport::shared::Endpoint;
use crate::transport::shared::layout::Agent;
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;
use crate::wait::{self, AgentKey, Completion, Startable, StartedHandle};

impl Comm {
    /// Starts a send, whose request gives what `gives` makes of the buffer.
    ///
    /// # Safety
    /// What `buf` borrows lives until it is over.
    #[inline]
    pub(super) unsafe fn start_send<'a, B: Buffer + 'a, R: 'a>(
        &self,
        (kind, form): (Kind, Form),
        (buf, gives): (B, fn(B) -> R),
        (dest, tag): (usize, u32),
        site: &'static Location<'static>,
    ) -> Result<Request<R>> {
        if kind == Kind::Send && self.sends_repeat(&buf.erased(), (dest, tag), site) {
            return Ok(Request::ended(gives(buf)));
        }
        // SAFETY: this function's contract.
        unsafe { self.start_any_send((kind, form), (buf, gives), (dest, tag), site) }
    }

    /// The same of any send.
    ///
    /// # Safety
    /// As [`Comm::start_send`].
    #[inline(never)]
    unsafe fn start_any_send<'a, B: Buffer + 'a, R: 'a>(
        &self,
        (kind, form): (Kind, Form),
        (buf, gives): (B, fn(B) -> R),
        (dest, tag): (usize, u32),
        site: &'static Location<'static>,
    ) -> Result<Request<R>> {
        let mode = match kind {
            Kind::Ssend => SendMode::Synchronous,
            _ => SendMode::Standard,
        };
        let view = buf.erased();
        let call = message_call(kind, view.dtype(), view.len(), Some(dest), Some(tag), site);
        let call = call.form(form);
        let buf = SendBuffer::new(buf, &call)?;
        let view = buf.erased();
        let sends = || self.sends_at_once(&call, &view, (dest, tag), mode);
        if self.carried(&call, sends)? {
            return Ok(Request::ended(gives(buf.into_inner())));
        }
        self.beyond.cluster.iter().for_each(|cluster| cluster.has_requests());
        let (outstanding, noted) = (Outstanding::of(self)?, self.note(&call));
        if self.route.transport.needs_sender(self.scope.group.world(dest))
            && let Some(helper) = self.thread_for(|| view.bytes())?
        {
            let (by, to) = ((&*helper, &outstanding), (dest, tag, mode));
            // SAFETY: what `buf` borrows lives until the send is over (this function's contract).
            return unsafe { self.post_send_beside(by, (buf, gives), (call, noted), to) };
        }
        let (comm, to) = (outstanding.comm(self), self.scope.group.world(dest));
        let turn = self.sends.take_turn(to);
        let result = Pooled::new(Cell::new(None));
        let sending = Sending {
            comm: comm.clone(),
            turn: Cell::new(Some(turn)),
            call: call.clone(),
            mode,
            to: (dest, tag),
            buf,
            gives,
            result: result.clone(),
        };
        // SAFETY: it owns what it uses, but for what `buf` borrows, which lives until it is over
        // (this function's contract).
        let handle = unsafe { wait::start(self.endpoint.bell(), Box::new(sending))? };
        if handle.is_over() {
            handle.result()?;
        }
        let sent = goes(Pooled::new(Sent { comm, call, noted, to, handle }));
        if !sent.is_over() {
            outstanding.sends(sent.clone());
        }
        Ok(Request::going(sent, result))
    }

    /// Waits until all sends to this world rank that go on are on their way: a message does not
    /// overtake those that were sent before it. Not on record: they may be another agent's, which
    /// can act.
    #[cold]
    pub(super) fn after_earlier_sends(&self, to: usize, waiter: &Waiter<'_>) -> Result<()> {
        let waiter = Waiter::new(&self.endpoint, &self.scope, waiter.call, waiter.noted).polled();
        waiter.off_record().until_by(Some(to), || self.sends.is_clear(to).then_some(()))
    }
}

impl Comm {
    /// Makes a send that has its turn, and passes that on.
    pub(super) fn send_in_turn<'a>(
        &self,
        turn: Cell<Option<SendTurn>>,
        call: &Call<'_>,
        ((dest, tag), mode): ((usize, u32), SendMode),
        view: impl FnOnce() -> View<'a>,
    ) -> Result<()> {
        let passes = || {
            if let Some(turn) = turn.take() {
                drop(turn);
                // Another agent may wait for its turn.
                self.endpoint.bell().ring();
            }
        };
        let sent = catch_unwind(AssertUnwindSafe(|| {
            let view = view();
            let waiter = self.waiter(call)?;
            let pending = self.post(&view, view.dtype(), dest, tag, mode, &waiter);
            // The next one may follow.
            passes();
            self.complete(pending?, &waiter)
        }));
        passes();
        sent.unwrap_or_else(|payload| resume_unwind(payload))
    }
}

/// A send that has not begun.
struct Sending<B, R> {
    comm: Rc<Comm>,
    turn: Cell<Option<SendTurn>>,
    call: Call<'static>,
    mode: SendMode,
    to: (usize, u32),
    buf: SendBuffer<B>,
    gives: fn(B) -> R,
    result: Pooled<Cell<Option<R>>>,
}

impl<B: Buffer, R> Startable for Sending<B, R> {
    fn has_turn(&self) -> bool {
        let turn = self.turn.take();
        let come = turn.as_ref().is_none_or(SendTurn::has_come);
        self.turn.set(turn);
        come
    }

    fn skip(&self) {
        drop(self.turn.take());
    }

    fn run(self: Box<Self>) -> Result<()> {
        let Sending { comm, turn, call, mode, to, buf, gives, result } = *self;
        comm.send_in_turn(turn, &call, (to, mode), || buf.erased())?;
        result.set(Some(gives(buf.into_inner())));
        Ok(())
    }
}

/// A send that goes on.
pub(super) struct Sent {
    pub(super) comm: Rc<Comm>,
    pub(super) call: Call<'static>,
    pub(super) noted: Noted,
    /// A world rank.
    pub(super) to: usize,
    pub(super) handle: StartedHandle,
}

/// Waits, as for this message and on record, for what `on` can bring about. An error that ends the
/// wait ends the message, too, unless this gives it.
pub(super) fn await_message(
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
    fn completion(&self) -> &Completion {
        self.handle.completion()
    }

    fn agent(&self) -> AgentKey {
        self.handle.agent()
    }

    fn test(&self) -> bool {
        self.handle.test()
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        Some(self.comm.endpoint.clone())
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

    fn until_any(&self, alike: bool, over: &dyn Fn() -> bool) -> Result<()> {
        let of = (&*self.comm, &self.call, self.noted);
        let waited = await_message(of, (None, Agent::MESSAGE), alike, over);
        if let Err(error @ Error::Argument(_)) = waited {
            return Err(error);
        }
        wait::until_done(self.comm.endpoint.bell(), over);
        Ok(())
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
