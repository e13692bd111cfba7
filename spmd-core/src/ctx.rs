//! What a rank's closure receives.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::comm::beyond::Beyond;
use crate::comm::{Comm, UsedByThreads};
use crate::current::{self, Current, CurrentGuard};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::shared_buf::SharedBuf;
use crate::trace::RankRow;
use crate::transport::shared::Endpoint;

/// A rank's view of its block: it derefs to the communicator of all its ranks.
///
/// It stays with its rank: a thread or task cannot capture it by accident, only a communicator
/// of its own (`ctx.dup()`).
///
/// ```
/// use spmd::prelude::*;
///
/// fn greet(ctx: &Ctx) -> Result<String> {
///     Ok(format!("rank {} of {}", ctx.rank(), ctx.size()))
/// }
/// assert_eq!(spmd(2, greet)?[1], "rank 1 of 2");
/// # Ok::<(), Error>(())
/// ```
///
/// ```compile_fail,E0277
/// fn send_away(ctx: &'static spmd::Ctx) {
///     std::thread::spawn(move || ctx.rank());
/// }
/// ```
pub struct Ctx {
    comm: Comm,
    endpoint: Arc<Endpoint>,
}

// SAFETY: it applies to nothing, as no type is `UsedByThreads`: `Ctx` is not `Send`.
unsafe impl Send for Ctx where for<'a> &'a Ctx: UsedByThreads {}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size, mode) = (self.rank(), self.size(), self.mode());
        let mut fields = f.debug_struct("Ctx");
        fields.field("rank", &rank).field("size", &size).field("mode", &mode);
        fields.finish_non_exhaustive()
    }
}

impl Ctx {
    fn new(endpoint: Arc<Endpoint>, block: u32, beyond: Arc<Beyond>) -> Ctx {
        let comm = Comm::world(endpoint.clone(), block, beyond);
        Ctx { comm, endpoint }
    }

    /// Where the ranks of this block run.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::Mode;
    ///
    /// let modes = Spmd::new(2).virtual_ranks().run(|ctx| Ok(ctx.mode()))?;
    /// assert_eq!(modes, [Mode::Virtual; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn mode(&self) -> Mode {
        let world = &self.endpoint.world;
        let alone = world.joined && world.local().len() == 1;
        if alone { Mode::Processes } else { world.mode }
    }

    /// Memory for `n` values, all bytes zero at first, that peers on the host can reach: a
    /// collective or large message on it needs no copy on the way. Only this rank dereferences
    /// it. Any rank may call it, without the others.
    ///
    /// Errors: there is no memory for so many; zero is no value of `T`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let mut field = ctx.alloc_shared::<f64>(1000)?;
    ///     assert_eq!(field[999], 0.0);
    ///     field.fill(ctx.rank() as f64);
    ///     let mut other = vec![0.0; 1000];
    ///     ctx.sendrecv(&field, 1 - ctx.rank(), 0, &mut other, 1 - ctx.rank(), 0)?;
    ///     assert_eq!(other[999], (1 - ctx.rank()) as f64);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn alloc_shared<T: Element>(&self, n: usize) -> Result<SharedBuf<T>> {
        SharedBuf::new(&self.endpoint, n, std::panic::Location::caller())
    }
}

/// A rank as it runs its closure.
pub(crate) struct Present {
    pub(crate) ctx: Ctx,
    pub(crate) current: Current,
    _row: Option<RankRow>,
}

impl Present {
    pub(crate) fn new(endpoint: Arc<Endpoint>, block: u32, beyond: Arc<Beyond>) -> Present {
        let is_thread = endpoint.world.mode == Mode::Threads;
        let (world, rank) = (&endpoint.world, endpoint.rank);
        let beside = if world.mode == Mode::Processes { rank..rank + 1 } else { world.local() };
        let row = world.tuning.trace.as_ref().map(|trace| trace.rank_row(rank, &beside));
        let (end, number) = (Arc::as_ptr(&endpoint).cast(), row.as_ref().map(RankRow::number));
        let current = Current::new(endpoint.rank, is_thread, end, number);
        Present { ctx: Ctx::new(endpoint, block, beyond), current, _row: row }
    }

    /// This rank runs here from now on.
    pub(crate) fn enter(&self) -> CurrentGuard<'_> {
        self.current.enter((&raw const *self).cast())
    }
}

impl Deref for Ctx {
    type Target = Comm;

    fn deref(&self) -> &Comm {
        &self.comm
    }
}

/// Gives the communicator of the rank that runs here to `f`, for code without a `ctx`.
///
/// Errors: no rank runs here: outside a block, in a task, or on a thread that a rank has started.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::with_current;
///
/// fn deep_inside() -> Result<usize> {
///     with_current(|comm| Ok(comm.rank()))
/// }
/// assert_eq!(spmd(3, |_ctx| deep_inside())?, [0, 1, 2]);
/// assert!(deep_inside().is_err());
/// # Ok::<(), Error>(())
/// ```
pub fn with_current<R>(f: impl FnOnce(&Comm) -> Result<R>) -> Result<R> {
    current::with_rank(|current| match current {
        Some(current) => f(comm_of(current)),
        None => Err(Error::argument(
            "no rank runs on this thread: call this inside spmd(..) or spmd::run(..), on the \
             rank's own thread and in no task"
                .into(),
        )),
    })
}

/// The communicator of a rank that runs here, whatever it does there.
pub(crate) fn comm_of(current: &Current) -> &Comm {
    // SAFETY: only `Present::enter` makes a rank the one that runs here, by a pointer to itself, which
    // it borrows as long as that holds: at least as long as `current` is given out.
    let present = unsafe { &*current.above().cast::<Present>() };
    &present.ctx.comm
}
