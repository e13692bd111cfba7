//! Persistent calls: what does not change from one call to the next is settled once.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::replace;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use super::communicator::Comm;
use super::internals::Internals;
use super::request::Request;
use crate::buffer::{Buffer, BufferMut, View, ViewMut};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::rank::Status;
use crate::transport::shared::collective::Round;
use crate::transport::shared::collective::split::{Begun, Seat};
#[cfg(doc)]
use crate::transport::shared::layout::PAYLOAD;
use crate::transport::shared::record::Noted;

/// A call that is made again and again with the same arguments (MPI 5.0 sections 3.9 and 6.13):
/// [`Persistent::start`], something else, [`Persistent::wait`]. It has its buffers; between the calls
/// they can be read and written.
///
/// A collective has a communicator of its own, so that all ranks may start theirs in any order. Each
/// start is one call: the ranks start it as often. A message ([`Comm::send_init`],
/// [`Comm::recv_init`]) is one of the communicator that it was made on, and each start is a message
/// as [`Comm::isend`] and [`Comm::irecv`] are. Dropped while it goes on, either goes on all the same,
/// as a [`Request`] does.
///
/// ```
/// use spmd::prelude::*;
///
/// fn sums(mut call: Persistent<(Vec<f64>, Vec<f64>)>, turns: usize) -> Result<f64> {
///     for turn in 0..turns {
///         call.send_mut()?[0] = turn as f64;
///         call.start()?;
///         // Something else meanwhile.
///         call.wait()?;
///     }
///     Ok(call.recv()?[0])
/// }
/// ```
pub struct Persistent<B> {
    state: State,
    /// What the last one has received.
    status: Option<Status>,
    /// A call has them that goes on, and else this.
    buffers: Arc<UnsafeCell<B>>,
    start: Box<Start<B>>,
    /// If it goes in two steps.
    steps: Option<Steps<B>>,
    call: Call<'static>,
    noted: Noted,
    comm: Rc<Comm>,
}

enum State {
    Rests,
    /// It has made its first step.
    Begun(Begun),
    Goes(Request<Option<Status>>),
}

/// Starts the call with these buffers, for whoever is at this source line: what it gives, it has
/// received.
type Start<B> =
    dyn Fn(&Comm, Lent<B>, &'static Location<'static>) -> Result<Request<Option<Status>>>;

/// The buffers of a persistent call that goes on: nobody else has them.
pub(super) struct Lent<B>(Arc<UnsafeCell<B>>);

// SAFETY: the cell is shared with the `Persistent` that has lent it, which does not look into it
// until the call that has this is over (`Lent::get`), as it sees by an acquire. Whoever is the last to
// drop it drops the buffers, which may be sent.
unsafe impl<B: Send> Send for Lent<B> {}

impl<B> Lent<B> {
    fn get(&self) -> &B {
        // SAFETY: the `Persistent` that has lent them uses them again, or lends them again, when the
        // call is over that has this. Until then this has them, which is borrowed.
        unsafe { &*self.0.get() }
    }

    fn get_mut(&mut self) -> &mut B {
        // SAFETY: as for `get`; this is borrowed exclusively.
        unsafe { &mut *self.0.get() }
    }
}

// SAFETY: the view is that of the buffer, which nobody else has.
unsafe impl<B: Buffer> Buffer for Lent<B> {
    type Elem = B::Elem;

    fn erased(&self) -> View<'_> {
        self.get().erased()
    }
}

// SAFETY: as above.
unsafe impl<B: BufferMut> BufferMut for Lent<B> {
    fn erased_mut(&mut self) -> ViewMut<'_> {
        self.get_mut().erased_mut()
    }
}

type Show<B> = dyn Fn(&B) -> Result<Shown<'_>>;
type Take<B> = dyn Fn(&Round<'_>, &mut B) -> Result<()>;

/// A call in which all ranks show something, meet once, and take what the others have shown.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Steps<B> {
    /// What this rank shows: its payload.
    ///
    /// Errors: the buffers are not such any more as it was made for.
    pub show: Box<Show<B>>,
    /// Reads the payloads of all ranks.
    pub take: Box<Take<B>>,
}

/// Bytes that a rank shows, at most [`PAYLOAD`].
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub enum Shown<'a> {
    /// Those of a buffer.
    There(&'a [u8]),
    /// Those of one with gaps, packed.
    Packed(Vec<u8>),
}

impl<B> fmt::Debug for Persistent<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let going = !matches!(self.state, State::Rests);
        f.debug_struct("Persistent").field("goes_on", &going).finish_non_exhaustive()
    }
}

impl Internals<'_> {
    /// Makes a persistent call on a communicator that nobody else has: by `body`, or, of few ranks
    /// whom the arena serves, in two steps.
    ///
    /// All ranks make it alike, with steps or without. Errors: those of the arguments, which `body`
    /// has looked at.
    pub fn persistent<B: Send + 'static>(
        comm: Comm,
        call: Call<'static>,
        mut buffers: B,
        steps: Option<Steps<B>>,
        body: impl Fn(&Comm, &mut B) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Persistent<B>> {
        body(&comm.only_checking(), &mut buffers)?;
        comm.hierarchy.iter().for_each(|hierarchy| hierarchy.repeat());
        let few = (2..=comm.internals().flat_limit()).contains(&comm.size());
        let arena = few && comm.hierarchy.is_none() && comm.offload.is_none();
        let steps = steps.filter(|_| arena && comm.route.plain);
        let (body, its) = (Arc::new(body), call.clone());
        let start = move |comm: &Comm, mut lent: Lent<B>, _: &'static Location<'static>| {
            let body = body.clone();
            let body = move |comm: &Comm| body(comm, lent.get_mut()).map(|()| None);
            // SAFETY: what the body uses lives as long as itself.
            unsafe { Request::start(comm, its.clone(), body) }
        };
        Ok(Persistent::new(Rc::new(comm), call, buffers, steps, start))
    }
}

impl<B> Persistent<B> {
    pub(super) fn new(
        comm: Rc<Comm>,
        call: Call<'static>,
        buffers: B,
        steps: Option<Steps<B>>,
        start: impl Fn(&Comm, Lent<B>, &'static Location<'static>) -> Result<Request<Option<Status>>>
        + 'static,
    ) -> Persistent<B> {
        let (buffers, start) = (Arc::new(UnsafeCell::new(buffers)), Box::new(start));
        let (state, status, noted) = (State::Rests, None, comm.note(&call));
        Persistent { state, status, buffers, start, steps, call, noted, comm }
    }
}

impl<B: 'static> Persistent<B> {
    /// Starts the call. All ranks start theirs of a collective, as often; of a message, its sender
    /// and its receiver. To start several is to start one after the other (`MPI_Startall`).
    ///
    /// Errors: it goes on already; what is known at once of the call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn again<B: 'static>(call: &mut Persistent<B>) -> Result<()> {
    ///     call.start()?;
    ///     call.wait()
    /// }
    /// ```
    #[inline]
    #[track_caller]
    pub fn start(&mut self) -> Result<()> {
        let State::Rests = self.state else { return Err(self.goes_on()) };
        self.status = None;
        if let Some(steps) = &self.steps {
            let shown = (steps.show)(self.buffers())?;
            let shown = match &shown {
                Shown::There(bytes) => bytes,
                Shown::Packed(bytes) => &bytes[..],
            };
            let _entered = self.comm.user.enter(&self.call)?;
            self.comm.endpoint.acts();
            let begun = self.seat().begin(shown)?;
            self.state = State::Begun(begun);
            return Ok(());
        }
        let lent = Lent(self.buffers.clone());
        let request = (self.start)(&self.comm, lent, Location::caller())?;
        self.state = State::Goes(request);
        Ok(())
    }

    /// Waits until the call that was started is over; at once, if none was. A panic of an operation
    /// goes on here.
    ///
    /// Errors: the call's; another virtual rank has started it.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn beside<B: 'static>(call: &mut Persistent<B>, something: impl FnOnce()) -> Result<()> {
    ///     call.start()?;
    ///     something();
    ///     call.wait()
    /// }
    /// ```
    #[inline]
    pub fn wait(&mut self) -> Result<()> {
        if let State::Goes(request) = &self.state {
            // If it fails, the call still has the buffers.
            request.until_over()?;
            if !request.is_over() {
                return Err(self.goes_on());
            }
        }
        match replace(&mut self.state, State::Rests) {
            State::Rests => Ok(()),
            State::Begun(begun) => self.end(begun),
            State::Goes(request) => request.wait().map(|status| self.status = status),
        }
    }

    /// The second step.
    #[inline]
    fn end(&mut self, begun: Begun) -> Result<()> {
        let entered = self.comm.user.enter(&self.call);
        let (Ok(_entered), Some(steps)) = (&entered, &self.steps) else {
            self.state = State::Begun(begun);
            return entered.map(drop);
        };
        // SAFETY: nobody else has the buffers: the call is in no started one, and this is borrowed
        // exclusively.
        let buffers = unsafe { &mut *self.buffers.get() };
        self.seat().end(begun, |round| (steps.take)(round, buffers))
    }

    /// Whether the call that was started is over, well or not, or none was: [`Persistent::wait`]
    /// then returns at once. It goes on with the rank's requests.
    ///
    /// Errors: another virtual rank has started it.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn beside<B: 'static>(call: &mut Persistent<B>, mut step: impl FnMut()) -> Result<()> {
    ///     call.start()?;
    ///     while !call.test()? {
    ///         step();
    ///     }
    ///     call.wait()
    /// }
    /// ```
    pub fn test(&mut self) -> Result<bool> {
        match &mut self.state {
            State::Rests => Ok(true),
            State::Goes(request) => request.test(),
            State::Begun(begun) => {
                let begun = *begun;
                crate::wait::go_on();
                Ok(self.seat().has_met(begun))
            }
        }
    }

    /// The buffers, between calls.
    ///
    /// Errors: the call goes on.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn first(call: &Persistent<Vec<i32>>) -> Result<i32> {
    ///     Ok(call.get()?[0])
    /// }
    /// ```
    #[inline]
    pub fn get(&self) -> Result<&B> {
        let State::Rests = self.state else { return Err(self.goes_on()) };
        Ok(self.buffers())
    }

    /// The buffers, to be written between calls. They keep their lengths.
    ///
    /// Errors: the call goes on.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn next(call: &mut Persistent<Vec<i32>>) -> Result<()> {
    ///     call.get_mut()?[0] += 1;
    ///     call.start()
    /// }
    /// ```
    #[inline]
    pub fn get_mut(&mut self) -> Result<&mut B> {
        let State::Rests = self.state else { return Err(self.goes_on()) };
        // SAFETY: no call goes on that has them, and this is borrowed exclusively.
        Ok(unsafe { &mut *self.buffers.get() })
    }

    /// What the last receive ([`Comm::recv_init`]) has received; `None` before one was waited for,
    /// and of what is none.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn next(receive: &mut Persistent<Vec<i32>>) -> Result<&[i32]> {
    ///     receive.start()?;
    ///     receive.wait()?;
    ///     let len = receive.status().map_or(0, |status| status.len());
    ///     Ok(&receive.get()?[..len])
    /// }
    /// ```
    #[inline]
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.status
    }

    /// The buffers back; the call is gone.
    ///
    /// Errors: the call goes on; it then ends by itself.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn last(call: Persistent<Vec<i32>>) -> Result<Vec<i32>> {
    ///     call.into_buffers()
    /// }
    /// ```
    pub fn into_buffers(self) -> Result<B>
    where
        B: Default,
    {
        let mut call = self;
        call.get_mut().map(std::mem::take)
    }

    /// While no call has them, or one in two steps, which only reads them meanwhile.
    fn buffers(&self) -> &B {
        // SAFETY: no started call has them (this function's callers); the exclusive borrows that
        // this gives out last no longer than one of this.
        unsafe { &*self.buffers.get() }
    }

    fn seat(&self) -> Seat<'_> {
        let Comm { endpoint, scope, area, here, .. } = &*self.comm;
        Seat { endpoint, scope, area, me: *here, call: &self.call, noted: self.noted }
    }

    #[cold]
    fn goes_on(&self) -> Error {
        Error::argument(format!("{}: it has been started, and not been waited for", self.call))
    }
}

impl<S: 'static, R: 'static> Persistent<(S, R)> {
    /// What this rank contributes, between calls.
    ///
    /// Errors: the call goes on.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn set(call: &mut Persistent<(Vec<i32>, Vec<i32>)>, value: i32) -> Result<()> {
    ///     call.send_mut()?.fill(value);
    ///     Ok(())
    /// }
    /// ```
    #[inline]
    pub fn send_mut(&mut self) -> Result<&mut S> {
        self.get_mut().map(|(send, _)| send)
    }

    /// What this rank has got, between calls.
    ///
    /// Errors: the call goes on.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn sum(call: &Persistent<(Vec<i32>, Vec<i32>)>) -> Result<i32> {
    ///     Ok(call.recv()?.iter().sum())
    /// }
    /// ```
    #[inline]
    pub fn recv(&self) -> Result<&R> {
        self.get().map(|(_, recv)| recv)
    }
}

impl<B> Drop for Persistent<B> {
    /// A call in its first step has shown peers what they need of it.
    fn drop(&mut self) {
        if let State::Begun(begun) = self.state {
            let Comm { endpoint, scope, area, here, .. } = &*self.comm;
            let (me, call, noted) = (*here, &self.call, self.noted);
            Seat { endpoint, scope, area, me, call, noted }.leave(begun);
        }
    }
}
