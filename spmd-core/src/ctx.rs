//! What a rank's closure receives.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::transport::shared::{Endpoint, Mode};

/// A rank's view of its block: it derefs to the communicator of all its ranks.
///
/// It stays with its rank: a thread or task cannot capture it by accident, only a communicator
/// of its own (`ctx.dup()`).
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
    pub(crate) fn new(endpoint: Arc<Endpoint>, block: u32) -> Ctx {
        let comm = Comm::world(endpoint.clone(), block);
        Ctx { comm, endpoint, _not_send: PhantomData }
    }

    /// Where the ranks of this block run.
    pub fn mode(&self) -> Mode {
        self.endpoint.world.mode
    }

    /// Memory for `n` values, all bytes zero at first, that peers on the host can reach: a
    /// collective or large message on it needs no copy on the way. Only this rank dereferences
    /// it.
    ///
    /// Errors: the arena is full.
    pub fn alloc_shared<T: crate::Element>(&self, n: usize) -> Result<crate::SharedBuf<T>> {
        crate::SharedBuf::new(&self.endpoint, n)
    }

    pub(crate) fn enter(&self) -> Entered {
        let before = CURRENT.replace(&raw const self.comm);
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

thread_local! {
    /// The communicator of the rank that runs on this thread now. Waits of virtual ranks put it
    /// back when they go on ([`set_current`]).
    static CURRENT: Cell<*const Comm> = const { Cell::new(std::ptr::null()) };
}

/// Leaves the rank again when dropped.
pub(crate) struct Entered(*const Comm);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// The rank that runs on this thread, for a wait to put back when it goes on.
pub(crate) fn current() -> *const Comm {
    CURRENT.get()
}

/// Whether the rank that runs on this thread is that of this end.
pub(crate) fn is_rank_of(endpoint: &Endpoint) -> bool {
    with_current(|comm| Ok(comm.is_of(endpoint))).unwrap_or(false)
}

/// Puts back what [`current`] gave.
pub(crate) fn set_current(current: *const Comm) {
    CURRENT.set(current);
}

/// Gives the communicator of the rank that runs here to `f`, for code without a `ctx`.
///
/// Errors: no rank runs here.
pub fn with_current<R>(f: impl FnOnce(&Comm) -> Result<R>) -> Result<R> {
    let current = CURRENT.get();
    if current.is_null() {
        return Err(Error::Argument(
            "no rank runs on this thread: call this inside spmd(..) or spmd::run(..), on the \
             rank's own thread"
                .into(),
        ));
    }
    // SAFETY: a pointer in CURRENT leads to the communicator of a `Ctx` that lives on a stack
    // frame below this one: it is taken out again before that frame ends (`Entered`). What other
    // coroutines put there in between is overwritten when this one goes on (`set_current`, at
    // every suspension), and a coroutine leaves nothing there when it ends.
    f(unsafe { &*current })
}
