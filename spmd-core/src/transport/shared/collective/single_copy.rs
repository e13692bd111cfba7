//! Reading peers' private buffers through the kernel, once all ranks of a communicator know that
//! all of them may.
//!
//! Every rank says what it knows in each call in which data go through staging areas: at first
//! nothing, then whether it could read a word of every peer, and whether that is fast here. All look at the same numbers, so all
//! come to the same conclusion in the same call, and choose alike from the next one on.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use super::place::{Reach, Reading};
use super::round::Round;
use crate::error::{Error, Result};
use crate::transport::shared::single_copy;

/// Numbers that ranks say: what they know, where a word to try lies, where buffers lie.
const KNOWN: usize = 4;
const WORD: usize = 5;
const ADDRESS: usize = 6;

/// How long a rank whose peer's memory is gone waits for the news of what became of that.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a rank knows: nothing, or one more than its [`Reach`].
const NOTHING: u64 = 0;

impl Round<'_> {
    /// Before the first meeting of a call of processes: says what this rank knows.
    pub fn announce_reading(&self) {
        let reading = self.area.reading.get();
        if let Reading::Agreed(_) = reading {
            return;
        }
        let known = match reading {
            // A rank that is told not to need not try.
            _ if self.endpoint.world.tuning.single_copy == Some(false) => 1 + Reach::None as u64,
            Reading::Tried(reach) => 1 + reach as u64,
            _ => NOTHING,
        };
        self.set_number(KNOWN, known);
        self.set_number(WORD, (&raw const self.slot.stamp) as u64);
    }

    /// After it: tries, or concludes.
    pub fn learn_reading(&self) {
        let reading = self.area.reading.get();
        if let Reading::Agreed(_) = reading {
            return;
        }
        let least = (0..self.size()).map(|peer| self.number_of(peer, KNOWN)).min();
        if let Some(least) = least.filter(|least| *least != NOTHING) {
            let all = [Reach::None, Reach::Slow, Reach::Fast];
            let reach = all.get(least as usize - 1).copied().unwrap_or(Reach::None);
            self.area.reading.set(Reading::Agreed(reach));
        } else if reading == Reading::Unknown {
            let mut word = [0u8; 8];
            let world = &self.endpoint.world;
            let mut peers = (0..self.size()).filter(|peer| *peer != self.me);
            let all = peers.all(|peer| {
                let (rank, address) = (self.scope.here.world(peer), self.number_of(peer, WORD));
                // SAFETY: it has so many bytes.
                unsafe {
                    single_copy::read(&world.memory, rank, address, word.as_mut_ptr(), word.len())
                }
            });
            let is_fast = || {
                let asked = world.tuning.single_copy == Some(true);
                asked || single_copy::pays(&world.memory, self.endpoint.rank)
            };
            let reach = match all {
                true if is_fast() => Reach::Fast,
                true => Reach::Slow,
                false => Reach::None,
            };
            self.area.reading.set(Reading::Tried(reach));
        }
    }

    /// Shows where buffer `which` (0 or 1) lies in this process, for [`Round::read_private`]. It
    /// has been exposed.
    pub fn announce_address(&self, which: usize, ptr: *const u8) {
        self.set_number(ADDRESS + which, ptr as u64);
    }

    /// Copies `bytes`, `offset` bytes into what `peer` exposes as `which`, of `total` bytes, from
    /// that process's memory to `into`. Errors: the peer has failed, or the kernel refuses.
    ///
    /// # Safety
    /// `into` has room for them.
    pub unsafe fn read_private(
        &self,
        peer: usize,
        which: usize,
        (offset, total): (usize, usize),
        into: *mut u8,
        bytes: usize,
    ) -> Result<()> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= total));
        if self.slot_of(peer).withdrawn.load(SeqCst) != 0 {
            return Err(self.withdrawn(peer));
        }
        if self.exposed_bytes(peer, which) != total {
            return Err(self.corrupt(peer, "it exposes a buffer of another length than it must"));
        }
        let rank = self.scope.here.world(peer);
        let address = self.number_of(peer, ADDRESS + which).wrapping_add(offset as u64);
        let memory = &self.endpoint.world.memory;
        // SAFETY: `into` has room for them (this function's contract).
        if unsafe { single_copy::read(memory, rank, address, into, bytes) } {
            return Ok(());
        }
        let error = Error::unavailable(
            format!("the memory of rank {peer} of the communicator"),
            "the kernel lets this process read it no more (process_vm_readv)".into(),
            "set SPMD_SINGLE_COPY=0".into(),
        );
        Err(self.out_of_reach(peer, error))
    }

    /// What has become of a peer of which nothing can be reached that it has shown; `error` where
    /// nobody knows.
    pub fn out_of_reach(&self, peer: usize, error: Error) -> Error {
        // Most likely it has just died. Whoever knows of that says so, and why; this rank must not
        // be the first to say something else.
        let (since, rank) = (Instant::now(), self.scope.here.world(peer));
        let patience = || (since.elapsed() > PATIENCE).then_some(());
        let died = self.waiter.until_by(Some(rank), patience);
        died.err().unwrap_or_else(|| self.fail(error))
    }
}
