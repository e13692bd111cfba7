//! What a rank's closure receives.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::rank_local::{self, Locals};
use crate::transport::shared::{Endpoint, Mode};
use crate::wait::{current, set_current};

/// A rank's view of its block: it derefs to the communicator of all its ranks.
///
/// It stays with its rank: a thread or task cannot capture it by accident, only a communicator
/// of its own (`ctx.dup()`).
///
/// ```
/// # use spmd_core::{Ctx, Result, spmd};
/// fn greet(ctx: &Ctx) -> Result<String> {
///     Ok(format!("rank {} of {}", ctx.rank(), ctx.size()))
/// }
/// assert_eq!(spmd(2, greet)?[1], "rank 1 of 2");
/// # Ok::<(), spmd_core::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// fn send_away(ctx: &'static spmd_core::Ctx) {
///     std::thread::spawn(move || ctx.rank());
/// }
/// ```
pub struct Ctx {
    comm: Comm,
    endpoint: Arc<Endpoint>,
    _not_send: PhantomData<*const ()>,
}

impl Ctx {
    fn new(endpoint: Arc<Endpoint>, block: u32) -> Ctx {
        let comm = Comm::world(endpoint.clone(), block);
        Ctx { comm, endpoint, _not_send: PhantomData }
    }

    /// Where the ranks of this block run.
    ///
    /// ```
    /// # use spmd_core::{Mode, Spmd};
    /// let modes = Spmd::new(2).virtual_ranks().run(|ctx| Ok(ctx.mode()))?;
    /// assert_eq!(modes, [Mode::Virtual; 2]);
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    pub fn mode(&self) -> Mode {
        let world = &self.endpoint.world;
        match &world.across {
            Some(_) if world.local().len() == 1 => Mode::Processes,
            _ => world.mode,
        }
    }

    /// Memory for `n` values, all bytes zero at first, that peers on the host can reach: a
    /// collective or large message on it needs no copy on the way. Only this rank dereferences
    /// it. Any rank may call it, without the others.
    ///
    /// Errors: there is no memory for so many; zero is no value of `T`.
    ///
    /// ```
    /// # use spmd_core::spmd;
    /// spmd(2, |ctx| {
    ///     let mut field = ctx.alloc_shared::<f64>(1000)?;
    ///     assert_eq!(field[999], 0.0);
    ///     field.fill(ctx.rank() as f64);
    ///     let mut other = vec![0.0; 1000];
    ///     ctx.sendrecv(&field, 1 - ctx.rank(), 0, &mut other, 1 - ctx.rank(), 0)?;
    ///     assert_eq!(other[999], (1 - ctx.rank()) as f64);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    pub fn alloc_shared<T: crate::Element>(&self, n: usize) -> Result<crate::SharedBuf<T>> {
        crate::SharedBuf::new(&self.endpoint, n, std::panic::Location::caller())
    }
}

/// A rank as it runs its closure: what `wait/current.rs` points to meanwhile.
pub(crate) struct Present {
    pub(crate) ctx: Ctx,
    pub(crate) locals: Locals,
}

impl Present {
    pub(crate) fn new(endpoint: Arc<Endpoint>, block: u32) -> Present {
        Present { ctx: Ctx::new(endpoint, block), locals: Locals::new() }
    }

    pub(crate) fn enter(&self) -> Entered {
        let before = set_current((&raw const *self).cast());
        // On a coroutine, what was there belongs to another one, which may end before this.
        Entered(if crate::wait::fleet::in_coroutine() { std::ptr::null() } else { before })
    }
}

impl Deref for Ctx {
    type Target = Comm;

    fn deref(&self) -> &Comm {
        &self.comm
    }
}

/// Leaves the rank again when dropped.
pub(crate) struct Entered(*const ());

impl Drop for Entered {
    fn drop(&mut self) {
        set_current(self.0);
    }
}

/// Whether the rank that runs on this thread is that of this end.
pub(crate) fn is_rank_of(endpoint: &Endpoint) -> bool {
    with_current(|comm| Ok(comm.is_of(endpoint))).unwrap_or(false)
}

/// Whether a rank runs on this thread.
pub(crate) fn runs_rank() -> bool {
    with_current(|_| Ok(())).is_ok()
}

/// Gives the communicator of the rank that runs here to `f`, for code without a `ctx`.
///
/// Errors: no rank runs here: outside a block, or on a thread that a rank has started.
///
/// ```
/// # use spmd_core::{Result, spmd, with_current};
/// fn deep_inside() -> Result<usize> {
///     with_current(|comm| Ok(comm.rank()))
/// }
/// assert_eq!(spmd(3, |_ctx| deep_inside())?, [0, 1, 2]);
/// assert!(deep_inside().is_err());
/// # Ok::<(), spmd_core::Error>(())
/// ```
pub fn with_current<R>(f: impl FnOnce(&Comm) -> Result<R>) -> Result<R> {
    with_present(|present| match present {
        Some(present) => f(&present.ctx.comm),
        None => Err(Error::Argument(
            "no rank runs on this thread: call this inside spmd(..) or spmd::run(..), on the \
             rank's own thread"
                .into(),
        )),
    })
}

/// Gives the rank that runs here to `f`, if one does.
fn with_present<R>(f: impl FnOnce(Option<&Present>) -> R) -> R {
    let current = current().cast::<Present>();
    if current.is_null() {
        return f(None);
    }
    // SAFETY: only `Present::enter` says that a rank runs here (`wait/current.rs`), by a pointer to
    // itself, which lives on a stack frame below this one; it is taken back before that frame ends
    // (`Entered`). What other coroutines say in between is overwritten when this one goes on, at
    // every suspension, and a coroutine leaves nothing there when it ends.
    f(Some(unsafe { &*current }))
}

/// Gives the values of the rank that runs here to `f`, or those of this thread.
pub(crate) fn with_locals<R>(f: impl FnOnce(&Locals) -> R) -> R {
    let mut f = Some(f);
    let mut call = |locals: &Locals| (f.take().expect("it is called once"))(locals);
    with_present(|present| present.map(|it| call(&it.locals)))
        .unwrap_or_else(|| rank_local::with_thread(call))
}

/// The rank that runs here, where the name of its thread does not tell: a virtual rank or a process.
pub(crate) fn unnamed_rank() -> Option<usize> {
    with_present(|present| {
        let Endpoint { rank, world, .. } = &*present?.ctx.endpoint;
        let thread = std::thread::current();
        let told = thread.name().is_some_and(|name| name.ends_with(&format!(" {rank}")));
        (world.mode != Mode::Threads || !told).then_some(*rank)
    })
}
