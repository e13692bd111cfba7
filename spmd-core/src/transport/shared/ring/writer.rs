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
    /// What the last record says, if a repeat may follow it.
    last: Option<Header>,
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
            last: None,
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

    fn repeat(&self, position: u64) -> &Repeat {
        // SAFETY: two atomics within the block, which lives as long as `self`.
        unsafe { &*repeat_at(self.base, position) }
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

    /// Clears the stamps of the lines from here to there, where lines begin, that are not yet.
    #[inline]
    fn clear(&mut self, from: u64, to: u64) {
        for line in (from.max(self.cleared)..to).step_by(LINE as usize) {
            self.record(line).stamp.store(0, Relaxed);
        }
        self.cleared = self.cleared.max(to);
    }

    /// Shows what was written up to here, where the stamp is cleared, by its own stamp.
    #[inline]
    fn show(&mut self, member: &Member, receiver: usize, stamp: u64, end: u64) {
        self.repeat(self.position).stamp.store(self.position + stamp, Release);
        self.position = end;
        member.world.publish();
        member.world.bell(receiver).ring_after_fence();
    }

    /// If the next records are short, their stamps need not wait until the receiver's cache has given up
    /// the lines after this position, where a line ends. Several at once: a receiver close behind takes
    /// lines ahead of those that it reads, which must then be asked for once more.
    #[inline]
    fn clear_ahead(&mut self) {
        let end = self.position;
        if self.cleared == end + LINE {
            // The receiver may be within a line.
            let free = (self.head + RING) / LINE * LINE;
            self.clear(end + LINE, (end + AHEAD).min(free));
        }
    }

    /// Writes a message, if there is room: `None` if not, and the receiver knows that some is
    /// wanted. `pack` writes the data of an eager one.
    #[inline]
    pub(in super::super) fn write(
        &mut self,
        member: &Member,
        receiver: usize,
        envelope: &Envelope,
        rendezvous: Option<(usize, u64)>,
        pack: &mut dyn FnMut(*mut u8),
    ) -> Result<Option<()>> {
        let header = Header::of(envelope);
        if rendezvous.is_none() && self.last == Some(header) {
            // A line more, whose stamp may be cleared.
            if !self.fits(member, receiver, REPEAT_BYTES + LINE)? {
                member.world.ask_for_room(receiver);
                return Ok(None);
            }
            self.write_repeat(member, receiver, pack);
            return Ok(Some(()));
        }
        let bytes = rendezvous.is_none().then_some(envelope.bytes);
        let written = self.write_record(member, receiver, header, bytes, rendezvous, pack)?;
        if written.is_some() {
            self.last = bytes.filter(|bytes| *bytes <= REPEATED).map(|_| header);
        }
        Ok(written)
    }

    /// Writes a message if it is as the last record says, and there is known to be room. Whether it has.
    ///
    /// # Safety
    /// `data` are readable, so many bytes, as the header says.
    #[inline]
    pub(in super::super) unsafe fn write_if_repeat(
        &mut self,
        member: &Member,
        receiver: usize,
        header: &Header,
        (data, bytes): (*const u8, usize),
    ) -> bool {
        let has_room = self.position + REPEAT_BYTES + LINE - self.head <= RING && !self.full;
        if !has_room || self.last.as_ref() != Some(header) {
            return false;
        }
        // SAFETY: what repeats has at most the bytes that a place has room for, and so many are readable
        // (this function's contract); no buffer lies in the ring.
        self.write_repeat(member, receiver, |place| unsafe { copy_short(data, place, bytes) });
        true
    }

    /// Writes a message as the last record says, for which there is room.
    #[inline]
    fn write_repeat(&mut self, member: &Member, receiver: usize, pack: impl FnOnce(*mut u8)) {
        pack(self.repeat(self.position).data.as_ptr().cast());
        let end = self.position + REPEAT_BYTES;
        let line_ends = end.is_multiple_of(LINE);
        match line_ends {
            true => self.clear(end, end + LINE),
            false => self.repeat(end).stamp.store(0, Relaxed),
        }
        self.show(member, receiver, REPEAT, end);
        if line_ends {
            self.clear_ahead();
        }
    }

    /// Writes a record, of a small message of so many bytes or of a large one.
    fn write_record(
        &mut self,
        member: &Member,
        receiver: usize,
        header: Header,
        bytes: Option<usize>,
        rendezvous: Option<(usize, u64)>,
        pack: &mut dyn FnMut(*mut u8),
    ) -> Result<Option<()>> {
        let bytes = bytes.unwrap_or(0) as u64;
        let need = LINE + following(bytes);
        let line = self.position.next_multiple_of(LINE);
        let to_end = RING - line % RING;
        let skip = if need > to_end { to_end } else { 0 };
        // Two lines more, whose stamps are cleared.
        if !self.fits(member, receiver, line - self.position + skip + need + 2 * LINE)? {
            member.world.ask_for_room(receiver);
            return Ok(None);
        }
        if line > self.position {
            self.clear(line, line + LINE);
            self.repeat(self.position).stamp.store(self.position + NEXT_LINE, Release);
            self.position = line;
        }
        if skip > 0 {
            self.record(self.position + skip).stamp.store(0, Relaxed);
            let record = self.record(self.position);
            record.kind.store(SKIP_RECORD, Relaxed);
            record.tag.store(0, Relaxed);
            record.count.store(skip - LINE, Relaxed);
            record.stamp.store(self.position + RECORD, Release);
            self.position += skip;
        }
        let base = self.base;
        let record = self.record(self.position);
        let kind = match rendezvous {
            // SAFETY: the place has room for the data, in the record or behind it within the
            // ring: `need <= to_end` now.
            None => unsafe {
                pack(data_of(record_at(base, self.position), bytes));
                EAGER_RECORD
            },
            Some((rendezvous, number)) => {
                let far = in_chunk(rendezvous);
                let far = far.map(|(chunk, _)| far_word(rendezvous, self.chunks[chunk].offset()));
                record.data[0].store(number, Relaxed);
                record.data[1].store(far.unwrap_or(0), Relaxed);
                LARGE_RECORD | (if far.is_some() { 0 } else { rendezvous as u64 }) << 48
            }
        };
        record.kind.store(kind | header.site, Relaxed);
        record.context.store(header.context, Relaxed);
        record.tag.store(header.tag, Relaxed);
        record.dtype.store(header.dtype, Relaxed);
        record.count.store(header.count, Relaxed);
        let end = self.position + need;
        self.clear(end, end + LINE);
        self.show(member, receiver, RECORD, end);
        if need == LINE {
            self.clear_ahead();
        }
        Ok(Some(()))
    }
}
