//! Blocks: `spmd(n, ..)` and the builder behind it.

mod finished;
mod rank;
mod running;
mod work;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::affinity::Bind;
use crate::algorithm::{Algorithm, Kind};
use crate::ctx::Ctx;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::mode::Mode;
use crate::plane::Plane;
use crate::progress::Progress;
use crate::transport::cluster::Cluster;
use crate::transport::shared::memory::Memory;
pub(crate) use rank::{check_all_received, run_rank};
pub(crate) use work::{Shared, Work};

/// Runs `f` on `n` ranks, each a thread unless `SPMD_AS` says `virtual`, and gives their results in
/// rank order. `f` may borrow from the caller. It returns when all ranks have ended. One thread
/// calls it, any thread; a rank that calls it opens a block of its own.
///
/// Errors: that of the first rank that failed (a panic is [`Error::Panicked`]); the others were
/// stopped by it. [`Error::Unreceived`], for messages that nobody received; [`Error::Argument`],
/// if `n` is 0 or more than a block can have; [`Error::Unavailable`], if so many threads do not
/// fit into a process; [`Error::System`], if the system refuses threads or memory;
/// [`Error::Reentrant`], in a user operation; [`Error::Boot`], if an `SPMD_*` variable makes no
/// sense.
///
/// ```
/// use spmd::prelude::*;
///
/// let ranks = spmd(4, |ctx| Ok(ctx.rank() * 10))?;
/// assert_eq!(ranks, [0, 10, 20, 30]);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn spmd<R, F>(n: usize, f: F) -> Result<Vec<R>>
where
    F: Fn(&Ctx) -> Result<R> + Sync,
    R: Send,
{
    Spmd::new(n).run(f)
}

/// Where the ranks of a block meet.
pub(crate) enum Arena {
    /// In memory of its own.
    Own,
    /// In memory that the launcher has made.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "it needs Linux"))]
    Given(Memory),
    /// In memory of its own, with the ranks of other processes elsewhere.
    Cluster(Arc<Cluster>),
}

impl Arena {
    fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Arena::Cluster(cluster) => Some(cluster),
            _ => None,
        }
    }
}

/// Sets up a block.
///
/// ```
/// use spmd::prelude::*;
///
/// let shares = vec![vec![1, 2], vec![3]];
/// let sums = Spmd::new(2).virtual_ranks().run_with(shares, |_ctx, share| {
///     Ok(share.iter().sum::<i32>())
/// })?;
/// assert_eq!(sums, [3, 3]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `run`"]
pub struct Spmd {
    ranks: usize,
    mode: Option<Mode>,
    stack_size: Option<usize>,
    workers: Option<usize>,
    timeout: Option<Duration>,
    progress: Option<Progress>,
    name: String,
    bind: Bind,
    forced: Vec<(Kind, Algorithm)>,
    segment: Option<usize>,
    window: Option<usize>,
    unreachable: bool,
    chaos: Option<u64>,
    planes: Vec<Arc<dyn Plane>>,
    resources: Option<String>,
}

impl Spmd {
    /// A block of `ranks` ranks: threads, unless `SPMD_AS` says otherwise.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let ranks = Spmd::new(3).run(|ctx| Ok(ctx.rank()))?;
    /// assert_eq!(ranks, [0, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(ranks: usize) -> Spmd {
        Spmd {
            ranks,
            mode: None,
            stack_size: None,
            workers: None,
            timeout: None,
            progress: None,
            name: "rank".into(),
            bind: Bind::None,
            forced: Vec::new(),
            segment: None,
            window: None,
            unreachable: false,
            chaos: None,
            planes: Vec::new(),
            resources: None,
        }
    }

    /// Ranks are OS threads.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let names = Spmd::new(2).threads().run(|_ctx| Ok(std::thread::current().name().map(String::from)))?;
    /// assert_eq!(names[1].as_deref(), Some("rank 1"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn threads(mut self) -> Spmd {
        self.mode = Some(Mode::Threads);
        self
    }

    /// Ranks are coroutines on a few worker threads: thousands fit on a laptop. What such a rank
    /// may not do: hold an OS lock (a `MutexGuard`) across a call of this library, rely on
    /// thread-locals, which it shares with other ranks, or wait for another rank by other means
    /// than this library's.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let around = Spmd::new(1000).virtual_ranks().run(|ctx| {
    ///     let (right, left) = ((ctx.rank() + 1) % 1000, (ctx.rank() + 999) % 1000);
    ///     ctx.send(&[ctx.rank()], right, 0)?;
    ///     Ok(ctx.recv_vec::<usize>(left, 0)?.0[0])
    /// })?;
    /// assert_eq!(around[0], 999);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn virtual_ranks(mut self) -> Spmd {
        self.mode = Some(Mode::Virtual);
        self
    }

    /// Bytes of stack of each rank. Without it: `SPMD_STACK_SIZE`, else 1 MiB for a virtual rank
    /// and Rust's default for a thread.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// Spmd::new(100).virtual_ranks().stack_size(64 << 10).run(|_ctx| Ok(()))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Spmd {
        self.stack_size = Some(bytes);
        self
    }

    /// Worker threads of virtual ranks. Without it: the cores that this process may use.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // All ranks take turns on one thread.
    /// Spmd::new(100).virtual_ranks().workers(1).run(|_ctx| Ok(()))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn workers(mut self, workers: usize) -> Spmd {
        self.workers = Some(workers);
        self
    }

    /// How long one call may wait; then it is [`Error::Timeout`] on its rank, and the others are
    /// stopped as by any error. Choose it longer than the longest time between two calls of a rank.
    /// Without it: `SPMD_TIMEOUT` in seconds, else for ever.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use std::time::Duration;
    ///
    /// let ended = Spmd::new(2).timeout(Duration::from_millis(50)).run(|ctx| {
    ///     if ctx.rank() == 0 {
    ///         ctx.recv(&mut [0u8], 1, 0)?; // rank 1 computes for longer than that
    ///     } else {
    ///         std::thread::sleep(Duration::from_millis(400));
    ///     }
    ///     Ok(())
    /// });
    /// assert!(matches!(ended, Err(Error::Timeout(_))));
    /// ```
    pub fn timeout(mut self, limit: Duration) -> Spmd {
        self.timeout = Some(limit);
        self
    }

    /// Who goes on with what ranks have started (`.._start`, persistent calls, messages, those of
    /// [`Comm::requests`](crate::Comm::requests)) while the ranks do something else. Without it:
    /// `SPMD_PROGRESS`, else [`Progress::Calls`].
    ///
    /// With [`Progress::Thread`] a thread beside each rank carries out collectives and messages of
    /// more than 8 KiB (of receives, 64 of a rank at a time), from the first that the rank starts to
    /// the end of the block; it uses the cores that the rank may use. Operations run on
    /// it: [`rank_local!`](crate::rank_local!) has values of the thread's own there. Virtual ranks have
    /// no such thread, and calls that other threads of the program start go on in the calls of these.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::Progress;
    ///
    /// let ranks = Spmd::new(2).progress(Progress::Thread).run(|ctx| Ok(ctx.rank()))?;
    /// assert_eq!(ranks, [0, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn progress(mut self, progress: Progress) -> Spmd {
        self.progress = Some(progress);
        self
    }

    /// What the threads of ranks are called in panic messages and debuggers: `name 3`, or of virtual
    /// ranks, which share them, `name worker 3`. Without it: `rank 3`, `rank worker 3`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let names = Spmd::new(2).name("solver").run(|_ctx| Ok(std::thread::current().name().map(String::from)))?;
    /// assert_eq!(names[1].as_deref(), Some("solver 1"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Spmd {
        self.name = name.into();
        self
    }

    /// What this process has for the tasks of its ranks, whatever `SPMD_RESOURCES` says: how many
    /// workers (`cpu=4`), numbered units of something in groups that belong together
    /// (`gpu=(0,1),(2,3)`; `gpu=2` counts them from 0), and amounts (`license=2.5`), with `;` between them.
    /// Tasks ask for it, and wait until it is free.
    ///
    /// Errors, of [`Spmd::run`]: it makes no sense.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// Spmd::new(2).resources("gpu=(0,1),(2,3); license=1").run(|_ctx| Ok(()))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn resources(mut self, declared: impl Into<String>) -> Spmd {
        self.resources = Some(declared.into());
        self
    }

    /// Binds ranks (virtual ranks: their workers) to cores. Linux only; elsewhere ignored.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::Bind;
    ///
    /// Spmd::new(4).bind(Bind::List(vec![0])).run(|_ctx| Ok(()))?; // all on core 0
    /// # Ok::<(), Error>(())
    /// ```
    pub fn bind(mut self, bind: Bind) -> Spmd {
        self.bind = bind;
        self
    }

    /// Uses this algorithm for this call wherever it can serve, as `SPMD_FORCE` does for all
    /// blocks. `docs/algorithms.md` tells what each does; a result does not depend on it.
    ///
    /// Errors, when the block is run: the call has no such algorithm.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::algorithm::{Algorithm, Kind};
    ///
    /// Spmd::new(4).force(Kind::Allreduce, Algorithm::Tree).run(|_ctx| Ok(()))?;
    /// assert!(Spmd::new(4).force(Kind::Barrier, Algorithm::Tree).run(|_ctx| Ok(())).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn force(mut self, call: Kind, algorithm: Algorithm) -> Spmd {
        self.forced.push((call, algorithm));
        self
    }

    /// Bytes of a segment, at least 64, where large data go through staging areas. Without it:
    /// `SPMD_SEGMENT`, else what a tuning file says, else 131072.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// Spmd::new(2).segment(1 << 20).run(|_ctx| Ok(()))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn segment(mut self, bytes: usize) -> Spmd {
        self.segment = Some(bytes);
        self
    }

    /// Bytes of small messages that a rank keeps from each other one before it has received them: a
    /// sender that finds so many there waits until its next one is received. (Virtual ranks, and
    /// more than 256 threads: from all others together, or 64 KiB for each rank if that is more.)
    /// Without it: `SPMD_WINDOW`, else 64 MiB.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // 10 MB in all, of which rank 1 never has more than about 1 MB.
    /// Spmd::new(2).window(1 << 20).run(|ctx| {
    ///     for _ in 0..10_000 {
    ///         match ctx.rank() {
    ///             0 => ctx.send(&[0u8; 1000], 1, 0)?,
    ///             _ => ctx.recv(&mut [0u8; 1000], 0, 0).map(drop)?,
    ///         }
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn window(mut self, bytes: usize) -> Spmd {
        self.window = Some(bytes);
        self
    }

    /// Delays before and after each call, the same for the same seed, and messages from different
    /// sources in any order: a program that is right stays right, one that has been lucky may not
    /// be. Without it: `SPMD_CHAOS`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// Spmd::new(2).chaos(7).run(|_ctx| Ok(()))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn chaos(mut self, seed: u64) -> Spmd {
        self.chaos = Some(seed);
        self
    }

    /// Ranks take each other's buffers for unreachable and what comes from others for unchecked,
    /// as ranks in processes of their own must: for tests of these paths.
    #[doc(hidden)]
    pub fn unreachable_buffers(mut self) -> Spmd {
        self.unreachable = true;
        self
    }

    /// With something that carries out calls on memory of its own by its own means: `Local` or `Staged`
    /// of `spmd-gpu`, on device buffers. Of several, the first does a call that can.
    pub fn plane(mut self, plane: Arc<dyn Plane>) -> Spmd {
        self.planes.push(plane);
        self
    }

    /// Runs `f` on every rank; results in rank order.
    ///
    /// Errors: as [`spmd`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let squares = Spmd::new(3).run(|ctx| Ok(ctx.rank() * ctx.rank()))?;
    /// assert_eq!(squares, [0, 1, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn run<R, F>(self, f: F) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        self.run_at(Location::caller(), Arena::Own, f)
    }

    /// [`Spmd::run`], called at `site`, in this arena.
    pub(crate) fn run_at<R, F>(
        self,
        site: &'static Location<'static>,
        arena: Arena,
        f: F,
    ) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        let shares = vec![(); self.ranks];
        self.run_all(site, arena, shares, |ctx, ()| f(ctx))
    }

    /// Runs `f` on every rank, the i-th share going to rank i; results in rank order.
    ///
    /// Errors: as [`Spmd::run`]; the number of shares is not the number of ranks.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let mut field = [1, 2, 3, 4];
    /// let halves = field.chunks_mut(2).collect();
    /// Spmd::new(2).run_with(halves, |ctx, half: &mut [i32]| {
    ///     half[0] = ctx.rank() as i32;
    ///     Ok(())
    /// })?;
    /// assert_eq!(field, [0, 2, 1, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn run_with<A, R, F>(self, shares: Vec<A>, f: F) -> Result<Vec<R>>
    where
        F: Fn(&Ctx, A) -> Result<R> + Sync,
        A: Send,
        R: Send,
    {
        self.run_all(Location::caller(), Arena::Own, shares, f)
    }
}
