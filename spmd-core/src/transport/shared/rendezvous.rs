//! Large messages: a rendezvous of the ring tells where the data are, and the receiver takes them
//! from the sender's memory or arena, through the kernel, or piece by piece from a staging area.

use std::cell::Cell;
use std::sync::atomic::Ordering::*;

use super::access;
use super::endpoint::Endpoint;
use super::heap::{Block, Content};
use super::post::packed_if_apart;
use super::ring::{
    PIECE, RENDEZVOUS, RendezvousAck, RendezvousReceive, RingReader, RingWriter, STAGING, own_ack,
    staged_at, with_ack,
};
use super::single_copy;
use super::waiter::Waiter;
use crate::buffer::View;
use crate::copy::{copy_bytes, copy_from_peer};
use crate::error::{Error, Result};
use crate::transport::message::{Envelope, SendMode};
use crate::transport::pending::SenderSide;
use crate::wait;

/// From so many bytes on, the kernel's work for each page is less than a second copy. More than a
/// staging area holds: so the sender never takes such a message for handed over while it is read.
const READ: usize = 2 * STAGING;

/// What a receiver says that it has taken from the staging area while it reads through the kernel.
const NOT_STAGED: usize = usize::MAX;

/// A message in a rendezvous.
pub(crate) struct RendezvousSend<'a> {
    endpoint: &'a Endpoint,
    to: usize,
    rendezvous: usize,
    number: u64,
    bytes: usize,
    /// Where the data are, if they go through the staging area.
    staged_from: Option<*const u8>,
    /// Whether the first of them go there before the receiver has begun.
    ahead: bool,
    /// A copy of the data in the arena, if they don't.
    copy: Option<Block>,
    _packed: Option<Vec<u8>>,
    /// All data are in the staging area, and the receiver is taking them.
    handed: Cell<bool>,
}

impl Endpoint {
    /// Offers a large message in a rendezvous of the ring to `to`.
    pub(super) fn send_by_rendezvous<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        mode: SendMode,
        waiter: &Waiter<'_>,
    ) -> Result<RendezvousSend<'a>> {
        let (rendezvous, number) = waiter.until_by(Some(to), || {
            let taken = self.with_ring(to, |ring| {
                let taken = ring.take_rendezvous(self, to)?;
                Ok(taken.map(|rendezvous| (rendezvous, ring.all_rendezvous[rendezvous].number)))
            });
            taken.transpose()
        })??;
        let mut pending = RendezvousSend {
            endpoint: self,
            to,
            rendezvous,
            number,
            bytes: envelope.bytes,
            staged_from: None,
            ahead: rendezvous < RENDEZVOUS,
            copy: None,
            _packed: None,
            handed: Cell::new(false),
        };
        let memory = &self.world.memory;
        let mut direct = 0;
        let mut address = 0;
        let in_heap = |ptr| memory.offset_in_heap(self.rank, ptr, envelope.bytes);
        if self.world.one_address_space() {
            pending._packed = packed_if_apart(data)?;
            let ptr = pending._packed.as_ref().map(|packed| packed.as_ptr());
            address = ptr.or(data.contiguous()).map_or(0, |ptr| ptr as u64);
        } else if let Some(offset) = data.contiguous().and_then(in_heap) {
            direct = offset;
        } else if mode == SendMode::Standard {
            pending._packed = packed_if_apart(data)?;
            let ptr = pending._packed.as_ref().map(|packed| packed.as_ptr());
            pending.staged_from = ptr.or(data.contiguous());
            if self.may_be_read(envelope.bytes) {
                address = pending.staged_from.map_or(0, |ptr| ptr as u64);
            }
        } else {
            let copy = self.heap.block(envelope.bytes, Content::Anything)?;
            // SAFETY: the block has room for all the data.
            unsafe { data.pack(copy.pointer()) };
            direct = copy.offset();
            pending.copy = Some(copy);
        }
        let staged = pending.staged_from.is_some();
        self.with_ring(to, |ring| {
            // Beyond those of the ring's head it is made when the receiver takes the message: there
            // may be very many.
            let now = rendezvous < RENDEZVOUS;
            if staged && now && ring.all_rendezvous[rendezvous].staging.is_none() {
                ring.all_rendezvous[rendezvous].staging = Some(self.heap.allocate(STAGING)?);
            }
            // Two copies at once, by sender and receiver, are as good as one of the kernel's for the
            // first message; those behind it would only push each other out of the cache.
            let asked = self.world.tuning.single_copy == Some(true);
            pending.ahead &= address == 0 || (ring.under_way == 1 && !asked);
            let staging =
                ring.all_rendezvous[rendezvous].staging.as_ref().map_or(0, |block| block.offset());
            let shown = ring.rendezvous(rendezvous);
            shown.direct.store(direct, Relaxed);
            shown.staging.store(staging, Relaxed);
            shown.filled.store(0, Relaxed);
            shown.address.store(address, Relaxed);
            shown.waits.store(u64::from(!pending.ahead), Relaxed);
            shown.number.store(number, Release);
            Ok(())
        })?;
        waiter.until_by(Some(to), || {
            let mut nothing = |_: *mut u8| {};
            self.with_ring(to, |ring| {
                ring.write(self, to, &envelope, Some((rendezvous, number)), &mut nothing)
            })
            .transpose()
        })??;
        Ok(pending)
    }
}

impl Endpoint {
    /// Whether a receiver may read so many bytes of a message where they are, through the kernel: if
    /// that is not said, of a long one that its sender has not begun to stage.
    fn may_be_read(&self, bytes: usize) -> bool {
        self.world.tuning.single_copy.unwrap_or(bytes >= READ)
    }
}

impl RendezvousSend<'_> {
    /// Looks at what the receiver says; the other value if it has said nothing yet.
    fn with_ack<R>(&self, none: R, look: impl FnOnce(&RendezvousAck) -> R) -> R {
        with_ack(self.endpoint, self.to, self.rendezvous, look).unwrap_or(none)
    }

    fn is_finished(&self) -> bool {
        self.with_ack(false, |ack| ack.finished.load(Acquire) == self.number)
    }

    fn is_read(&self) -> bool {
        self.with_ack(false, |ack| ack.reading.load(Acquire) == self.number)
    }
}

impl SenderSide for RendezvousSend<'_> {
    /// Waits until the receiver has everything, or takes the rest from the staging area, which is
    /// filled piece by piece.
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()> {
        if let Some(from) = self.staged_from {
            let mut filled = 0;
            while filled < self.bytes {
                // A piece's place is free again when what was there before has been taken.
                let over = waiter.until_by(Some(self.to), || {
                    let (finished, drained) = self.with_ack((false, None), |ack| {
                        let reading = ack.reading.load(Acquire) == self.number;
                        let drained = reading.then(|| ack.drained.load(Acquire) as usize);
                        let drained = drained.filter(|drained| *drained != NOT_STAGED);
                        (ack.finished.load(Acquire) == self.number, drained)
                    });
                    let has_room =
                        |drained: usize| filled + PIECE <= drained.saturating_add(STAGING);
                    let early = self.ahead.then_some(0);
                    let free = drained.or(early).is_some_and(has_room);
                    (finished || free).then_some(finished)
                })?;
                if over {
                    return Ok(());
                }
                let piece = PIECE.min(self.bytes - filled);
                let mut ring = self.endpoint.ring(self.to)?;
                let ring = ring.as_mut().expect("the rendezvous is in it");
                if ring.all_rendezvous[self.rendezvous].staging.is_none() {
                    let staging = self.endpoint.heap.allocate(STAGING)?;
                    let shown = &ring.rendezvous(self.rendezvous).staging;
                    shown.store(staging.offset(), Relaxed);
                    ring.all_rendezvous[self.rendezvous].staging = Some(staging);
                }
                let staging = ring.all_rendezvous[self.rendezvous]
                    .staging
                    .as_ref()
                    .expect("made when posted");
                // SAFETY: the source is the caller's buffer of `bytes` bytes; the target a piece
                // of the staging area, which a receiver that lies may read at any time, as bytes.
                unsafe {
                    let to = staging.pointer().add(staged_at(self.number, filled));
                    copy_bytes(from.add(filled), to, piece);
                }
                filled += piece;
                ring.rendezvous(self.rendezvous).filled.store(filled as u64, Release);
                self.endpoint.world.publish();
                self.endpoint.world.bell(self.to).ring_after_fence();
            }
        }
        // A receiver that asks the kernel reads the data where they are, to the end. What lies beyond
        // the ring's head gives its staging area back.
        let staged = self.staged_from.is_some()
            && self.endpoint.world.tuning.single_copy != Some(true)
            && self.rendezvous < RENDEZVOUS;
        let over = waiter.until_by(Some(self.to), || {
            let (finished, taken) = (self.is_finished(), staged && self.is_read());
            (finished || taken).then_some(finished)
        })?;
        self.handed.set(!over);
        Ok(())
    }
}

impl Drop for RendezvousSend<'_> {
    /// The rendezvous is free, and the buffer the sender's alone, after this: a receiver in the
    /// middle of the message sees that it was withdrawn.
    fn drop(&mut self) {
        let endpoint = self.endpoint;
        let with_ring = |change: &mut dyn FnMut(&mut RingWriter)| {
            if let Some(ring) = endpoint.rings[self.to].lock().as_mut() {
                change(ring);
            }
        };
        if self.handed.get() {
            return with_ring(&mut |ring| ring.hand_over_rendezvous(self.rendezvous));
        }
        if !self.is_finished() {
            with_ring(&mut |ring| {
                access::withdraw(&ring.rendezvous(self.rendezvous).withdrawn, self.number);
            });
            endpoint.world.bell(self.to).ring_after_fence();
            let reads = || self.is_read() && !self.is_finished();
            // Whoever stops to read does not ring. Nobody else of this rank waits for the ring
            // meanwhile.
            let bell = endpoint.bell().polled(true);
            wait::until_done(bell, || !reads() || endpoint.world.is_dead(self.to));
        }
        with_ring(&mut |ring| ring.free_rendezvous(self.rendezvous));
    }
}

impl RendezvousReceive {
    /// Takes the data to `into`, and tells the sender; false if it has withdrawn them.
    ///
    /// # Safety
    /// `into` is valid for writes of the envelope's bytes.
    pub(super) unsafe fn fetch(
        self,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        let (endpoint, bytes) = (waiter.endpoint, envelope.bytes);
        let RendezvousReceive { source, number, .. } = self;
        let corrupt = |what| Error::corrupt(source, what);
        let memory = &endpoint.world.memory;
        let reader = RingReader::find(endpoint, source)?;
        let reader = reader.ok_or_else(|| corrupt("its ring has gone"))?;
        let rendezvous = reader.rendezvous(endpoint, &self);
        let rendezvous = rendezvous.ok_or_else(|| corrupt("a rendezvous lies nowhere"))?;
        let ack = own_ack(endpoint, &self, &mut endpoint.inbox.lock().acks)?;
        let address = rendezvous.address.load(Relaxed);
        let begun = rendezvous.filled.load(Acquire) > 0;
        let asked = endpoint.world.tuning.single_copy == Some(true);
        let may = address != 0 && (asked || !begun && endpoint.may_be_read(bytes));
        // Where the sender waits behind other messages, the way is the one by which such messages have come
        // faster. One that is about to stage this one may compute after the first pieces: what is read needs it
        // no more, which is worth as much as copies that the kernel makes a little slower.
        let open = may && !asked && rendezvous.waits.load(Relaxed) != 0;
        let reads = match open {
            true => endpoint.paces.begin(),
            false => may && (asked || single_copy::pays(memory, endpoint.rank)),
        };
        ack.drained.store(if reads { NOT_STAGED as u64 } else { 0 }, Relaxed);
        let admitted = access::announce(&ack.reading, number, &rendezvous.withdrawn);
        let result = (|| {
            let withdrawn = || rendezvous.withdrawn.load(Acquire) >= number;
            if !admitted {
                return Ok(false);
            }
            if rendezvous.number.load(Acquire) != number {
                return Err(corrupt("a large message is not in its rendezvous"));
            }
            if endpoint.world.one_address_space() {
                let from = rendezvous.address.load(Relaxed) as *const u8;
                // SAFETY: a thread of this process says where its buffer of `bytes` bytes is, or a
                // copy of it, which stay as they are until it sees that they have been read, or,
                // having taken them back, that nobody does (`access.rs`). The target has room.
                unsafe { copy_from_peer(from, into, bytes) };
                return Ok(true);
            }
            let direct = rendezvous.direct.load(Relaxed);
            if direct != 0 {
                let from = memory.heap(source, direct, bytes);
                let from = from.ok_or_else(|| corrupt("a message lies outside its arena"))?;
                // SAFETY: the source lies within the arena; the target has room for `bytes`.
                unsafe { copy_from_peer(from, into, bytes) };
                return Ok(true);
            }
            // SAFETY: the target has room for `bytes` (this function's contract).
            if reads && unsafe { single_copy::read(memory, source, address, into, bytes) } {
                return Ok(true);
            }
            if open || reads || self.chunk != 0 {
                // The sender waits for this before it fills the staging area, or makes it.
                ack.drained.store(0, Release);
                endpoint.world.publish();
                endpoint.world.bell(source).ring_after_fence();
            }
            let mut drained = 0;
            while drained < bytes {
                let filled = waiter.until_by(Some(source), || {
                    let filled = rendezvous.filled.load(Acquire) as usize;
                    (filled > drained || withdrawn()).then_some(filled)
                })?;
                if withdrawn() {
                    return Ok(false);
                }
                if filled > bytes || filled > drained + STAGING {
                    return Err(corrupt("a message is longer than it says"));
                }
                let staging = memory.heap(source, rendezvous.staging.load(Relaxed), STAGING);
                let staging = staging.ok_or_else(|| corrupt("a message lies outside its arena"))?;
                while drained < filled {
                    let piece = PIECE.min(bytes - drained);
                    // SAFETY: the piece lies within the staging area, checked to lie within the
                    // arena, and within the target, which has room for `bytes`.
                    unsafe {
                        let from = staging.add(staged_at(number, drained));
                        copy_from_peer(from, into.add(drained), piece);
                    }
                    drained += piece;
                    ack.drained.store(drained as u64, Release);
                    endpoint.world.publish();
                    endpoint.world.bell(source).ring_after_fence();
                }
            }
            Ok(true)
        })();
        if open {
            endpoint.paces.end(if matches!(result, Ok(true)) { bytes } else { 0 });
        }
        // In this order: the sender uses the rendezvous again when it sees the second, and another
        // thread of this rank may then announce itself in the first.
        ack.reading.store(0, Release);
        ack.finished.store(number, Release);
        endpoint.world.publish();
        endpoint.world.bell(source).ring_after_fence();
        result
    }

    /// Tells the sender that they will not be taken.
    pub(super) fn refuse(self, envelope: &Envelope, waiter: &Waiter<'_>) {
        let (endpoint, source) = (waiter.endpoint, envelope.source as usize);
        let Ok(ack) = own_ack(endpoint, &self, &mut endpoint.inbox.lock().acks) else { return };
        ack.finished.store(self.number, Release);
        endpoint.world.bell(source).ring();
    }
}
