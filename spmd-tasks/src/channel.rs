//! Channels between tasks: bounded queues whose two ends suspend who waits there.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::internal::{Call, Kind, Sleeper, wait_for_task};
use spmd_core::{Error, Result};

use crate::group::given_up;
use crate::header::Header;
use crate::rank::part_here;

/// A queue between tasks of one process that holds so many values at most: who sends one more waits
/// until one has been received, as crossbeam's `bounded` has it for threads. A task that waits is
/// suspended, and its worker goes on with others. Both ends may be cloned and moved into tasks; a queue of
/// no length is made one of 1.
///
/// When all senders are gone, what is still there is received, and then the end: `None`. When all receivers
/// are, sending is an error.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::tasks::channel;
///
/// spmd(1, |ctx| {
///     let (numbers, inbox) = channel(2);
///     let (squares, outbox) = channel(2);
///     // Three stages that run at the same time, on any number of workers.
///     ctx.spawn(move || (0..100u64).try_for_each(|x| numbers.send(x)));
///     ctx.spawn(move || inbox.iter().try_for_each(|x| x.and_then(|x| squares.send(x * x))));
///     let sum: u64 = outbox.iter().sum::<Result<u64>>()?;
///     assert_eq!(sum, 328_350);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn channel<T>(depth: usize) -> (Sender<T>, Receiver<T>) {
    channel_of("the channel", depth, Location::caller())
}

/// A channel that is told of in these words, and where it was made.
pub(crate) fn channel_of<T>(
    what: &'static str,
    depth: usize,
    site: &'static Location<'static>,
) -> (Sender<T>, Receiver<T>) {
    let depth = depth.max(1);
    let state = State {
        values: VecDeque::new(),
        senders: 1,
        receivers: 1,
        full: Vec::new(),
        empty: Vec::new(),
    };
    let shared = Arc::new(Shared { what, depth, site, state: Mutex::new(state) });
    (Sender(shared.clone()), Receiver(shared))
}

/// Where values go in: see [`channel`].
pub struct Sender<T>(Arc<Shared<T>>);

/// Where they come out: see [`channel`].
pub struct Receiver<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// What it is to its users.
    what: &'static str,
    depth: usize,
    /// Where it was made.
    site: &'static Location<'static>,
    state: Mutex<State<T>>,
}

struct State<T> {
    values: VecDeque<T>,
    senders: usize,
    receivers: usize,
    /// Who waits for room, and who for a value: the first first.
    full: Vec<Arc<Sleeper>>,
    empty: Vec<Arc<Sleeper>>,
}

impl<T> Shared<T> {
    /// Waits until `done` says so, of which those are told who are in the list that `waits` names.
    fn wait<R>(
        &self,
        of: &'static str,
        site: &'static Location<'static>,
        waits: impl Fn(&mut State<T>) -> &mut Vec<Arc<Sleeper>>,
        mut done: impl FnMut(&mut State<T>) -> Option<R>,
    ) -> Result<R> {
        let here = Header::here();
        // SAFETY: the task that runs here is not over.
        let gives_up = || here.is_some_and(|here| unsafe { here.group() }.gives_up());
        let refused = || gives_up().then(given_up);
        let mut result = done(&mut self.state.lock());
        if let Some(result) = result {
            return Ok(result);
        }
        // By what the rank has of tasks it is known whether somebody may still end the wait.
        let _ = part_here();
        let sleeper = Arc::new(Sleeper::here());
        let mut look = || {
            let mut state = self.state.lock();
            let list = waits(&mut state);
            if !list.iter().any(|it| Arc::ptr_eq(it, &sleeper)) {
                list.push(sleeper.clone());
            }
            result = done(&mut state);
            result.is_some()
        };
        let said = || format!("{of} {} made at {}", self.what, self.site);
        let call = Call::new(Kind::Fetch, site);
        let waited = wait_for_task(&sleeper, (&call, &said), &refused, &mut look);
        let mut state = self.state.lock();
        let list = waits(&mut state);
        let before = list.len();
        list.retain(|it| !Arc::ptr_eq(it, &sleeper));
        // It was woken for something that it does not take, as it gives up, or had what it waited for just
        // before: the next one is.
        if list.len() == before {
            list.first().into_iter().for_each(|next| next.wake());
        }
        drop(state);
        waited.and(result.ok_or_else(given_up))
    }
}

/// Wakes the one that waits longest.
fn wake_first(waits: &mut Vec<Arc<Sleeper>>) {
    if !waits.is_empty() {
        waits.remove(0).wake();
    }
}

impl<T: Send> Sender<T> {
    /// Sends a value, once there is room for it.
    ///
    /// Errors: all receivers are gone; the rank has failed, or waits in a cycle.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<()> {
        let (site, depth) = (Location::caller(), self.0.depth);
        let mut value = Some(value);
        let put = |state: &mut State<T>| {
            if state.receivers == 0 {
                return Some(false);
            }
            let has_room = state.values.len() < depth;
            has_room.then(|| {
                state.values.extend(value.take());
                wake_first(&mut state.empty);
                true
            })
        };
        match self.0.wait("of room in", site, |state| &mut state.full, put)? {
            true => Ok(()),
            false => {
                let (what, made) = (self.0.what, self.0.site);
                Err(Error::argument(format!(
                    "send at {site}: the receivers of {what} made at {made} are gone"
                )))
            }
        }
    }
}

impl<T: Send> Sender<T> {
    /// Waits for room for so many values at least; gives for how many there is, and `None` if all receivers
    /// are gone.
    ///
    /// Errors: the rank has failed, or waits in a cycle.
    pub(crate) fn room_at(
        &self,
        at_least: usize,
        site: &'static Location<'static>,
    ) -> Result<Option<usize>> {
        let depth = self.0.depth;
        let room = |state: &mut State<T>| {
            let room = depth.saturating_sub(state.values.len());
            let gone = state.receivers == 0;
            (gone || room >= at_least.min(depth)).then_some((!gone).then_some(room))
        };
        self.0.wait("of room in", site, |state| &mut state.full, room)
    }
}

impl<T: Send> Receiver<T> {
    /// Receives the value that was sent first; `None` if there is none any more, and all senders are gone.
    ///
    /// Errors: the rank has failed, or waits in a cycle.
    #[track_caller]
    pub fn recv(&self) -> Result<Option<T>> {
        self.recv_at(Location::caller())
    }

    /// [`Receiver::recv`] at this line.
    pub(crate) fn recv_at(&self, site: &'static Location<'static>) -> Result<Option<T>> {
        let take = |state: &mut State<T>| match state.values.pop_front() {
            Some(value) => {
                wake_first(&mut state.full);
                Some(Some(value))
            }
            None if state.senders == 0 => Some(None),
            None => None,
        };
        self.0.wait("of a value in", site, |state| &mut state.empty, take)
    }

    /// What is received, until the end, or the first error.
    #[track_caller]
    pub fn iter(&self) -> impl Iterator<Item = Result<T>> {
        let mut failed = false;
        std::iter::from_fn(move || {
            let next = if failed { None } else { self.recv().transpose() };
            failed = matches!(next, Some(Err(_)));
            next
        })
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.state.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.0.state.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            state.empty.drain(..).for_each(|waits| waits.wake());
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receivers -= 1;
        if state.receivers == 0 {
            state.full.drain(..).for_each(|waits| waits.wake());
            // Nobody will have them; freed when it is not locked any more.
            let values = std::mem::take(&mut state.values);
            drop(state);
            drop(values);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("depth", &self.0.depth).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("depth", &self.0.depth).finish_non_exhaustive()
    }
}
