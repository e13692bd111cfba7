//! Large sends that the thread beside a rank carries out while the rank computes: those of which the
//! data do not get to their receiver without their sender. The buffer stays with the rank, where it does
//! not move until the send is over.

use std::cell::Cell;
use std::mem::transmute;
use std::rc::Rc;

use super::beside::Kept;
use super::by_host::SendBuffer;
use super::communicator::Comm;
use super::going::goes;
use super::outstanding::Outstanding;
use super::request::Request;
use super::send_order::SendTurn;
use super::sending::Sent;
use crate::buffer::{Buffer, View};
use crate::call::Call;
use crate::error::Result;
use crate::panics::quietly;
use crate::pooled::Pooled;
use crate::transport::message::SendMode;
use crate::transport::shared::record::Noted;
use crate::wait::{HelperThread, Startable};

impl Comm {
    /// Hands a send to the thread, after all that were made before.
    ///
    /// Errors: a started call runs here.
    ///
    /// # Safety
    /// What `buf` borrows lives until it is over.
    pub(super) unsafe fn post_send_beside<'a, B: Buffer + 'a, R: 'a>(
        &self,
        (helper, outstanding): (&HelperThread, &Rc<Outstanding>),
        (buf, gives): (SendBuffer<B>, fn(B) -> R),
        (call, noted): (Call<'static>, Noted),
        (dest, tag, mode): (usize, u32, SendMode),
    ) -> Result<Request<R>> {
        let to = self.scope.group.world(dest);
        let buf: Pooled<_> = Pooled::new(Kept::new(buf));
        // SAFETY: nobody else has it yet. The type stays the same but for a lifetime: the buffer stays
        // where it is, and is read alone, until the thread is through with the send, as what the call
        // does at its end alone takes it out. What it borrows lives as long (this function's contract).
        let view = unsafe { transmute::<View<'_>, View<'static>>(buf.lent().erased()) };
        let sending = Sending {
            comm: self.beside(),
            turn: Cell::new(Some(self.sends.take_turn(to))),
            call: call.clone(),
            to: (dest, tag),
            mode,
            view,
        };
        // What comes from elsewhere rings nothing.
        let polled = self.endpoint.world.joined;
        // SAFETY: what it uses is its own, but for the buffer, see above.
        let handle = unsafe { helper.start_call(Box::new(sending), polled)? };
        let result = Pooled::new(Cell::new(None));
        let place = result.clone();
        let end = move |well| {
            // SAFETY: the thread is through with the call, and so with its view.
            let buf = unsafe { buf.take() };
            // Its end, or what becomes of it, may be anything.
            quietly(|| {
                if let Some(buf) = buf.filter(|_| well) {
                    place.set(Some(gives(buf.into_inner())));
                }
            });
            Ok(())
        };
        // SAFETY: what `buf` borrows lives until the send is over (this function's contract); then it
        // is in `result`, which has a type that cannot outlive it, or is gone.
        unsafe { handle.at_end(end) };
        let sent = Sent { comm: outstanding.comm(self), call, noted, to, handle };
        Ok(Request::going(goes(Pooled::new(sent)), result))
    }
}

/// A send on the thread.
struct Sending {
    comm: Comm,
    turn: Cell<Option<SendTurn>>,
    call: Call<'static>,
    to: (usize, u32),
    mode: SendMode,
    view: View<'static>,
}

impl Startable for Sending {
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
        let Sending { comm, turn, call, to, mode, view } = *self;
        comm.send_in_turn(turn, &call, (to, mode), || view)
    }
}
