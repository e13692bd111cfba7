//! A set of requests, which gives them back as they end.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use super::going::Going;
use super::request::{Request, wait_all};
use crate::error::Result;
use crate::pooled::Pooled;
use crate::wait::{self, AgentKey, Completed};

/// Requests of one type, which are given back in the order in which they end (`MPI_Waitany`), each
/// with its number: how many were added to the set before it. To find the next one costs no look at
/// all of them.
///
/// As an iterator it waits for the next one ([`Requests::wait_any`]) until none is left. Those that
/// are in it when it is dropped go on.
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(4, |ctx| {
///     if ctx.rank() > 0 {
///         return ctx.send(&[10 * ctx.rank()], 0, 0);
///     }
///     let receives = (1..4).map(|rank| ctx.irecv([0], rank, 0));
///     let mut requests = receives.collect::<Result<Requests<_>, _>>()?;
///     for (number, received) in &mut requests {
///         let (got, status) = received?;
///         assert_eq!((status.source(), got), (number + 1, [10 * number + 10]));
///     }
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub struct Requests<B> {
    /// By number: those that were not given back.
    requests: BTreeMap<usize, Request<B>>,
    completed: Rc<Completed>,
    next: usize,
    /// How many of those that were not over can be waited for as one, and by whom.
    alike: HashMap<(u64, AgentKey), usize>,
    /// The first that was not asked in this round of [`Requests::test_any`].
    asked: usize,
}

impl<B> fmt::Debug for Requests<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<B> Default for Requests<B> {
    fn default() -> Requests<B> {
        let (requests, completed, next, alike, asked) = Default::default();
        Requests { requests, completed, next, alike, asked }
    }
}

fn kind(going: &dyn Going) -> (u64, AgentKey) {
    (going.releasers(), going.agent())
}

impl<B> Requests<B> {
    /// An empty set.
    #[must_use]
    pub fn new() -> Requests<B> {
        Requests::default()
    }

    /// Adds a request, and gives its number: how many were added before it.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let mut requests = Requests::new();
    ///     assert_eq!(requests.push(ctx.isend([1], 0, 0)?), 0);
    ///     assert_eq!(requests.push(ctx.isend([2], 0, 0)?), 1);
    ///     assert_eq!(requests.wait_all()?, [[1], [2]]);
    ///     ctx.recv(&mut [0], 0, 0)?;
    ///     ctx.recv(&mut [0], 0, 0).map(drop)
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn push(&mut self, request: Request<B>) -> usize {
        let number = self.next;
        self.next += 1;
        match request.what_goes_on() {
            None => self.completed.add(number),
            Some(going) => {
                *self.alike.entry(kind(&**going)).or_default() += 1;
                going.completion().tell(&self.completed, number);
            }
        }
        self.requests.insert(number, request);
        number
    }

    /// How many there are that were not given back.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether all were given back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Waits until one of them is over, takes it out, and gives its number with its buffers
    /// (`MPI_Waitany`); those that are over already come first, in the order in which they ended.
    /// `None` if there is none.
    ///
    /// Errors: that of the call that is over; another rank or thread has started the request, which
    /// then goes on without being one of the set.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn in_order_of_completion(mut requests: Requests<Vec<u8>>) -> Result<()> {
    ///     while let Some((number, data)) = requests.wait_any() {
    ///         println!("{number}: {} bytes", data?.len());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn wait_any(&mut self) -> Option<(usize, Result<B>)> {
        if let Some(over) = self.take_completed() {
            return Some(over);
        }
        let (number, going) = self.first_to_wait_for()?;
        let any = || !self.completed.is_empty();
        let waited = going.check_own().and_then(|()| match self.requests.len() {
            1 => going.until_over(),
            _ => going.until_any(self.alike.len() == 1, &any),
        });
        match waited {
            Ok(()) => self.take_completed(),
            Err(error) => self.take(number).map(|_| (number, Err(error))),
        }
    }

    /// Goes on with the rank's requests, and gives one of the set that is over, if there is one, as
    /// [`Requests::wait_any`] (`MPI_Testany`). It lets no other virtual rank run. After `wait_any`,
    /// until there is none, it gives all that are over (`MPI_Waitsome`).
    ///
    /// Errors: as [`Requests::wait_any`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn beside(mut requests: Requests<Vec<u8>>, mut step: impl FnMut()) -> Result<()> {
    ///     while !requests.is_empty() {
    ///         while let Some((_number, data)) = requests.test_any() {
    ///             println!("{} bytes", data?.len());
    ///         }
    ///         step();
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn test_any(&mut self) -> Option<(usize, Result<B>)> {
        if let Some(over) = self.take_completed() {
            return Some(over);
        }
        // All go on; whether it can be over at all is looked at for one after the other.
        let next = self.requests.range(self.asked..).next().or(self.requests.iter().next());
        let number = *next?.0;
        self.asked = number + 1;
        match self.requests.get_mut(&number)?.test() {
            Ok(_) => self.take_completed(),
            Err(error) => self.take(number).map(|_| (number, Err(error))),
        }
    }

    /// Waits until all of them are over, and gives back the buffers of those that were not given
    /// back yet, by number (`MPI_Waitall`).
    ///
    /// Errors: that of the first, by number, that has failed. All are over, whatever this gives.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// fn in_order(requests: Requests<Vec<u8>>) -> Result<Vec<u8>> {
    ///     Ok(requests.wait_all()?.concat())
    /// }
    /// ```
    pub fn wait_all(self) -> Result<Vec<B>> {
        wait_all(self.requests.into_values())
    }

    /// The first of them, none of which is over; or the first that another agent has started.
    fn first_to_wait_for(&self) -> Option<(usize, Pooled<dyn Going>)> {
        let here = wait::agent();
        let all = self.requests.iter();
        let mut going =
            all.filter_map(|(number, request)| Some((*number, request.what_goes_on()?.clone())));
        match self.alike.keys().all(|(_, agent)| *agent == here) {
            true => going.next(),
            false => going.find(|(_, going)| going.agent() != here),
        }
    }

    /// The next one that is over.
    fn take_completed(&mut self) -> Option<(usize, Result<B>)> {
        loop {
            let number = self.completed.take()?;
            // One that was taken out before it was over is told of, too.
            if let Some(request) = self.take(number) {
                return Some((number, request.wait()));
            }
        }
    }

    fn take(&mut self, number: usize) -> Option<Request<B>> {
        let request = self.requests.remove(&number)?;
        if let Some(going) = request.what_goes_on() {
            let kind = kind(&**going);
            let left = self.alike.get_mut(&kind).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                self.alike.remove(&kind);
            }
        }
        Some(request)
    }
}

/// Waits for the next one that is over, as [`Requests::wait_any`].
impl<B> Iterator for Requests<B> {
    type Item = (usize, Result<B>);

    fn next(&mut self) -> Option<(usize, Result<B>)> {
        self.wait_any()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl<B> Extend<Request<B>> for Requests<B> {
    fn extend<I: IntoIterator<Item = Request<B>>>(&mut self, requests: I) {
        for request in requests {
            self.push(request);
        }
    }
}

impl<B> FromIterator<Request<B>> for Requests<B> {
    fn from_iter<I: IntoIterator<Item = Request<B>>>(requests: I) -> Requests<B> {
        let mut all = Requests::new();
        all.extend(requests);
        all
    }
}
