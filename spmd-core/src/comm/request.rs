//! Requests: calls that go on while their rank does something else.

use std::cell::Cell;
use std::fmt;
use std::mem::replace;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;

use super::communicator::Comm;
use super::entry::IN_OPERATION;
use super::going::{Going, goes};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::pooled::{Pooled, Shared};
use crate::rank::Status;
use crate::wait;

/// A call that goes on while its rank does something else (MPI 5.0 sections 3.7 and 6.12). Its
/// buffers belong to it until [`Request::wait`] gives them back.
///
/// It goes on in every call of the library in which its rank waits, and when the rank asks whether
/// it is over ([`Request::test`]). Dropped or forgotten, it goes on all the same: at the end of the
/// block the rank waits for it, and what went wrong with it is then the rank's error.
///
/// It belongs to the rank, or the thread, that has started it; another one that waits for it or
/// tests it gets an error.
///
/// Any executor may await it, on the thread of the rank:
///
/// ```
/// use spmd::prelude::*;
///
/// async fn both(left: Request<Vec<u8>>, right: Request<Vec<u8>>) -> Result<usize> {
///     Ok(left.await?.len() + right.await?.len())
/// }
/// ```
///
/// It goes on whenever it is polled, and a thread beside that of the rank has it polled when it may be
/// over. Who awaits waits where the library does not see it: a cycle of such waits is not found, but
/// ranks that fail or leave end them, as does the time limit. A virtual rank whose executor parks
/// stops all ranks of its worker until something wakes it, a millisecond later at most; each poll
/// lets them run. An executor that knows by a thread-local that it runs, as those of `tokio` and
/// `futures`, has place for one such rank a worker; `pollster` for any number.
pub struct Request<B> {
    state: State<B>,
    /// Since when it was awaited.
    awaited: Option<Instant>,
}

enum State<B> {
    /// It was over at once.
    Ended(B),
    /// Here lies what it gives, when it is over.
    Going(Pooled<dyn Going>, Pooled<Cell<Option<B>>>),
    /// The same of what another thread may carry out.
    Started(Pooled<dyn Going>, Pooled<Mutex<Option<B>>, Shared>),
    /// It was awaited to its end.
    Given,
}

impl<B> fmt::Debug for Request<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

impl<B> Request<B> {
    pub(super) fn ended(result: B) -> Request<B> {
        Request { state: State::Ended(result), awaited: None }
    }

    pub(super) fn going(going: Pooled<dyn Going>, result: Pooled<Cell<Option<B>>>) -> Request<B> {
        Request { state: State::Going(going, result), awaited: None }
    }

    /// Starts a call that `body` makes.
    ///
    /// Errors: as [`Comm::start_call`].
    ///
    /// # Safety
    /// What `body` uses lives until the call is over.
    pub(super) unsafe fn start<'a>(
        comm: &Comm,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<B> + Send + 'a,
    ) -> Result<Request<B>>
    where
        B: Send + 'a,
    {
        let result = Pooled::new(Mutex::new(None));
        let place = result.clone();
        let body = move |comm: &Comm| body(comm).map(|made| *place.lock() = Some(made));
        // SAFETY: what `body` uses lives until the call is over (this function's contract). The
        // result may outlive that, as part of what this gives.
        let call = unsafe { comm.start_call(call, body)? };
        let going = goes(Pooled::new(call));
        Ok(Request { state: State::Started(going, result), awaited: None })
    }

    /// What goes on, if it was not over at once.
    pub(super) fn what_goes_on(&self) -> Option<&Pooled<dyn Going>> {
        match &self.state {
            State::Ended(_) | State::Given => None,
            State::Going(going, _) | State::Started(going, _) => Some(going),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.what_goes_on().is_none_or(|going| going.is_over())
    }

    /// Where it comes among all that have ended on this thread, if it is over; first, if it was at
    /// once.
    fn place(&self) -> Option<u64> {
        self.what_goes_on().map_or(Some(0), |going| going.completion().place())
    }

    pub(super) fn until_over(&self) -> Result<()> {
        self.what_goes_on().map_or(Ok(()), |going| going.until_over())
    }

    /// Waits until the call is over, and gives back its buffers. A panic of an operation goes on
    /// here.
    ///
    /// Errors: the call's; another rank or thread has started it.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn later(request: Request<Vec<f64>>) -> Result<f64> {
    ///     // Something else, then:
    ///     Ok(request.wait()?.iter().sum())
    /// }
    /// ```
    pub fn wait(mut self) -> Result<B> {
        self.until_over()?;
        self.take()
    }

    /// How it has ended.
    fn take(&mut self) -> Result<B> {
        match replace(&mut self.state, State::Given) {
            State::Ended(result) => Ok(result),
            State::Going(going, result) => {
                going.failure()?;
                result.take().ok_or_else(|| going.told())
            }
            State::Started(going, result) => {
                going.failure()?;
                let made = result.lock().take();
                made.ok_or_else(|| going.told())
            }
            State::Given => {
                Err(Error::argument("a request that has given its buffers back before".into()))
            }
        }
    }

    /// Looks whether it is over, for who awaits it; if not, `waker` is woken when it may be.
    ///
    /// Errors: another rank or thread has started it; an operation of a reduction runs.
    fn look(&mut self, waker: &Waker) -> Result<bool> {
        let going = match &self.state {
            State::Ended(_) | State::Given => return Ok(true),
            State::Going(going, _) | State::Started(going, _) => going,
        };
        if going.is_over() {
            return Ok(true);
        }
        going.check_own()?;
        if wait::is_in_operation() {
            return Err(Error::argument(format!("{} awaited {IN_OPERATION}", going.described())));
        }
        let since = *self.awaited.get_or_insert_with(Instant::now);
        let look = || going.test_awaited(since.elapsed());
        if look() {
            return Ok(true);
        }
        if wait::scheduler::in_coroutine() {
            // The executor may park the thread of all.
            wait::relax();
        }
        let Some(endpoint) = going.endpoint() else { return Ok(going.is_over()) };
        let key = going.address();
        Ok(wait::awaits(endpoint, (waker, key), since.elapsed(), look))
    }

    /// Goes on with the rank's requests, and tells whether this one is over, well or not:
    /// [`Request::wait`] then returns at once. It lets no other virtual rank run.
    ///
    /// Errors: another rank or thread has started it.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn beside<B>(mut request: Request<B>, mut step: impl FnMut()) -> Result<B> {
    ///     while !request.test()? {
    ///         step();
    ///     }
    ///     request.wait()
    /// }
    /// ```
    pub fn test(&mut self) -> Result<bool> {
        match self.what_goes_on() {
            None => Ok(true),
            Some(going) => going.check_own().map(|()| going.test()),
        }
    }
}

/// What it holds is never pinned.
impl<B> Unpin for Request<B> {}

impl<B> Future for Request<B> {
    type Output = Result<B>;

    /// As [`Request::test`] and [`Request::wait`].
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<B>> {
        match self.look(context.waker()) {
            Ok(true) => Poll::Ready(self.take()),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<B> Request<(B, Status)> {
    /// Takes a receive back, unless its message has come: then it waits for its end. Gives back the
    /// buffer, and with it, of a message that has come, what it is (`MPI_Cancel`).
    ///
    /// Errors: as [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let request = ctx.irecv(vec![0; 3], 0, 0)?;
    ///     let (buffer, status) = request.cancel()?;
    ///     assert_eq!((buffer, status.is_none()), (vec![0; 3], true));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(self) -> Result<(B, Option<Status>)> {
        let cancelled = match self.what_goes_on() {
            None => false,
            Some(going) => going.check_own().map(|()| going.cancel())?,
        };
        self.wait().map(|(buffer, status)| (buffer, (!cancelled).then_some(status)))
    }
}

/// Waits until all these requests are over, and gives back their buffers, in order (`MPI_Waitall`).
///
/// Errors: that of the first, in order, that has failed. All are over, whatever this gives.
///
/// ```
/// use spmd::prelude::*;
///
/// fn both(left: Request<Vec<u8>>, right: Request<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
///     wait_all([left, right])
/// }
/// ```
pub fn wait_all<B>(requests: impl IntoIterator<Item = Request<B>>) -> Result<Vec<B>> {
    let requests: Vec<Request<B>> = requests.into_iter().collect();
    for request in &requests {
        request.until_over()?;
    }
    let ended: Vec<Result<B>> = requests.into_iter().map(Request::wait).collect();
    ended.into_iter().collect()
}

/// Waits until one of these requests is over, takes the one out that ended first, and gives its place
/// and its buffers (`MPI_Waitany`). The places of those behind it are then one less. It looks at all of them: of
/// very many, [`Requests`](crate::Requests) is a set that does not.
///
/// Errors: that of the call that is over, which is taken out, too; there is no request; another
/// rank or thread has started one.
///
/// ```
/// use spmd::prelude::*;
///
/// fn in_order_of_completion(mut requests: Vec<Request<Vec<u8>>>) -> Result<()> {
///     while !requests.is_empty() {
///         let (_place, data) = wait_any(&mut requests)?;
///         println!("{} bytes", data.len());
///     }
///     Ok(())
/// }
/// ```
pub fn wait_any<B>(requests: &mut Vec<Request<B>>) -> Result<(usize, B)> {
    let place = any_over(requests)?;
    requests.remove(place).wait().map(|made| (place, made))
}

/// Waits until at least one of these requests is over, takes out all that are, and gives their
/// places and buffers, in order (`MPI_Waitsome`).
///
/// Errors: that of the first of them that has failed, all of which are taken out; there is no
/// request; another rank or thread has started one.
///
/// ```
/// use spmd::prelude::*;
///
/// fn count(requests: &mut Vec<Request<Vec<u8>>>) -> Result<usize> {
///     Ok(wait_some(requests)?.len())
/// }
/// ```
pub fn wait_some<B>(requests: &mut Vec<Request<B>>) -> Result<Vec<(usize, B)>> {
    any_over(requests)?;
    let mut ended = Vec::new();
    let mut place = 0;
    let over = requests.extract_if(.., |request| {
        ended.push(place);
        place += 1;
        let over = request.is_over();
        if !over {
            ended.pop();
        }
        over
    });
    let results: Vec<Result<B>> = over.map(Request::wait).collect();
    ended.into_iter().zip(results).map(|(place, result)| Ok((place, result?))).collect()
}

/// Waits until one of them is over: the place of the one that ended first.
fn any_over<B>(requests: &[Request<B>]) -> Result<usize> {
    let over = || {
        let ended =
            requests.iter().enumerate().filter_map(|(place, it)| Some((it.place()?, place)));
        ended.min().map(|(_, place)| place)
    };
    let all = || requests.iter().filter_map(Request::what_goes_on);
    all().try_for_each(|going| going.check_own())?;
    if let [only] = requests {
        only.until_over()?;
    }
    if over().is_none()
        && let Some(first) = all().next()
    {
        let alike = all().all(|going| going.releasers() == first.releasers());
        first.until_any(alike, &|| over().is_some())?;
    }
    over().ok_or_else(|| Error::argument("there is no request to wait for".into()))
}
