//! Blocks: `spmd(n, ..)`, the builder behind it, and what every rank does at its start and end.

mod binding;
mod running;

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault, note_panics, panic_text};
use crate::transport::shared::contexts::board_of;
use crate::transport::shared::memory::Memory;
use crate::transport::shared::{Endpoint, Mode, Reach, state};

/// Runs `f` on `n` ranks, each a thread, and gives their results in rank order. `f` may borrow
/// from the caller.
///
/// Errors: that of the first rank that failed; the others were stopped by it. Messages that
/// nobody received.
///
/// ```
/// # use spmd_core::{spmd, Result};
/// let ranks = spmd(4, |ctx| Ok(ctx.rank() * 10))?;
/// assert_eq!(ranks, [0, 10, 20, 30]);
/// # Ok::<(), spmd_core::Error>(())
/// ```
#[track_caller]
pub fn spmd<R, F>(n: usize, f: F) -> Result<Vec<R>>
where
    F: Fn(&Ctx) -> Result<R> + Sync,
    R: Send,
{
    Spmd::new(n).run(f)
}

/// To which cores the ranks of a block are bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// To none: the system decides.
    #[default]
    None,
    /// Rank i to the i-th of the cores that this process may use, over again where there are
    /// more ranks.
    Cores,
    /// Rank i to the i-th of these cores, over again where there are more ranks.
    List(Vec<usize>),
    /// Rank i to the i-th of these sets of cores, over again where there are more ranks.
    Sets(Vec<Vec<usize>>),
}

/// Sets up a block.
///
/// ```
/// # use spmd_core::{Spmd, Result};
/// let shares = vec![vec![1, 2], vec![3]];
/// let sums = Spmd::new(2).virtual_ranks().run_with(shares, |_ctx, share| {
///     Ok(share.iter().sum::<i32>())
/// })?;
/// assert_eq!(sums, [3, 3]);
/// # Ok::<(), spmd_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spmd {
    ranks: usize,
    mode: Option<Mode>,
    stack_size: Option<usize>,
    workers: Option<usize>,
    timeout: Option<Duration>,
    name: String,
    bind: Bind,
    forced: Vec<(String, String)>,
    segment: Option<usize>,
    unreachable: bool,
}

impl Spmd {
    /// A block of `ranks` ranks: threads, unless `SPMD_AS` says otherwise.
    pub fn new(ranks: usize) -> Spmd {
        Spmd {
            ranks,
            mode: None,
            stack_size: None,
            workers: None,
            timeout: None,
            name: "rank".into(),
            bind: Bind::None,
            forced: Vec::new(),
            segment: None,
            unreachable: false,
        }
    }

    /// Ranks are OS threads.
    pub fn threads(mut self) -> Spmd {
        self.mode = Some(Mode::Threads);
        self
    }

    /// Ranks are coroutines on a few worker threads: thousands fit on a laptop. What such a rank
    /// may not do: hold an OS lock (a `MutexGuard`) across a call of this library, or rely on
    /// thread-locals, which it shares with other ranks.
    pub fn virtual_ranks(mut self) -> Spmd {
        self.mode = Some(Mode::Virtual);
        self
    }

    /// Bytes of stack of each rank. Without it: `SPMD_STACK_SIZE`, else 1 MiB for a virtual rank
    /// and Rust's default for a thread.
    pub fn stack_size(mut self, bytes: usize) -> Spmd {
        self.stack_size = Some(bytes);
        self
    }

    /// Worker threads of virtual ranks. Without it: the cores that this process may use.
    pub fn workers(mut self, workers: usize) -> Spmd {
        self.workers = Some(workers);
        self
    }

    /// How long a call may wait. Without it: `SPMD_TIMEOUT` in seconds, else for ever.
    pub fn timeout(mut self, limit: Duration) -> Spmd {
        self.timeout = Some(limit);
        self
    }

    /// What ranks are called in panic messages and debuggers: `name 3`. Without it: `rank 3`.
    pub fn name(mut self, name: impl Into<String>) -> Spmd {
        self.name = name.into();
        self
    }

    /// Binds ranks (virtual ranks: their workers) to cores. Linux only; elsewhere ignored.
    pub fn bind(mut self, bind: Bind) -> Spmd {
        self.bind = bind;
        self
    }

    /// Uses this algorithm for this call wherever it can serve: `force("allreduce", "tree")`.
    pub fn force(mut self, call: impl Into<String>, algorithm: impl Into<String>) -> Spmd {
        self.forced.push((call.into(), algorithm.into()));
        self
    }

    /// Bytes of a segment, where large data go through staging areas.
    pub fn segment(mut self, bytes: usize) -> Spmd {
        self.segment = Some(bytes);
        self
    }

    /// Ranks take each other's buffers for unreachable and what comes from others for unchecked,
    /// as ranks in processes of their own must: for tests of these paths.
    #[doc(hidden)]
    pub fn unreachable_buffers(mut self) -> Spmd {
        self.unreachable = true;
        self
    }

    /// Runs `f` on every rank; results in rank order. Errors: as [`spmd`].
    #[track_caller]
    pub fn run<R, F>(self, f: F) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        self.run_at(Location::caller(), None, f)
    }

    /// [`Spmd::run`], called at `site`, in an arena that the launcher has made, if one is given.
    pub(crate) fn run_at<R, F>(
        self,
        site: &'static Location<'static>,
        memory: Option<Memory>,
        f: F,
    ) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        let shares = vec![(); self.ranks];
        self.run_all(site, memory, shares, |ctx, ()| f(ctx))
    }

    /// Runs `f` on every rank, the i-th share going to rank i; results in rank order.
    ///
    /// Errors: as [`spmd`]; the number of shares is not the number of ranks.
    #[track_caller]
    pub fn run_with<A, R, F>(self, shares: Vec<A>, f: F) -> Result<Vec<R>>
    where
        F: Fn(&Ctx, A) -> Result<R> + Sync,
        A: Send,
        R: Send,
    {
        self.run_all(Location::caller(), None, shares, f)
    }
}

/// What a rank does: enter the block, run the program's closure, leave the block, telling the
/// others how it went. A panic is given back as the error side.
pub(crate) fn run_rank<R>(
    endpoint: &Arc<Endpoint>,
    block: u32,
    f: impl FnOnce(&Ctx) -> Result<R>,
) -> std::thread::Result<Result<R>> {
    let (world, rank) = (&endpoint.world, endpoint.rank);
    world.settle(rank);
    world.set_state(rank, block, state::INSIDE);
    note_panics();
    let ctx = Ctx::new(endpoint.clone(), block);
    let entered = ctx.enter();
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&ctx)));
    drop(entered);
    drop(ctx);
    let own = |cause| Some(Fault::Rank { rank, cause });
    let fault = match &outcome {
        Ok(Ok(_)) => None,
        // What stopped this rank also stops those that wait for it on other communicators.
        Ok(Err(error)) => error
            .fault()
            .filter(|fault| world.has_recorded(fault))
            .cloned()
            .or_else(|| own(Cause::Returned(error.to_string()))),
        Err(panic) => own(Cause::Panicked(panic_text(&**panic))),
    };
    let left = if let Some(fault) = fault {
        world.raise(Reach::Rank { rank, block }, &fault);
        state::FAILED
    } else {
        state::LEFT
    };
    if world.mode == Mode::Processes {
        // The board of the next block, which was that of the one before the last: all are through
        // with it, as they have entered the last.
        endpoint.clear_board(board_of(block + 1));
    }
    world.set_state(rank, block, left);
    outcome
}

/// Complains about messages that nobody has received.
pub(crate) fn check_all_received(
    endpoint: &Endpoint,
    concerns: impl Fn(u64) -> bool,
) -> Result<()> {
    let Some((count, first)) = endpoint.unreceived(concerns)? else { return Ok(()) };
    let table = endpoint.world.memory.text(first.source as usize);
    Err(Error::Unreceived {
        rank: endpoint.rank,
        count,
        from: first.source as usize,
        tag: first.tag,
        len: first.count as usize,
        sent_at: format!("{}:{}", table.get(first.file), first.line),
    })
}
