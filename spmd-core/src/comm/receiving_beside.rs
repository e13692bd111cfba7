//! Large receives that the thread beside a rank carries out while the rank computes.
//!
//! The rank posts the receive, so that it has its place among those that are made before and after.
//! Its thread looks for the message, and takes that to the buffer, of which it has a view. The buffer
//! itself stays with the rank, in one place until the receive is over. Until its message has come, the
//! rank can take it back.

use std::cell::Cell;
use std::mem::transmute;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::beside::{Kept, Landing, ReceiveBeside};
use super::by_host::ReceiveBuffer;
use super::communicator::Comm;
use super::going::{Going, goes};
use super::outstanding::Outstanding;
use super::request::Request;
use super::sending::await_message;
use crate::buffer::{BufferMut, ViewMut};
use crate::call::Call;
use crate::error::Result;
use crate::panics::quietly;
use crate::pooled::Pooled;
use crate::progress::Progress;
use crate::rank::Status;
use crate::transport::message::{MatchPattern, UnexpectedMessage};
use crate::transport::shared::layout::Agent;
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::{EAGER, Endpoint};
use crate::wait::{self, AgentKey, Completion, HelperThread, StartedHandle};

impl Comm {
    /// The thread that is to carry out messages of so many bytes, if one is to.
    ///
    /// Errors: the system refuses a thread.
    #[inline]
    pub(super) fn thread_for(
        &self,
        bytes: impl FnOnce() -> usize,
    ) -> Result<Option<Arc<HelperThread>>> {
        let asked = self.endpoint.world.policy.progress == Progress::Thread;
        // A small one needs nobody on its way, and takes no time.
        if asked && bytes() > EAGER { self.endpoint.helper() } else { Ok(None) }
    }

    /// Posts a receive after all others, or begins with a message that has come, which the thread
    /// carries out.
    ///
    /// Errors: a started call runs here.
    ///
    /// # Safety
    /// What `buf` borrows lives until it is over.
    pub(super) unsafe fn post_recv_beside<'a, B: BufferMut + 'a, R: 'a>(
        &self,
        (helper, outstanding): (&HelperThread, &Rc<Outstanding>),
        (buf, gives): (ReceiveBuffer<B>, fn(B, Status) -> R),
        call: Call<'static>,
        pattern: MatchPattern,
        come: Option<UnexpectedMessage>,
    ) -> Result<Request<R>> {
        let noted = self.note(&call);
        let receive = Arc::new(ReceiveBeside::new(self, pattern, &outstanding.beside.looks));
        let buf: Pooled<_> = Pooled::new(Kept::new(buf));
        // SAFETY: nobody else has it yet. The type stays the same but for a lifetime: the buffer stays
        // where it is, and nobody uses it, until the thread is through with the receive, as what the
        // call does at its end alone takes it out. What it borrows lives as long (this function's
        // contract).
        let view = unsafe { transmute::<ViewMut<'_>, ViewMut<'static>>(buf.lent().erased_mut()) };
        let landing =
            Landing { comm: self.beside(), call: call.clone(), view, receive: receive.clone() };
        // What may come from elsewhere rings nothing.
        let polled = self.endpoint.world.joined;
        // SAFETY: what it uses is its own, but for the buffer, see above.
        let handle = unsafe { helper.start_call(Box::new(landing), polled)? };
        let result = Pooled::new(Cell::new(None));
        let (place, ended, of) = (result.clone(), receive.clone(), call.clone());
        let end = move |_| {
            // SAFETY: the thread is through with the call, and so with its view.
            let buf = unsafe { buf.take() };
            let mut landed = Ok(());
            // Its end, or what becomes of it, may be anything.
            quietly(|| {
                if let (Some(mut buf), Some(status)) = (buf, ended.take_status()) {
                    // SAFETY: the thread has received so many elements.
                    landed = unsafe { buf.land(&of, status.len) };
                    if landed.is_ok() {
                        place.set(Some(gives(buf.into_inner(), status)));
                    }
                }
            });
            landed
        };
        // SAFETY: what `buf` borrows lives until the receive is over (this function's contract); then
        // it is in `result`, which has a type that cannot outlive it, or is gone.
        unsafe { handle.at_end(end) };
        receive.post(come);
        let (comm, tests) = (outstanding.comm(self), Cell::new(0));
        let going = Receiving { comm, call, noted, receive: receive.clone(), handle, tests };
        let going = goes(Pooled::new(going));
        outstanding.beside.add(going.clone(), receive);
        Ok(Request::going(going, result))
    }
}

/// Such a receive, as the rank has it.
struct Receiving {
    comm: Rc<Comm>,
    call: Call<'static>,
    noted: Noted,
    receive: Arc<ReceiveBeside>,
    handle: StartedHandle,
    /// How many times it was asked for.
    tests: Cell<u32>,
}

/// How many times a program asks whether a receive is over before it is looked whether it can be.
const RARELY: u32 = 64;

impl Receiving {
    /// Takes it back if no message can come any more, or has not come for too long.
    fn look_for_the_end(&self, waited: Duration) {
        let mut ready = || {
            wait::go_on();
            self.is_over() || self.receive.look()
        };
        let source = self.receive.source();
        let ended = self.comm.waiter(&self.call).and_then(|waiter| {
            waiter.waits_on(source);
            waiter.in_time(waited)?;
            waiter.give_up_on(source, &mut ready)
        });
        if let Err(error) = ended {
            self.receive.withdraw(Some(error));
        }
    }
}

impl Going for Receiving {
    fn completion(&self) -> &Completion {
        self.handle.completion()
    }

    fn agent(&self) -> AgentKey {
        self.handle.agent()
    }

    fn test(&self) -> bool {
        let tests = self.tests.replace(self.tests.get().wrapping_add(1));
        if !self.handle.test() && tests.is_multiple_of(RARELY) {
            self.look_for_the_end(Duration::ZERO);
        }
        self.is_over()
    }

    fn test_awaited(&self, waited: Duration) -> bool {
        if !self.handle.test() {
            self.look_for_the_end(waited);
        }
        self.is_over()
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        Some(self.comm.endpoint.clone())
    }

    fn until_over(&self) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        self.check_own()?;
        let waiter = Waiter::new(&self.comm.endpoint, &self.comm.scope, &self.call, self.noted);
        let waiter = waiter.polled();
        waiter.ended_by(Agent::MESSAGE);
        let goes_on = || (self.is_over() || self.receive.look()).then_some(());
        if let Err(error) = waiter.until_by(self.receive.source(), goes_on) {
            self.receive.withdraw(Some(error));
        }
        wait::until_done(self.comm.endpoint.bell(), || self.is_over());
        Ok(())
    }

    fn releasers(&self) -> u64 {
        self.comm.scope.context
    }

    fn until_any(&self, alike: bool, over: &dyn Fn() -> bool) -> Result<()> {
        let of = (&*self.comm, &self.call, self.noted);
        if await_message(of, (None, Agent::MESSAGE), alike, over).is_err() {
            // What has ended the wait ends this one, at least.
            self.until_over()?;
        }
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
            self.receive.give_up();
            wait::refuse();
        }
        wait::until_done(self.comm.endpoint.bell(), || self.is_over());
    }

    fn cancel(&self) -> bool {
        !self.is_over() && self.receive.withdraw(None)
    }

    fn described(&self) -> String {
        self.call.to_string()
    }
}
