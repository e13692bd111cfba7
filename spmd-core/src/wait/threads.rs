//! What the threads of this process do, as far as the library knows: whether somebody is left who
//! could act.
//!
//! A thread that the library did not start may hold a communicator, and do anything with it. So
//! searches of waits ask whether there is one, by the number of threads that the system tells.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use parking_lot::Mutex;

/// Threads of this process that run ranks now, over all blocks.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// How many threads of this process run ranks now, or what these have started.
pub(super) fn running() -> usize {
    RUNNING.load(Relaxed) + BUSY.load(Relaxed)
}

/// Held while what is counted here changes, and while it is compared.
static COUNTING: Mutex<()> = Mutex::new(());

/// Counts a thread that runs ranks of one world, as long as it lives.
pub(crate) struct RankThread(Arc<AtomicUsize>);

impl RankThread {
    pub(crate) fn new(of_world: &Arc<AtomicUsize>) -> RankThread {
        let _counting = COUNTING.lock();
        RUNNING.fetch_add(1, Relaxed);
        of_world.fetch_add(1, Relaxed);
        RankThread(of_world.clone())
    }
}

impl Drop for RankThread {
    fn drop(&mut self) {
        let _counting = COUNTING.lock();
        RUNNING.fetch_sub(1, Relaxed);
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Threads that open or close a block: they run, although each that is to run ranks may be counted
/// in place of one of them.
static OPENING: AtomicUsize = AtomicUsize::new(0);

/// Counts a thread that opens or closes a block, as long as it lives.
pub(crate) struct Opening(());

impl Opening {
    pub(crate) fn new() -> Opening {
        let _counting = COUNTING.lock();
        OPENING.fetch_add(1, Relaxed);
        Opening(())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let _counting = COUNTING.lock();
        OPENING.fetch_sub(1, Relaxed);
    }
}

/// Whether every thread of this process runs ranks of this world, or only waits for a block to end.
/// Where that cannot be told, no. A thread that starts another one is itself one that runs.
pub(crate) fn nobody_else_runs(of_world: &AtomicUsize) -> bool {
    let _counting = COUNTING.lock();
    let ranks = of_world.load(Relaxed) + RANKS_THAT_WAIT.load(Relaxed);
    let others = RUNNING.load(Relaxed) != ranks || OPENING.load(Relaxed) > 0;
    !others && !foreign_threads(0)
}

/// Where every thread of this process runs ranks of this world, or waits in the library: how many
/// of the program's own threads have ended such a wait so far.
pub(crate) fn all_wait(of_world: &AtomicUsize) -> Option<usize> {
    let _counting = COUNTING.lock();
    let ranks = of_world.load(Relaxed) + RANKS_THAT_WAIT.load(Relaxed);
    let others = RUNNING.load(Relaxed) != ranks || OPENING.load(Relaxed) > 0;
    let waiting = OUTSIDERS.load(Relaxed);
    (!others && !foreign_threads(waiting)).then(|| OUTSIDERS_GONE.load(Relaxed))
}

/// Threads of the program's own, which run no rank, that wait in the library.
static OUTSIDERS: AtomicUsize = AtomicUsize::new(0);
/// How many have ended such a wait.
static OUTSIDERS_GONE: AtomicUsize = AtomicUsize::new(0);

/// Counts a thread of the program's own that waits in the library, as long as it lives.
pub(crate) struct Outsider(());

impl Outsider {
    pub(crate) fn new() -> Outsider {
        let _counting = COUNTING.lock();
        OUTSIDERS.fetch_add(1, Relaxed);
        Outsider(())
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _counting = COUNTING.lock();
        OUTSIDERS.fetch_sub(1, Relaxed);
        OUTSIDERS_GONE.fetch_add(1, Relaxed);
    }
}

/// Whether this process has threads that the library did not start and that are not waiting in
/// it, but so many; such a thread may hold a communicator. Where that cannot be told, yes.
fn foreign_threads(besides: usize) -> bool {
    let own = OWN.lock();
    let others = match own.is_empty() {
        // The kernel is asked for their number, not for a list: each of thousands of ranks asks.
        true => thread_count(),
        false => threads().map(|threads| threads.iter().filter(|it| !own.contains(it)).count()),
    };
    let known = RUNNING.load(Relaxed) + OPENERS.load(Relaxed) + HELPERS.load(Relaxed) + besides;
    others.is_none_or(|others| others > known)
}

/// How many threads this process has, where the system tells.
fn thread_count() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"))?;
    line.trim().parse().ok()
}

/// Threads that were started for the library's own use, by it or by what it is built on. They
/// hold no communicator. Those that are started for several worlds are started once.
static OWN: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

/// Runs `start`, after which the threads that have come count as the library's own: also one that
/// the program has started at the same time.
pub(crate) fn starting_own_threads<R>(start: impl FnOnce() -> R) -> R {
    let before = threads();
    let result = start();
    if let (Some(before), Some(after)) = (before, threads()) {
        OWN.lock().extend(after.into_iter().filter(|thread| !before.contains(thread)));
    }
    result
}

/// A thread by its number, which the system gives again, and the time of its start.
#[derive(PartialEq)]
struct Thread(u32, u64);

/// The threads of this process, where the system tells.
fn threads() -> Option<Vec<Thread>> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let thread = |number: u32| {
        let facts = std::fs::read_to_string(format!("/proc/self/task/{number}/stat")).ok()?;
        // What follows the name, which may hold anything, in brackets.
        let facts = &facts[facts.rfind(')')? + 1..];
        Some(Thread(number, facts.split_whitespace().nth(19)?.parse().ok()?))
    };
    tasks.map(|task| thread(task.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// Threads of the library's own that wake who awaits requests, or carry out what ranks have started.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// Counts one, as long as it lives.
#[derive(Debug)]
pub(crate) struct Helper(());

thread_local! {
    /// Whether this thread is counted among them as long as it lives.
    static HELPS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is one of them, whatever it waits in.
pub(crate) fn helps() -> bool {
    HELPS.get()
}

impl Helper {
    /// Counts this thread to its end.
    pub(crate) fn this() -> Helper {
        HELPS.set(true);
        Helper::new()
    }

    pub(super) fn new() -> Helper {
        let _counting = COUNTING.lock();
        HELPERS.fetch_add(1, Relaxed);
        Helper(())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _counting = COUNTING.lock();
        HELPERS.fetch_sub(1, Relaxed);
    }
}

/// How many of them have something to carry out.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Counts one, as long as it lives, among those that need a core.
pub(super) struct Busy(());

impl Busy {
    pub(super) fn new() -> Busy {
        BUSY.fetch_add(1, Relaxed);
        Busy(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Relaxed);
    }
}

/// Threads that wait for a block they opened, and run no rank.
static OPENERS: AtomicUsize = AtomicUsize::new(0);
/// Threads of [`RUNNING`] that wait for a block that their rank has opened.
static RANKS_THAT_WAIT: AtomicUsize = AtomicUsize::new(0);

/// Counts a thread that only waits for its block to end, as long as it lives.
pub(crate) struct Opener(Option<&'static AtomicUsize>);

impl Opener {
    /// One that runs no rank and holds no communicator.
    pub(crate) fn alone() -> Opener {
        Opener::counted(&OPENERS)
    }

    /// One that runs a rank, and no other one meanwhile.
    pub(crate) fn rank() -> Opener {
        Opener::counted(&RANKS_THAT_WAIT)
    }

    /// One that may be doing something else: it is not counted.
    pub(crate) fn unknown() -> Opener {
        Opener(None)
    }

    fn counted(count: &'static AtomicUsize) -> Opener {
        let _counting = COUNTING.lock();
        count.fetch_add(1, Relaxed);
        Opener(Some(count))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let _counting = COUNTING.lock();
        if let Some(count) = self.0 {
            count.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_with_their_start() {
        let (before, (send, end)) = (threads().unwrap(), std::sync::mpsc::channel::<()>());
        let thread = std::thread::spawn(move || end.recv());
        let now = threads().unwrap();
        assert!(now.len() > before.len() - before.iter().filter(|it| !now.contains(it)).count());
        assert!(now.iter().all(|Thread(number, start)| *number > 0 && *start > 0));
        drop(send);
        let _ = thread.join();
    }
}
