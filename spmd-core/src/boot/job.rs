//! The arena of a job of processes, as the launcher makes it and as a rank finds it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitStatus;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, FdFlags};

use crate::environment::{PROTOCOL, parsed, variables};
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault};
use crate::mode::Mode;
use crate::settings::{Settings, handed_on, trace};
use crate::transport::shared::layout::{Agent, ArenaLayout, MAGIC};
use crate::transport::shared::memory::{Memory, Writable};
use crate::transport::shared::{Endpoint, FaultScope, World, state};
use crate::tuning::Tuning;
use crate::wait::{Fences, Policy, cores};

/// Seals that keep every access within the file's length valid.
fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW
}

fn not_ours() -> Error {
    let name = variables::ARENA;
    Error::boot(format!(
        "{name}={} is not the arena of this job; a program started by a rank must not inherit its \
         SPMD_* variables",
        std::env::var(name).unwrap_or_default()
    ))
}

/// The arena that the launcher has made, and its layout: what `layout` gives tells it from the
/// length of the file, if that may be. `None` without a launcher.
fn find<F>(layout: impl FnOnce() -> Result<F>) -> Result<Option<(OwnedFd, ArenaLayout)>>
where
    F: FnOnce(usize) -> Option<ArenaLayout>,
{
    let Some(fd) = parsed::<RawFd>(variables::ARENA, "a file descriptor")? else {
        return Ok(None);
    };
    let launcher = parsed::<u32>(variables::PROTOCOL, "a protocol version")?;
    if launcher != Some(PROTOCOL) {
        let theirs = launcher.map_or("an unknown protocol".into(), |v| format!("protocol {v}"));
        return Err(Error::boot(format!(
            "spmdrun speaks {theirs} and this program protocol {PROTOCOL}; install the spmdrun of \
             the program's version of spmd"
        )));
    }
    let layout = layout()?;
    if fd < 3 {
        return Err(not_ours());
    }
    // SAFETY: only looked at; if it is not open, the calls below say so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let found = rustix::fs::fcntl_get_seals(borrowed).map_err(|_| not_ours())?;
    let bytes = rustix::fs::fstat(borrowed).map_err(|_| not_ours())?.st_size;
    let layout = layout(bytes as usize).filter(|_| found.contains(seals()));
    let layout = layout.ok_or_else(not_ours)?;
    // SAFETY: the descriptor is the launcher's memfd, passed to this process for this use, as
    // its seals and length show; nothing else here knows of it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)
        .map_err(|e| Error::system("closing the arena on exec", e))?;
    Ok(Some((fd, layout)))
}

/// This process's end of the launcher's world of processes; `None` without a launcher.
pub(super) fn attach() -> Result<Option<Endpoint>> {
    let missing = |name: &str| Error::boot(format!("the variable {name} is not set"));
    let mut rank = 0;
    let of_rank = || {
        rank = parsed(variables::RANK, "a rank")?.ok_or_else(|| missing(variables::RANK))?;
        let size = parsed(variables::SIZE, "a size")?.ok_or_else(|| missing(variables::SIZE))?;
        if rank >= size {
            return Err(Error::boot(format!("rank {rank} of a job of {size} ranks")));
        }
        Ok(move |bytes| ArenaLayout::of_file(size, bytes))
    };
    let Some((fd, layout)) = find(of_rank)? else { return Ok(None) };
    let size = layout.ranks;
    let memory = Memory::map(fd.as_fd(), layout, Writable::Segment(rank))?;
    let header = memory.header();
    if header.magic.load(Acquire) != MAGIC || header.ranks.load(Relaxed) as usize != size {
        return Err(not_ours());
    }
    if header.records_bytes.load(Relaxed) != layout.heap_offset() as u64 {
        return Err(Error::boot(
            "spmdrun and this program lay the arena out differently; install the spmdrun of the \
             program's version of spmd"
                .into(),
        ));
    }
    let me = std::process::id();
    let first = memory.head(rank).pid.compare_exchange(0, me, AcqRel, Relaxed);
    if let Err(other) = first {
        return Err(Error::boot(format!(
            "process {other} is rank {rank} already; a program started by a rank must not inherit \
             its SPMD_* variables"
        )));
    }
    allow_reading_by_siblings(header.launcher.load(Relaxed));
    let settings = Settings::from_environment()?;
    let cores = settings.cores.unwrap_or_else(cores);
    let policy = Policy::new(cores, size - 1).with(Fences::new(true, size <= cores));
    let policy = policy.progressing(settings.progress);
    let tuned = handed_on()?;
    let built_in = if size > cores { settings.tuning.crowded() } else { settings.tuning };
    let tuning = Tuning { trace: trace()?, ..built_in.with(tuned.as_ref(), settings.segment) };
    let world = World::new(memory, Mode::Processes, policy, settings.timeout, tuning, None, None);
    let endpoint = Endpoint::new(Arc::new(world), rank);
    crate::shared_alloc::attach(endpoint.heap.clone(), fd, layout.segment_offset(rank));
    Ok(Some(endpoint))
}

/// The arena in which the launcher can see the ranks that this process runs all by itself.
pub(super) struct VisibleArena {
    fd: OwnedFd,
    layout: ArenaLayout,
    /// What holds the arena now.
    holder: Mutex<Weak<()>>,
}

impl VisibleArena {
    /// `None` without a launcher.
    pub(super) fn find(ranks: usize) -> Result<Option<VisibleArena>> {
        let layout = ArenaLayout::anonymous(ranks, 0);
        let found = find(|| Ok(|bytes| (bytes == layout.total_bytes()).then_some(layout)))?;
        Ok(found.map(|(fd, layout)| VisibleArena { fd, layout, holder: Mutex::default() }))
    }

    /// The arena, all zeros again. `None` while an earlier world still has it: a block around this
    /// one, or one at its side, or one that a communicator has outlived.
    pub(super) fn memory(&self) -> Result<Option<Memory>> {
        let mut holder = self.holder.lock();
        if holder.strong_count() > 0 {
            return Ok(None);
        }
        let mut memory = Memory::map(self.fd.as_fd(), self.layout, Writable::All)?;
        memory.clear()?;
        let lease = Arc::new(());
        *holder = Arc::downgrade(&lease);
        memory.hold(lease);
        Ok(Some(memory))
    }
}

/// Under Yama's restriction a process may be read by its declared tracer and that one's
/// descendants: the other ranks, for the launcher. A kernel without Yama refuses, and needs it
/// not.
fn allow_reading_by_siblings(launcher: u32) {
    // SAFETY: this call takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, u64::from(launcher), 0, 0, 0) };
}

/// The limit of file sizes forbids the arena.
fn too_long(layout: ArenaLayout) -> Error {
    let ArenaLayout { ranks, .. } = layout;
    Error::unavailable(
        format!("shared memory of {ranks} process ranks"),
        format!(
            "it is a file of {} bytes, which takes memory only where it is used, and the limit of \
             file sizes is lower",
            layout.total_bytes()
        ),
        format!(
            "lift the limit (ulimit -f unlimited), set {} to fewer bytes for each rank, or use \
             --as threads",
            variables::ARENA_SIZE
        ),
    )
}

/// The launcher's handle on the arena of one job.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Job {
    fd: OwnedFd,
    world: World,
}

impl Job {
    /// Makes the arena of a job of `ranks` processes: a sparse memory file without a name, sealed
    /// against shrinking and growing, that children inherit.
    ///
    /// Errors: the system refuses memory files of that size.
    pub fn create(ranks: usize) -> Result<Job> {
        Job::with(ArenaLayout::processes(ranks))
    }

    /// The same with so many bytes for each rank, as far as these are neither less than it needs
    /// nor more than it has without.
    ///
    /// Errors: as [`Job::create`].
    pub fn create_of_size(ranks: usize, each: usize) -> Result<Job> {
        Job::with(ArenaLayout::processes(ranks).with_segments(each))
    }

    /// The same for a job whose ranks all run in one process, as threads or virtual ranks: the
    /// launcher sees from it what they do and which failed first.
    ///
    /// Errors: as [`Job::create`].
    pub fn create_for_one_process(ranks: usize) -> Result<Job> {
        Job::with(ArenaLayout::anonymous(ranks, 0))
    }

    fn with(layout: ArenaLayout) -> Result<Job> {
        let ranks = layout.ranks;
        let system = |e| Error::system(format!("making the shared arena of {ranks} ranks"), e);
        let fd = rustix::fs::memfd_create("spmd", MemfdFlags::ALLOW_SEALING).map_err(system)?;
        rustix::fs::ftruncate(&fd, layout.total_bytes() as u64).map_err(|error| match error {
            Errno::FBIG => too_long(layout),
            other => system(other),
        })?;
        rustix::fs::fcntl_add_seals(&fd, seals()).map_err(system)?;
        let memory = Memory::map(fd.as_fd(), layout, Writable::Control)?;
        let header = memory.header();
        header.ranks.store(ranks as u32, Relaxed);
        header.protocol.store(PROTOCOL, Relaxed);
        header.records_bytes.store(layout.heap_offset() as u64, Relaxed);
        header.launcher.store(std::process::id(), Relaxed);
        header.magic.store(MAGIC, Release);
        let world = World::new(
            memory,
            Mode::Processes,
            Policy::new(1, ranks),
            None,
            Tuning::default(),
            None,
            None,
        );
        Ok(Job { fd, world })
    }

    /// What to put into the environment of a process that runs all ranks.
    pub fn environment_of_one_process(&self) -> Vec<(String, String)> {
        let all = self.environment(0).into_iter();
        all.filter(|(name, _)| name != variables::RANK && name != variables::SIZE).collect()
    }

    /// What to put into the environment of a rank's process.
    pub fn environment(&self, rank: usize) -> Vec<(String, String)> {
        [
            (variables::RANK, rank.to_string()),
            (variables::SIZE, self.world.size().to_string()),
            (variables::ARENA, self.fd.as_raw_fd().to_string()),
            (variables::PROTOCOL, PROTOCOL.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Whether the rank has ever entered the world.
    pub fn entered(&self, rank: usize) -> bool {
        self.world.memory.head(rank).state.load(Acquire) != 0
    }

    /// Whether the rank has left its last block, with whatever result.
    pub fn finished(&self, rank: usize) -> bool {
        let at = self.world.memory.head(rank).state.load(Acquire) & 3;
        at == state::LEFT || at == state::FAILED
    }

    /// Whether the rank is in a block in which it has called `agree` or `shrink`: it means to go on
    /// when others fail.
    pub fn goes_on(&self, rank: usize) -> bool {
        self.world.memory.head(rank).goes_on.load(Acquire) != 0
    }

    /// Whether others have gone on without the rank.
    pub fn departed(&self, rank: usize) -> bool {
        self.world.memory.bell(rank).departed.load(Acquire) != 0
    }

    /// Says that a rank's process is gone, as the kernel has confirmed: records the cause, if
    /// its rank was inside a block, or never entered one while others did or may still do, and
    /// wakes those who wait for it.
    pub fn died(&self, rank: usize, status: ExitStatus) {
        use std::os::unix::process::ExitStatusExt;
        let others = (0..self.world.size()).any(|other| other != rank && self.entered(other));
        let early = others || !status.success();
        let missed = if self.entered(rank) { !self.finished(rank) } else { early };
        if missed {
            let cause = match status.signal() {
                Some(signal) => Cause::Killed(signal),
                None => Cause::Exited(status.code().unwrap_or(0)),
            };
            self.world.raise(FaultScope::Rank { rank, block: 0 }, &Fault::Rank { rank, cause });
        }
        // After the cause, which whoever sees this asks for.
        self.world.memory.bell(rank).dead.store(1, Release);
        self.world.ring_all();
    }

    /// Says that a rank's process is gone, which has left its last block properly. Whoever waits
    /// for it in another one sees that at its next look.
    pub fn ended_well(&self, rank: usize) {
        self.world.memory.bell(rank).dead.store(1, Release);
    }

    /// What stopped the job first, if anything did: the rank, where one failed, and the cause in
    /// words. Ranks without which others have gone on come last, and blocks that all others have
    /// gone on from do not count.
    pub fn first_cause(&self) -> Option<(Option<usize>, String)> {
        let ranks = (0..self.world.size()).filter(|rank| !self.departed(*rank));
        let oldest = ranks.map(|rank| self.world.block_of(rank)).min().unwrap_or(0);
        let mut faults = self.world.faults();
        faults.retain(|(block, _)| *block == 0 || *block >= oldest);
        let lasting = |fault: &&Fault| !fault.rank().is_some_and(|rank| self.departed(rank));
        let mut faults = faults.iter().map(|(_, fault)| fault);
        let first = faults.clone().next();
        let fault = faults.find(lasting).or(first)?;
        let failed = match fault {
            Fault::Rank { rank, .. } => Some(*rank),
            _ => None,
        };
        Some((failed, fault.cause()))
    }

    /// What the rank is doing, in a line.
    pub fn report(&self, rank: usize) -> String {
        let head = self.world.memory.head(rank);
        if self.world.is_dead(rank) {
            return "its process has ended".into();
        }
        if !self.entered(rank) {
            return "has not entered the world".into();
        }
        if self.finished(rank) {
            return "has left the block".into();
        }
        let now = self.world.now_ms();
        let waits = head.agents.iter().filter(|agent| agent.epoch.load(Acquire) % 2 == 1);
        let lines: Vec<String> = waits
            .map(|agent| {
                let call = self.world.describe(rank, &agent.call);
                let since = agent.since.load(Relaxed);
                let since = if since == 0 { now } else { since };
                let seconds = now.saturating_sub(since) as f64 / 1000.0;
                let on = match agent.on.load(Relaxed) {
                    Agent::ANY => "any rank".into(),
                    on => format!("rank {}", on.wrapping_sub(1)),
                };
                format!("{call}, for {seconds:.1} s, waiting for {on}")
            })
            .collect();
        if lines.is_empty() { "computing".into() } else { lines.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_that_no_rank_would_write_are_not_told() {
        let job = Job::create(3).unwrap();
        let exited = |rank| Fault::Rank { rank, cause: Cause::Exited(3) };
        job.world.raise(FaultScope::Rank { rank: 0, block: 0 }, &exited(1_000_000));
        job.world.raise(FaultScope::All, &exited(usize::MAX));
        assert_eq!(job.first_cause(), None);
        let place = job.world.memory.death(2);
        place.len.store(u32::MAX, Relaxed);
        place.text[0].store(u8::MAX, Relaxed);
        place.state.store(1, Relaxed);
        assert_eq!(job.first_cause(), None);
        job.world.raise(FaultScope::Rank { rank: 1, block: 0 }, &exited(1));
        assert_eq!(job.first_cause().unwrap().0, Some(1));
    }

    /// All that ranks write and the launcher reads, filled with each of these.
    #[test]
    fn any_words_can_be_reported() {
        for word in [0, 1, 3, 0xff, 1 << 16 | 1, u64::MAX >> 1, u64::MAX] {
            let job = Job::create_of_size(2, 0).unwrap();
            let end = job.world.memory.layout.total_bytes() - 8;
            let file = std::fs::File::from(job.fd.try_clone().unwrap());
            let text = job.world.memory.layout.text_offset();
            let starts = [job.world.memory.layout.records_offset(0), 0];
            for (start, bytes) in starts.into_iter().zip([text + (32 << 10), 1 << 20]) {
                let words = word.to_le_bytes().repeat(bytes.min(end) / 8);
                std::os::unix::fs::FileExt::write_all_at(&file, &words, start as u64).unwrap();
            }
            for rank in 0..2 {
                let said = (job.entered(rank), job.finished(rank), job.departed(rank));
                assert!(!job.report(rank).is_empty(), "{said:?}");
            }
            job.died(0, ExitStatus::default());
            job.first_cause();
        }
    }
}
