//! The messages of an agent that go on while it does something else.
//!
//! What comes is given to posted receives by whoever looks (`shared/posted.rs`). The agent that has
//! posted one takes it to its buffer in the next of its waits: a small one at once, one whose data
//! are still with their sender as a started call.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::beside::Beside;
use super::communicator::Comm;
use super::going::Going;
use crate::error::{Error, Result};
use crate::panics::quietly;
use crate::pooled::Pooled;
use crate::transport::Transport;
use crate::transport::message::{Data, UnexpectedMessage};
use crate::transport::shared::posted::Arrivals;
use crate::transport::shared::{Arrived, Body, Endpoint};
use crate::wait::{self, Companion, Startable};

/// A receive that goes on.
pub(super) trait Receive {
    /// Takes its message to its buffer. May wait, in a started call.
    fn receive(&self, arrived: Arrived<'_>);
    /// It is over, once it has its message: it gives what it gives, which may be the end of its
    /// buffer, and that anything.
    fn conclude(&self);
    /// It has failed, with its message in hand: whoever has sent that is told.
    fn give_up_message(&self, error: Error);
    fn is_over(&self) -> bool;
    /// Whether it is over, and nobody has to know more.
    fn is_settled(&self) -> bool;
    /// What went wrong, if nobody knows.
    fn take_failure(&self) -> Option<Error>;
    /// Waits until it is over, on record.
    fn finish(&self);
    /// Takes it back, and fails, if no message has come.
    fn give_up(&self);
}

/// It, as whatever receives.
pub(super) fn receives<'a>(it: Pooled<impl Receive + 'a>) -> Pooled<dyn Receive + 'a> {
    // SAFETY: the same pointer.
    unsafe { it.unsize(|it| it as NonNull<dyn Receive + 'a>) }
}

/// Those of an agent.
pub(super) struct Outstanding {
    endpoint: Arc<Endpoint>,
    transport: Arc<dyn Transport>,
    this: Weak<Outstanding>,
    /// The agent's communicators, as its messages use them.
    comms: RefCell<Vec<Rc<Comm>>>,
    pub(super) arrivals: Arc<Arrivals>,
    /// By number: those that are not over, or have failed without anybody knowing.
    receives: RefCell<Vec<Option<Pooled<dyn Receive>>>>,
    /// Numbers that are not in use.
    free: RefCell<Vec<usize>>,
    /// Receives whose messages have not come.
    awaited: Cell<usize>,
    /// Receives that have their messages, and are to be concluded, in order, with their numbers.
    received: RefCell<VecDeque<(usize, Pooled<dyn Receive>)>>,
    /// Messages whose data are to be taken from their senders.
    large: RefCell<VecDeque<(usize, UnexpectedMessage)>>,
    /// Those that the thread beside the rank carries out.
    pub(super) beside: Beside,
    /// Sends that may not be over.
    sends: RefCell<Vec<Pooled<dyn Going>>>,
    /// What is wrong with what has come, and from where, if that is known.
    broken: Cell<Option<(Option<usize>, Error)>>,
}

impl Outstanding {
    /// That of the agent that runs here, for messages of this communicator.
    ///
    /// Errors: a started call runs here.
    pub(super) fn of(comm: &Comm) -> Result<Rc<Outstanding>> {
        wait::companion(comm.endpoint.bell(), || {
            Rc::new_cyclic(|this| Outstanding {
                endpoint: comm.endpoint.clone(),
                transport: comm.route.transport.clone(),
                this: this.clone(),
                comms: RefCell::default(),
                arrivals: Arc::default(),
                receives: RefCell::default(),
                free: RefCell::default(),
                awaited: Cell::new(0),
                received: RefCell::default(),
                large: RefCell::default(),
                beside: Beside::default(),
                sends: RefCell::default(),
                broken: Cell::default(),
            })
        })
    }

    /// The communicator, as messages use it that go on.
    pub(super) fn comm(&self, comm: &Comm) -> Rc<Comm> {
        let mut comms = self.comms.borrow_mut();
        let known = comms.iter().find(|known| known.scope.context == comm.scope.context);
        known.cloned().unwrap_or_else(|| {
            comms.retain(|known| Rc::strong_count(known) > 1);
            comms.push(Rc::new(comm.beside()));
            comms[comms.len() - 1].clone()
        })
    }

    /// Adds a send.
    pub(super) fn sends(&self, send: Pooled<dyn Going>) {
        let mut sends = self.sends.borrow_mut();
        if sends.len() == sends.capacity() {
            sends.retain(|send| !send.is_over());
        }
        sends.push(send);
    }

    /// Takes what has come to the receives of the agent that runs here; gives them if one still waits
    /// for its message. Of what is over with that, nothing stays.
    ///
    /// Errors: as [`Outstanding::of`].
    pub(super) fn look_of(comm: &Comm) -> Result<Option<Rc<Outstanding>>> {
        let outstanding = Outstanding::of(comm)?;
        outstanding.look();
        if outstanding.awaits() {
            return Ok(Some(outstanding));
        }
        if Companion::is_settled(&*outstanding) {
            drop(outstanding);
            wait::settle();
        }
        Ok(None)
    }

    /// A number for one more receive.
    pub(super) fn number(self: Rc<Self>) -> Number {
        let free = self.free.borrow_mut().pop();
        let number = free.unwrap_or_else(|| {
            let mut receives = self.receives.borrow_mut();
            receives.push(None);
            receives.len() - 1
        });
        Number { outstanding: self, number }
    }

    /// Takes a message that has come to a receive.
    pub(super) fn arrived(&self, number: usize, arrived: Arrived<'_>) {
        self.take(number, arrived);
        self.conclude();
    }

    /// Takes a message to its receive, which is then to be concluded. Calls nothing that may lock
    /// what has come to this rank: of that it may be a part.
    fn take(&self, number: usize, arrived: Arrived<'_>) {
        let Some(receive) = self.receives.borrow()[number].clone() else { return };
        self.awaited.set(self.awaited.get() - 1);
        match arrived {
            Arrived { envelope, body: Body::UnexpectedMessage(data @ Data::There(_)) } => {
                let message = UnexpectedMessage::new(envelope, data);
                self.large.borrow_mut().push_back((number, message));
            }
            arrived => {
                receive.receive(arrived);
                self.received.borrow_mut().push_back((number, receive));
            }
        }
    }

    /// Concludes the receives that have their messages. The end of one may wait for another one.
    #[inline]
    fn conclude(&self) {
        loop {
            let Some((number, receive)) = self.received.borrow_mut().pop_front() else { break };
            receive.conclude();
            drop(receive);
            self.settle(number);
        }
    }

    /// A receive has been taken back.
    pub(super) fn withdrawn(&self, number: usize) {
        self.awaited.set(self.awaited.get() - 1);
        self.settle(number);
    }

    /// Forgets a receive that is over, and of which nobody has to know more.
    pub(super) fn settle(&self, number: usize) {
        let mut receives = self.receives.borrow_mut();
        if receives[number].as_ref().is_some_and(|receive| receive.is_settled()) {
            let gone = receives[number].take();
            drop(receives);
            self.free.borrow_mut().push(number);
            quietly(|| drop(gone));
        }
    }

    /// What is wrong with what has come from this source, or any, for who waits for that.
    pub(super) fn broken(&self, source: Option<usize>) -> Option<Error> {
        let broken = self.broken.take();
        let concerns = |from: Option<usize>| from.is_none() || source.is_none() || from == source;
        match broken {
            Some((from, error)) if concerns(from) => Some(error),
            other => {
                self.broken.set(other);
                None
            }
        }
    }

    /// Whether a receive waits for its message.
    #[inline]
    pub(super) fn awaits(&self) -> bool {
        self.awaited.get() > 0
    }

    /// Takes what has come to its receives. Whether something has.
    pub(super) fn look(&self) -> bool {
        let mut came = !self.received.borrow().is_empty();
        self.conclude();
        if !self.awaits() {
            return came;
        }
        came |= self.take_arrived();
        let delivered = self.transport.deliver(&self.arrivals, &mut |number, arrived| {
            self.take(number, arrived);
            came = true;
        });
        self.conclude();
        if let Err(broken) = delivered {
            self.broken.set(Some(broken));
        }
        came | self.take_arrived()
    }

    /// Takes what was given to its receives by whoever looked. Whether something was.
    #[inline]
    fn take_arrived(&self) -> bool {
        self.arrivals.has_some() && self.take_all_arrived()
    }

    fn take_all_arrived(&self) -> bool {
        let arrived = self.arrivals.take();
        let came = !arrived.is_empty();
        for (number, message) in arrived {
            self.endpoint.release_posted(&message);
            self.take(number, Arrived::from(message));
        }
        self.conclude();
        came
    }

    /// Begins to take data from senders. Whether it has.
    pub(super) fn transfer(&self) -> bool {
        let mut begun = false;
        loop {
            let Some((number, message)) = self.large.borrow_mut().pop_front() else { break };
            let its = || self.receives.borrow()[number].clone();
            let (Some(outstanding), Some(receive)) = (self.this.upgrade(), its()) else { continue };
            let transfer = Transfer { outstanding, receive, number, message };
            // SAFETY: it owns what it uses, but for the receive's buffer, which lives until that is
            // over: when the transfer is, as nothing else ends it then.
            let started = unsafe { wait::start(self.endpoint.bell(), Box::new(transfer)) };
            if let (Err(error), Some(receive)) = (started, its()) {
                receive.give_up_message(error);
            }
            begun = true;
        }
        begun
    }

    fn each(&self, mut look: impl FnMut(&dyn Receive)) {
        let all: Vec<_> = self.receives.borrow().iter().flatten().cloned().collect();
        for receive in all {
            look(&*receive);
            quietly(|| drop(receive));
        }
    }
}

/// A number for a receive that may be added: until then something is left of those of its agent.
pub(super) struct Number {
    outstanding: Rc<Outstanding>,
    number: usize,
}

impl Number {
    #[inline]
    pub(super) fn outstanding(&self) -> &Rc<Outstanding> {
        &self.outstanding
    }

    pub(super) fn get(&self) -> usize {
        self.number
    }

    /// Adds the receive that has this number; gives those that it belongs to.
    pub(super) fn add(self, receive: Pooled<dyn Receive>) -> Rc<Outstanding> {
        let outstanding = self.outstanding.clone();
        outstanding.receives.borrow_mut()[self.number] = Some(receive);
        outstanding.awaited.set(outstanding.awaited.get() + 1);
        outstanding
    }
}

impl Drop for Number {
    /// It is free, unless a receive has it.
    fn drop(&mut self) {
        if self.outstanding.receives.borrow()[self.number].is_none() {
            self.outstanding.free.borrow_mut().push(self.number);
        }
    }
}

impl Companion for Outstanding {
    fn go_on(&self) -> bool {
        self.beside.look();
        let came = self.look();
        self.transfer() || came
    }

    fn is_settled(&self) -> bool {
        self.free.borrow().len() == self.receives.borrow().len()
            && self.beside.are_over()
            && self.sends.borrow().iter().all(|send| send.is_over())
    }

    fn is_over(&self) -> bool {
        self.receives.borrow().iter().flatten().all(|receive| receive.is_over())
    }

    fn take_failure(&self) -> Option<Error> {
        let mut first = None;
        self.each(|receive| first = first.take().or(receive.take_failure()));
        let all = self.receives.borrow().len();
        (0..all).for_each(|number| self.settle(number));
        first
    }

    fn finish(&self) {
        self.each(|receive| receive.finish());
        self.beside.finish();
        let sends = self.sends.borrow().clone();
        for send in sends {
            // What is wrong is told as of any call that was started.
            let _ = send.until_over();
        }
    }

    fn give_up(&self) {
        self.each(|receive| receive.give_up());
        self.beside.give_up();
    }

    fn bell(&self) -> (usize, bool) {
        (self.endpoint.bell().place(), self.endpoint.world.joined)
    }
}

/// A message whose data are taken from their sender.
struct Transfer {
    outstanding: Rc<Outstanding>,
    receive: Pooled<dyn Receive>,
    number: usize,
    message: UnexpectedMessage,
}

impl Startable for Transfer {
    fn has_turn(&self) -> bool {
        true
    }

    fn skip(&self) {}

    fn run(self: Box<Self>) -> Result<()> {
        let Transfer { outstanding, receive, number, message } = *self;
        receive.receive(Arrived::from(message));
        receive.conclude();
        drop(receive);
        outstanding.settle(number);
        Ok(())
    }
}
