//! Large messages: a rendezvous of the ring tells where the data are, and the receiver takes them
//! from the sender's memory or arena, through the kernel, or piece by piece from a staging area.

use std::cell::Cell;
use std::sync::atomic::Ordering::*;

use super::access;
use super::endpoint::Endpoint;
use super::heap::{Block, Content};
use super::layout::RendezvousAck;
use super::post::packed_if_apart;
use super::ring::{PIECE, RendezvousReceive, RendezvousState, RingReader, STAGING, staged_at};
use super::waiter::Waiter;
use crate::buffer::View;
use crate::copy::copy_from_peer;
use crate::error::{Error, Result};
use crate::transport::message::{Envelope, SendMode};
use crate::transport::pending::SenderSide;
use crate::wait;

/// A message in a rendezvous.
pub(crate) struct RendezvousSend<'a> {
    endpoint: &'a Endpoint,
    to: usize,
    rendezvous: usize,
    number: u64,
    bytes: usize,
    /// Where the data are, if they go through the staging area.
    staged_from: Option<*const u8>,
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
        let rendezvous = waiter.until_by(Some(to), || {
            self.with_ring(to, |ring| {
                let acks = &self.world.memory.ack(to, self.rank).all_rendezvous;
                let is_free = |(rendezvous, ack): &(&RendezvousState, &RendezvousAck)| {
                    !rendezvous.busy
                        || rendezvous.handed && ack.finished.load(Acquire) == rendezvous.number
                };
                let free = ring.all_rendezvous.iter().zip(acks).position(|it| is_free(&it));
                if let Some(rendezvous) = free {
                    (
                        ring.all_rendezvous[rendezvous].busy,
                        ring.all_rendezvous[rendezvous].handed,
                    ) = (true, false);
                }
                Ok(free)
            })
            .transpose()
        })??;
        let number = self.with_ring(to, |ring| {
            ring.all_rendezvous[rendezvous].number += 1;
            Ok(ring.all_rendezvous[rendezvous].number)
        })?;
        let mut pending = RendezvousSend {
            endpoint: self,
            to,
            rendezvous,
            number,
            bytes: envelope.bytes,
            staged_from: None,
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
            // Where it is not to be read there, the sender may go on before all has been read.
            if self.world.tuning.single_copy == Some(true) {
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
            if staged && ring.all_rendezvous[rendezvous].staging.is_none() {
                ring.all_rendezvous[rendezvous].staging = Some(self.heap.allocate(STAGING)?);
            }
            let staging =
                ring.all_rendezvous[rendezvous].staging.as_ref().map_or(0, |block| block.offset());
            let shown = ring.rendezvous(rendezvous);
            shown.direct.store(direct, Relaxed);
            shown.staging.store(staging, Relaxed);
            shown.filled.store(0, Relaxed);
            shown.address.store(address, Relaxed);
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

impl RendezvousSend<'_> {
    fn ack(&self) -> &RendezvousAck {
        &self.endpoint.world.memory.ack(self.to, self.endpoint.rank).all_rendezvous[self.rendezvous]
    }
}

impl SenderSide for RendezvousSend<'_> {
    /// Waits until the receiver has everything, or takes the rest from the staging area, which is
    /// filled piece by piece.
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()> {
        let ack = self.ack();
        let finished = || ack.finished.load(Acquire) == self.number;
        if let Some(from) = self.staged_from {
            let mut filled = 0;
            while filled < self.bytes {
                // A piece's place is free again when what was there before has been taken.
                let over = waiter.until_by(Some(self.to), || {
                    let reading = ack.reading.load(Acquire) == self.number;
                    let drained = if reading { ack.drained.load(Acquire) as usize } else { 0 };
                    let free = filled + PIECE <= drained.saturating_add(STAGING);
                    (finished() || free).then(finished)
                })?;
                if over {
                    return Ok(());
                }
                let piece = PIECE.min(self.bytes - filled);
                let ring = self.endpoint.ring(self.to)?;
                let ring = ring.as_ref().expect("the rendezvous is in it");
                let staging = ring.all_rendezvous[self.rendezvous]
                    .staging
                    .as_ref()
                    .expect("made when posted");
                // SAFETY: the source is the caller's buffer of `bytes` bytes; the target a piece
                // of the staging area, which a receiver that lies may read at any time, as bytes.
                unsafe {
                    let to = staging.pointer().add(staged_at(self.number, filled));
                    std::ptr::copy_nonoverlapping(from.add(filled), to, piece);
                }
                filled += piece;
                ring.rendezvous(self.rendezvous).filled.store(filled as u64, Release);
                self.endpoint.world.publish();
                self.endpoint.world.bell(self.to).ring_after_fence();
            }
        }
        // A receiver that asks the kernel reads the data where they are, to the end.
        let staged =
            self.staged_from.is_some() && self.endpoint.world.tuning.single_copy != Some(true);
        let over = waiter.until_by(Some(self.to), || {
            let taken = staged && ack.reading.load(Acquire) == self.number;
            (finished() || taken).then(finished)
        })?;
        self.handed.set(!over);
        Ok(())
    }
}

impl Drop for RendezvousSend<'_> {
    /// The rendezvous is free, and the buffer the sender's alone, after this: a receiver in the
    /// middle of the message sees that it was withdrawn.
    fn drop(&mut self) {
        let (endpoint, ack) = (self.endpoint, self.ack());
        let finished = || ack.finished.load(Acquire) == self.number;
        let mut ring = endpoint.rings[self.to].lock();
        let Some(ring) = ring.as_mut() else { return };
        if self.handed.get() {
            ring.all_rendezvous[self.rendezvous].handed = true;
            return;
        }
        if !finished() {
            access::withdraw(&ring.rendezvous(self.rendezvous).withdrawn, self.number);
            endpoint.world.bell(self.to).ring_after_fence();
            let reads = || ack.reading.load(Acquire) == self.number && !finished();
            // Whoever stops to read does not ring.
            let bell = endpoint.bell().polled(true);
            wait::until_done(bell, || !reads() || endpoint.world.is_dead(self.to));
        }
        ring.all_rendezvous[self.rendezvous].busy = false;
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
        let RendezvousReceive { source, rendezvous: index, number } = self;
        let corrupt = |what| Error::corrupt(source, what);
        let memory = &endpoint.world.memory;
        let ack = &memory.ack(endpoint.rank, source).all_rendezvous[index];
        let reader = RingReader::find(endpoint, source)?;
        let reader = reader.ok_or_else(|| corrupt("its ring has gone"))?;
        let rendezvous = reader.rendezvous(index);
        ack.drained.store(0, Relaxed);
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
            let address = rendezvous.address.load(Relaxed);
            if endpoint.world.tuning.single_copy == Some(true)
                && address != 0
                && super::single_copy::read(memory, source, address, into, bytes)
            {
                return Ok(true);
            }
            let staging = rendezvous.staging.load(Relaxed);
            let staging = memory.heap(source, staging, STAGING);
            let staging = staging.ok_or_else(|| corrupt("a message lies outside its arena"))?;
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
        let ack = &endpoint.world.memory.ack(endpoint.rank, source).all_rendezvous[self.rendezvous];
        ack.finished.store(self.number, Release);
        endpoint.world.bell(source).ring();
    }
}
