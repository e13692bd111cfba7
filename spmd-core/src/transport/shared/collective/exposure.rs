//! What a rank lets its peers read: a room for small data in its slot, numbers, exposed buffers,
//! a staging area.

use std::sync::atomic::Ordering::*;

use super::round::Round;
use super::stage::{index_of, prefetch_to_write, stamp};
use crate::element::DType;
use crate::error::Result;
use crate::transport::shared::layout::{CollectivePage, INLINE, PAYLOAD};

impl Round<'_> {
    /// Room for `bytes` (at most [`PAYLOAD`]) in this rank's slot, to be filled before the first
    /// [`Round::publish`].
    #[inline]
    pub fn payload(&self, bytes: usize) -> *mut u8 {
        let place = self.place(self.page, bytes).cast_mut();
        if bytes > INLINE {
            prefetch_to_write(place, bytes);
        }
        place
    }

    /// What `peer` has put into its payload of `bytes`, once it has published.
    #[inline]
    pub fn payload_of(&self, peer: usize, bytes: usize) -> *const u8 {
        self.place(self.page_of(peer), bytes)
    }

    #[inline]
    fn place(&self, page: &CollectivePage, bytes: usize) -> *const u8 {
        assert!(bytes <= PAYLOAD);
        let index = index_of(self.round);
        if bytes <= INLINE {
            page.slots[index].inline.as_ptr().cast()
        } else {
            self.payloads.set(bytes);
            page.payload[index].0.as_ptr().cast()
        }
    }

    /// Says a number to all peers, to be read with [`Round::number_of`]; 8 fit.
    pub fn set_number(&self, index: usize, value: u64) {
        self.slot.lengths[index].store(value, Relaxed);
    }

    /// A number that `peer` said before the stage that was last waited for.
    pub fn number_of(&self, peer: usize, index: usize) -> u64 {
        self.slot_of(peer).lengths[index].load(Relaxed)
    }

    /// Lets peers read this memory, as number `which`, from the next publish to the end of the
    /// round. Whether they can reach it: always in one address space, else if it lies in this
    /// rank's arena.
    ///
    /// # Safety
    /// The memory stays allocated until this round is dropped or finished, and nobody writes it
    /// while a peer may read it, as the stages of the algorithm arrange it.
    pub unsafe fn expose(&self, which: usize, ptr: *const u8, bytes: usize) -> bool {
        let world = &self.endpoint.world;
        let place = if self.one_address_space() || bytes == 0 {
            Some(ptr as u64)
        } else {
            world.memory.offset_in_heap(self.endpoint.rank, ptr, bytes)
        };
        let slot = self.slot;
        slot.exposed[which].place.store(place.unwrap_or(0), Relaxed);
        slot.exposed[which].bytes.store(bytes as u64, Relaxed);
        slot.withdrawn.store(0, Relaxed);
        self.exposed.set(true);
        place.is_some()
    }

    /// The memory that `peer` exposes as `which`, of exactly `bytes`: readable until this rank
    /// finishes or drops its round. `None` if it cannot be reached from here.
    #[inline]
    pub fn reach(&self, peer: usize, which: usize, bytes: usize) -> Result<Option<*const u8>> {
        if bytes == 0 {
            return Ok(Some(std::ptr::NonNull::dangling().as_ptr()));
        }
        let slot = self.slot_of(peer);
        let place = slot.exposed[which].place.load(Relaxed);
        let len = slot.exposed[which].bytes.load(Relaxed);
        // Between this rank's own stamp of a stage and this look there was a light fence
        // (`World::publish`); between the withdrawal and the owner's look, a heavy one.
        assert!(self.shown.get() > stamp(self.round, 0));
        if slot.withdrawn.load(SeqCst) != 0 {
            return Err(self.withdrawn(peer));
        }
        if place == 0 {
            return Ok(None);
        }
        if len != bytes as u64 {
            return Err(self.corrupt(peer, "it exposes a buffer of another length than it must"));
        }
        if self.one_address_space() {
            return Ok(Some(place as *const u8));
        }
        let world = self.scope.here.world(peer);
        match self.endpoint.world.memory.heap(world, place, bytes) {
            Some(ptr) => Ok(Some(ptr)),
            None => Err(self.corrupt(peer, "it exposes a buffer outside its arena")),
        }
    }

    /// How many bytes `peer` exposes as `which`.
    pub fn exposed_bytes(&self, peer: usize, which: usize) -> usize {
        self.slot_of(peer).exposed[which].bytes.load(Relaxed) as usize
    }

    /// Memory of this rank's own, of at least `bytes`, that all peers can reach once it is
    /// exposed. The same memory for all rounds of a communicator: an algorithm that uses it
    /// ends when all peers have read what they need.
    pub fn staging(&self, bytes: usize) -> Result<*mut u8> {
        let mut staging = self.area.staging.borrow_mut();
        if staging.as_ref().is_none_or(|block| block.bytes() < bytes) {
            *staging = None;
            *staging = Some(self.endpoint.heap.allocate(bytes).map_err(|error| self.fail(error))?);
        }
        Ok(staging.as_ref().expect("made just now").pointer())
    }

    /// Memory of `owner` that `peer` may write as well, both ranks of the communicator, and its
    /// bytes: processes with cores of their own have it, for the world's own communicator. It is
    /// never anything else.
    pub fn share(&self, owner: usize, peer: usize) -> Option<(*mut u8, usize)> {
        let (world, rank) = (&self.endpoint.world, |rank| self.scope.here.world(rank));
        // It is that of one call at a time.
        let used = self.scope.is_primary() && self.scope.track == 0;
        let used = used && world.size() <= world.policy.cores;
        used.then(|| world.memory.share(rank(owner), rank(peer))).flatten()
    }

    /// Whether data of this type that come from a peer must be looked at before they are used.
    pub fn must_check(&self, dtype: &DType) -> bool {
        self.endpoint.must_check(dtype)
    }
}
