//! Requests that borrow their buffers, in a scope that does not end before they do.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::communicator::Comm;
use super::going::Going;
use super::internals::Internals;
use super::request::Request;
use crate::call::Call;
use crate::error::Result;
use crate::fault::print;
use crate::panics::quietly;
use crate::pooled::Pooled;
use crate::wait;

/// How many requests of a scope are kept in mind, at least, before those that are over are
/// forgotten.
const KEPT: usize = 128;

/// Where requests are started that borrow: see [`Comm::requests`].
pub struct RequestScope<'scope, 'env: 'scope> {
    comm: &'scope Comm,
    /// Those that may not be over, or have failed without anybody knowing.
    going: RefCell<Vec<Pooled<dyn Going>>>,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for RequestScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestScope").field("comm", self.comm).finish_non_exhaustive()
    }
}

impl Comm {
    /// Runs `body`, which starts requests that borrow its environment, and waits until all of them
    /// are over, whatever becomes of `body` or of the handles that it has got. Where it panics, they
    /// give up.
    ///
    /// Errors: that of `body`; else that of the first request, in the order in which they were
    /// started, that has failed without anybody knowing.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let ranks = spmd(2, |ctx| ctx.requests(|_requests| Ok(ctx.rank())))?;
    /// assert_eq!(ranks, [0, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn requests<'env, R>(
        &self,
        body: impl for<'scope> FnOnce(&'scope RequestScope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        let going = RefCell::default();
        let scope = RequestScope { comm: self, going, _scope: PhantomData, _env: PhantomData };
        let ended = Ended(&scope.going);
        // Caught, so that a virtual rank can wait for what peers still read.
        let result = match catch_unwind(AssertUnwindSafe(|| body(&scope))) {
            Ok(result) => result,
            Err(payload) => {
                wait::refuse();
                let all = scope.going.borrow().clone();
                drop(ended);
                // The panic tells that they have given up.
                for going in all {
                    quietly(|| drop(going.failure()));
                    quietly(|| drop(going));
                }
                resume_unwind(payload)
            }
        };
        if result.is_err() {
            // To which no message has come, of these none may come.
            let all = scope.going.borrow().clone();
            for going in all {
                going.cancel();
                quietly(|| drop(going));
            }
        }
        let waited = scope.wait_all();
        drop(ended);
        let result = result?;
        waited.map(|()| result)
    }
}

/// Its end, however it comes about: what is started while this waits ends, too.
struct Ended<'a>(&'a RefCell<Vec<Pooled<dyn Going>>>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let next = || self.0.borrow_mut().pop();
        while let Some(going) = next() {
            // Nothing may come between what borrows and its end.
            let ended = || catch_unwind(AssertUnwindSafe(|| going.end())).is_ok();
            if !going.is_over() && !ended() {
                print(format_args!("cannot wait for a request that borrows; aborting"));
                std::process::abort();
            }
            quietly(|| drop(going));
        }
    }
}

impl<'scope> RequestScope<'scope, '_> {
    /// Waits until all requests of this scope that have been started are over. They can still be
    /// waited for, to get what they borrow.
    ///
    /// Errors: that of the first, in the order in which they were started, that has failed without
    /// anybody knowing.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| ctx.requests(|requests| requests.wait_all()))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn wait_all(&self) -> Result<()> {
        let all = self.going.borrow().clone();
        for going in &all {
            going.until_over()?;
        }
        let mut outcome = Ok(());
        for going in all {
            let ended = going.failure();
            outcome = outcome.and(ended);
        }
        self.forget_settled();
        outcome
    }

    /// Keeps in mind what has been started.
    #[inline]
    pub(super) fn keep<B>(&self, request: Request<B>) -> Request<B> {
        if let Some(going) = request.what_goes_on() {
            self.keep_going(going.clone());
        }
        request
    }

    fn keep_going(&self, going: Pooled<dyn Going>) {
        let mut all = self.going.borrow_mut();
        if all.capacity() == 0 {
            all.reserve(KEPT);
        }
        all.push(going);
        let many = all.len() >= KEPT && all.len().is_power_of_two();
        drop(all);
        if many {
            self.forget_settled();
        }
    }

    fn forget_settled(&self) {
        let is_settled = |going: &mut Pooled<dyn Going>| going.is_settled();
        let mut all = self.going.borrow_mut();
        let mut settled = Vec::with_capacity(all.len());
        settled.extend(all.extract_if(.., is_settled));
        drop(all);
        // They may be the last of a buffer, whose end may start another request.
        drop(settled);
    }

    pub(super) fn comm(&self) -> &'scope Comm {
        self.comm
    }
}

/// Where requests are started.
pub trait Starts<'a> {
    /// Starts a call on the communicator of this: see [`Starts::start_on`].
    ///
    /// Errors: as [`Starts::start_on`].
    fn start<B: Send + 'a>(
        &self,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<B> + Send + 'a,
    ) -> Result<Request<B>>;

    /// Starts a call on `comm`: `body` makes it, on a communicator of the same ranks. All ranks start
    /// it, in the same order among the calls of the communicator.
    ///
    /// Errors: what is known at once; the communicator spans processes that go on when others fail; the
    /// system has no room for a stack.
    fn start_on<B: Send + 'a>(
        &self,
        comm: &Comm,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<B> + Send + 'a,
    ) -> Result<Request<B>>;
}

impl Starts<'static> for Internals<'_> {
    fn start<B: Send + 'static>(
        &self,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<B> + Send + 'static,
    ) -> Result<Request<B>> {
        self.start_on(self.0, call, body)
    }

    fn start_on<B: Send + 'static>(
        &self,
        comm: &Comm,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<B> + Send + 'static,
    ) -> Result<Request<B>> {
        // SAFETY: what `body` uses lives as long as anybody wants.
        unsafe { Request::start(comm, call, body) }
    }
}

impl<'scope> Starts<'scope> for RequestScope<'scope, '_> {
    fn start<B: Send + 'scope>(
        &self,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<B> + Send + 'scope,
    ) -> Result<Request<B>> {
        self.start_on(self.comm, call, body)
    }

    fn start_on<B: Send + 'scope>(
        &self,
        comm: &Comm,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<B> + Send + 'scope,
    ) -> Result<Request<B>> {
        // SAFETY: what `body` uses lives as long as `'scope`, which does not end before `requests`
        // returns or unwinds: it is free to the closure of that. By then the call is over, which
        // `Ended` has waited for, as `keep` has kept it.
        let request = unsafe { Request::start(comm, call, body)? };
        Ok(self.keep(request))
    }
}
