//! The end of a block: whether the ranks of all processes have made the same calls, and all that
//! was sent has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use super::compare::{allgather, cut_fault, differences, exchange};
use super::joined::Cluster;
use super::rounds::Rounds;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::transport::fabric::{BlockLayout, NativeCollective, ProcessBlocks};
use crate::transport::shared::World;
use crate::transport::shared::contexts::area_of;
use crate::transport::shared::layout::SLOTS;
use crate::wait;

/// In the number of packets that a process has sent: it has, or had, windows for whose parts others
/// ask it.
const WINDOWS: u64 = 1 << 63;

impl Cluster {
    /// Waits until the ranks of all processes have left the block, as those of this one have, and
    /// all packets that were sent have been taken. Complains if the ranks of different processes
    /// made different calls.
    pub(crate) fn finish(
        self: &Arc<Cluster>,
        world: &World,
        block: u32,
        call: &Call<'_>,
    ) -> Result<()> {
        self.ended.store(true, Release);
        let outcome = match self.survives {
            false => self.compare(world, block),
            true if self.all_have_left(world)? => {
                self.unless_lost(world, self.compare(world, block))
            }
            true => Ok(None),
        };
        self.shut_ledger();
        if outcome.is_ok() {
            self.at_exit.leave();
            self.detector.iter().for_each(|detector| detector.leave());
        }
        let differ = outcome?;
        self.leave_it_to_first();
        differ.map_or(Ok(()), |fault| Err(Error::stopped(fault, call)))
    }

    /// Takes all packets that were sent, and gives what differs in the calls of different
    /// processes. All call it together.
    fn compare(self: &Arc<Cluster>, world: &World, block: u32) -> Result<Option<Fault>> {
        self.close_ledger(world);
        // The answers to what was taken, which no rank awaits any more, would come into the next block.
        if self.take_all(world)? {
            self.take_all(world)?;
        }
        let processes = self.fabric.processes();
        let first = self.local().start;
        let last = world.memory.area(first, area_of(block)).done.0.load(Acquire);
        let rounds = Rounds::of(world, first, area_of(block), last, SLOTS);
        // SAFETY: memory that the step names is held while it is made.
        let all = allgather(processes, &rounds, |step| unsafe { self.make_with_all(step) })?;
        let leaders = (0..processes).map(|process| process * self.each);
        let differ = differences(leaders.zip(all), true);
        let mut found = self.found_in_ledger();
        found.iter_mut().for_each(cut_fault);
        // SAFETY: as above.
        let all = exchange(processes, &found, |step| unsafe { self.make_with_all(step) })?;
        self.merge_trace()?;
        Ok(differ.or_else(|| all.into_iter().flatten().next()))
    }

    /// Takes all packets that any process has sent before it calls this, as all do together. Whether
    /// some process has, or had, a window whose ranks live in several: then what was taken may have
    /// been answered meanwhile.
    fn take_all(self: &Arc<Cluster>, world: &World) -> Result<bool> {
        let windows = if world.has_served() { WINDOWS } else { 0 };
        let sent: Vec<u64> = self.sent.iter().map(|it| it.load(Relaxed) | windows).collect();
        let mut expected = vec![0u64; self.fabric.processes()];
        let parts = |memory: *mut u8| ProcessBlocks { memory, layout: BlockLayout::Equal(8) };
        let send = parts(sent.as_ptr().cast_mut().cast());
        let recv = parts(expected.as_mut_ptr().cast());
        // SAFETY: both have eight bytes for each process, and `send` is only read.
        unsafe { self.await_all(world, NativeCollective::Alltoall { send, recv })? };
        let complete =
            |(taken, expected): (&AtomicU64, &u64)| taken.load(Acquire) >= *expected & !WINDOWS;
        while !self.taken.iter().zip(&expected).all(complete) && !self.has_lost_any() {
            self.take_packet(world)?;
            wait::relax();
        }
        Ok(expected.iter().any(|it| it & WINDOWS != 0))
    }
}
