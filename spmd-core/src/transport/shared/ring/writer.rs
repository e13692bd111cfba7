//! The sender's side of a ring.

use std::sync::atomic::Ordering::*;

use super::super::heap::Block;
use super::super::member::Member;
use super::acks::with_ack;
use super::format::*;
use crate::error::{Error, Result};
use crate::transport::message::Envelope;

/// The sender's side of a ring.
pub(in super::super) struct RingWriter {
    /// Has its memory.
    _block: Block,
    /// Where that lies.
    base: *mut u8,
    position: u64,
    /// What the receiver is known to have read.
    head: u64,
    /// Whether the receiver then kept as much as its window allows.
    full: bool,
    /// The stamps of the lines from the next record to here are cleared already.
    cleared: u64,
    /// Those of the ring's head, then those of the chunks.
    pub(in super::super) all_rendezvous: Vec<RendezvousState>,
    chunks: Vec<Block>,
    /// How many of them have a message that may not be over.
    busy: usize,
    /// How many of these the sender has not handed over.
    pub(in super::super) under_way: usize,
    /// Where the search for a free one goes on.
    next: usize,
}

/// What the sender keeps of a rendezvous for itself.
#[derive(Default)]
pub(in super::super) struct RendezvousState {
    pub(in super::super) busy: bool,
    /// Busy only until the receiver has taken the last message from the staging area.
    pub(in super::super) handed: bool,
    pub(in super::super) number: u64,
    pub(in super::super) staging: Option<Block>,
}

// SAFETY: the pointer leads into the arena, which is mapped for the whole process, to a block that
// this owns.
unsafe impl Send for RingWriter {}

impl RingWriter {
    pub(in super::super) fn new(member: &Member, receiver: usize) -> Result<RingWriter> {
        let block = member.heap.allocate(RING_BYTES)?;
        let place = member.world.memory.ring_place(member.rank, receiver);
        place.store(block.offset(), Release);
        Ok(RingWriter {
            base: block.pointer(),
            _block: block,
            position: 0,
            head: 0,
            full: false,
            cleared: 0,
            all_rendezvous: (0..RENDEZVOUS).map(|_| RendezvousState::default()).collect(),
            chunks: Vec::new(),
            busy: 0,
            under_way: 0,
            next: 0,
        })
    }

    /// What is shown of a rendezvous.
    pub(in super::super) fn rendezvous(&self, rendezvous: usize) -> &Rendezvous {
        let Some((chunk, index)) = in_chunk(rendezvous) else {
            // SAFETY: the block begins with a RingHead of atomics, and lives as long as `self`.
            return unsafe { &(&*self.base.cast::<RingHead>()).all_rendezvous[rendezvous] };
        };
        assert!(index < chunk_size(chunk));
        // SAFETY: a chunk holds as many of these, which are atomics, and lives as long as `self`.
        unsafe { &*self.chunks[chunk].pointer().cast::<Rendezvous>().add(index) }
    }

    /// Takes a rendezvous that is free, or makes more; `None` if there are as many as there can be,
    /// or as there is room for.
    pub(in super::super) fn take_rendezvous(
        &mut self,
        member: &Member,
        receiver: usize,
    ) -> Result<Option<usize>> {
        let all = self.all_rendezvous.len();
        let is_free = |index: &usize| {
            let RendezvousState { busy, handed, number, .. } = self.all_rendezvous[*index];
            let finished = |ack: &RendezvousAck| ack.finished.load(Acquire) == number;
            !busy || handed && with_ack(member, receiver, *index, finished).unwrap_or(false)
        };
        // The first ones are most often free, and have their staging areas.
        let near = (0..RENDEZVOUS).find(is_free);
        let some = self.busy < all || all == MOST;
        let far = || (self.next..self.next + all).map(|index| index % all).find(is_free);
        let index = match near.or_else(|| if some { far() } else { None }) {
            Some(index) => index,
            None if all == MOST => return Ok(None),
            None => {
                let bytes = all * size_of::<Rendezvous>();
                let Ok(chunk) = member.heap.allocate(bytes) else { return Ok(None) };
                // SAFETY: the block has so many bytes, which nobody else knows yet.
                unsafe { chunk.pointer().write_bytes(0, bytes) };
                self.chunks.push(chunk);
                self.all_rendezvous.resize_with(2 * all, RendezvousState::default);
                all
            }
        };
        let taken = &mut self.all_rendezvous[index];
        self.busy += usize::from(!taken.busy);
        self.under_way += 1;
        (taken.busy, taken.handed) = (true, false);
        taken.number += 1;
        self.next = index + 1;
        Ok(Some(index))
    }

    /// The receiver is taking the last message of a rendezvous, and needs its sender no more.
    pub(in super::super) fn hand_over_rendezvous(&mut self, index: usize) {
        self.all_rendezvous[index].handed = true;
        self.under_way -= 1;
    }

    /// A rendezvous is free again.
    pub(in super::super) fn free_rendezvous(&mut self, index: usize) {
        self.under_way -= 1;
        self.all_rendezvous[index].busy = false;
        if index >= RENDEZVOUS {
            self.all_rendezvous[index].staging = None;
        }
        self.busy -= 1;
    }

    fn record(&self, position: u64) -> &Record {
        // SAFETY: a record header of atomics within the block, which lives as long as `self`.
        unsafe { &*record_at(self.base, position) }
    }

    /// Whether `need` more bytes fit.
    #[inline]
    fn fits(&mut self, member: &Member, receiver: usize, need: u64) -> Result<bool> {
        if self.position + need - self.head <= RING {
            return Ok(true);
        }
        self.look_for_room(member, receiver)?;
        Ok(self.position + need - self.head <= RING)
    }

    /// Looks how far the receiver has read, and how much it keeps.
    #[cold]
    fn look_for_room(&mut self, member: &Member, receiver: usize) -> Result<()> {
        let ack = member.world.memory.ack(receiver, member.rank);
        let head = ack.head.load(Acquire);
        if head < self.head || head > self.position {
            let what = "it says that it has read messages that do not exist";
            return Err(Error::corrupt(receiver, what));
        }
        self.head = head;
        self.full = ack.full.load(Relaxed) != 0;
        Ok(())
    }

    /// Whether the receiver keeps as much as its window allows, so that the next message is to be
    /// offered instead of sent. Looked up where the ring seemed full: between two looks a sender
    /// writes no more than a ring holds.
    #[inline]
    pub(in super::super) fn window_is_full(
        &mut self,
        member: &Member,
        receiver: usize,
    ) -> Result<bool> {
        if self.full {
            self.look_for_room(member, receiver)?;
        }
        Ok(self.full)
    }

    /// Clears the stamps of the lines from here to there that are not yet.
    #[inline]
    fn clear(&mut self, from: u64, to: u64) {
        for line in (from.max(self.cleared)..to).step_by(LINE as usize) {
            self.record(line).stamp.store(0, Relaxed);
        }
        self.cleared = self.cleared.max(to);
    }

    /// Writes a record, if there is room: `None` if not, and the receiver knows that some is
    /// wanted. `pack` writes the data of an eager one.
    pub(in super::super) fn write(
        &mut self,
        member: &Member,
        receiver: usize,
        envelope: &Envelope,
        rendezvous: Option<(usize, u64)>,
        pack: &mut dyn FnMut(*mut u8),
    ) -> Result<Option<()>> {
        let need = LINE + if rendezvous.is_some() { 0 } else { following(envelope.bytes as u64) };
        let to_end = RING - self.position % RING;
        let skip = if need > to_end { to_end } else { 0 };
        // Two lines more, whose stamps are cleared.
        if !self.fits(member, receiver, skip + need + 2 * LINE)? {
            member.world.ask_for_room(receiver);
            return Ok(None);
        }
        if skip > 0 {
            self.record(self.position + skip).stamp.store(0, Relaxed);
            let record = self.record(self.position);
            record.kind.store(SKIP_RECORD, Relaxed);
            record.tag.store(0, Relaxed);
            record.count.store(skip - LINE, Relaxed);
            record.stamp.store(self.position + 1, Release);
            self.position += skip;
        }
        let base = self.base;
        let record = self.record(self.position);
        let kind = match rendezvous {
            // SAFETY: the place has room for the data, in the record or behind it within the
            // ring: `need <= to_end` now.
            None => unsafe {
                pack(data_of(record_at(base, self.position), envelope.bytes as u64));
                EAGER_RECORD
            },
            Some((rendezvous, number)) => {
                let far = in_chunk(rendezvous);
                let far = far.map(|(chunk, _)| far_word(rendezvous, self.chunks[chunk].offset()));
                let record = self.record(self.position);
                record.data[0].store(number, Relaxed);
                record.data[1].store(far.unwrap_or(0), Relaxed);
                LARGE_RECORD | (if far.is_some() { 0 } else { rendezvous as u64 }) << 48
            }
        };
        let site = u64::from(envelope.file) << 32 | u64::from(envelope.line);
        record.kind.store(kind | site, Relaxed);
        record.context.store(envelope.context, Relaxed);
        record.tag.store(u64::from(envelope.size) << 32 | u64::from(envelope.tag), Relaxed);
        record.dtype.store(envelope.dtype, Relaxed);
        let count = envelope.count & COUNT;
        record.count.store(u64::from(envelope.dtype_text) << 48 | count, Relaxed);
        let end = self.position + need;
        self.clear(end, end + LINE);
        self.record(self.position).stamp.store(self.position + 1, Release);
        self.position = end;
        member.world.publish();
        member.world.bell(receiver).ring_after_fence();
        // If the next records are one line as well, their stamps need not wait until the receiver's
        // cache has given up the lines after them. Several at once: a receiver close behind takes
        // lines ahead of those that it reads, which must then be asked for once more.
        if need == LINE && self.cleared == end + LINE {
            let free = self.head + RING;
            self.clear(end + LINE, (end + AHEAD).min(free));
        }
        Ok(Some(()))
    }
}
