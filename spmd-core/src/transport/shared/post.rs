//! Sending and fetching: what happens to a message's data on the way.

use std::sync::atomic::Ordering::*;

use parking_lot::MutexGuard;

use super::Endpoint;
use super::access;
use super::agents::Waiter;
use super::inbox::{Arrived, Body, Envelope};
use super::queue::Offer;
use super::ring::{EAGER, PIECE, RingWriter, STAGING};
use crate::buffer::View;
use crate::element::DType;
use crate::error::{Error, Result};
use crate::wait::publish;

/// A message whose data the receiver has not taken yet. The sender's buffer must stay as it is
/// until [`Pending::complete`] has returned.
#[must_use]
pub(crate) enum Pending<'a> {
    /// Nothing to wait for.
    Done,
    /// The receiver copies from memory of this process.
    Offer { offer: Offer, to: usize, _packed: Option<Vec<u8>> },
    /// The receiver takes it from a lane.
    Lane(LanePending<'a>),
}

/// A message in a lane.
pub(crate) struct LanePending<'a> {
    endpoint: &'a Endpoint,
    to: usize,
    lane: usize,
    number: u64,
    bytes: usize,
    /// Where the data are, if they go through the staging area.
    staged_from: Option<*const u8>,
    /// A copy of the data in the arena, if they don't.
    _copy: Option<super::heap::Block>,
    _packed: Option<Vec<u8>>,
}

/// How a message is to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// A small one is gone at once; a large one waits for the receiver.
    Standard,
    /// Waits for the receiver in any case.
    Synchronous,
    /// Needs no help from the sender once posted.
    Detached,
}

impl Endpoint {
    /// Sends a message to world rank `to`.
    ///
    /// # Safety
    /// The viewed buffer stays alive and unwritten until the result has been completed; a
    /// result that is dropped instead takes the data back first.
    pub(crate) unsafe fn post<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        manner: Manner,
        waiter: &Waiter<'_>,
    ) -> Result<Pending<'a>> {
        let eager = envelope.bytes <= EAGER && manner != Manner::Synchronous;
        if let Some(queue) = self.world.queue(to) {
            let pending = if eager {
                queue.push(Arrived { envelope, body: Body::Eager(packed(data)) });
                Pending::Done
            } else {
                let packed = data.contiguous().is_none().then(|| packed(data));
                let ptr = packed.as_ref().map_or_else(
                    || data.contiguous().expect("not packed because contiguous"),
                    |packed| packed.as_ptr(),
                );
                // SAFETY: `ptr` leads to the viewed buffer, which the caller keeps, or to
                // `packed`, which the result keeps; dropping the result withdraws the offer.
                let (offer, handover) = unsafe { Offer::new(ptr, envelope.bytes, self.rank) };
                queue.push(Arrived { envelope, body: Body::Handover(handover) });
                Pending::Offer { offer, to, _packed: packed }
            };
            self.world.bell(to).ring();
            return Ok(pending);
        }
        if eager {
            let mut pack = |room: *mut u8| {
                // SAFETY: the ring gives room for the envelope's bytes, all the data, in its own
                // block of the arena, where no buffer lies.
                unsafe { data.pack(room) }
            };
            waiter.until_by(Some(to), || {
                self.with_ring(to, |ring| ring.write(self, to, &envelope, None, &mut pack))
                    .transpose()
            })??;
            return Ok(Pending::Done);
        }
        self.post_in_lane(to, envelope, data, manner, waiter).map(Pending::Lane)
    }

    fn ring(&self, to: usize) -> Result<MutexGuard<'_, Option<RingWriter>>> {
        let mut ring = self.rings[to].lock();
        if ring.is_none() {
            *ring = Some(RingWriter::new(self, to)?);
        }
        Ok(ring)
    }

    fn with_ring<R>(&self, to: usize, f: impl FnOnce(&mut RingWriter) -> Result<R>) -> Result<R> {
        f(self.ring(to)?.as_mut().expect("made just now"))
    }

    fn post_in_lane<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        manner: Manner,
        waiter: &Waiter<'_>,
    ) -> Result<LanePending<'a>> {
        let lane = waiter.until_by(Some(to), || {
            self.with_ring(to, |ring| {
                let free = ring.lanes.iter().position(|lane| !lane.busy);
                free.inspect(|lane| ring.lanes[*lane].busy = true);
                Ok(free)
            })
            .transpose()
        })??;
        let number = self.with_ring(to, |ring| {
            ring.lanes[lane].number += 1;
            Ok(ring.lanes[lane].number)
        })?;
        let mut pending = LanePending {
            endpoint: self,
            to,
            lane,
            number,
            bytes: envelope.bytes,
            staged_from: None,
            _copy: None,
            _packed: None,
        };
        let memory = &self.world.memory;
        let mut direct = 0;
        let mut address = 0;
        let reachable =
            data.contiguous().and_then(|ptr| memory.offset_in_heap(self.rank, ptr, envelope.bytes));
        if let Some(offset) = reachable {
            direct = offset;
        } else if manner == Manner::Standard {
            pending._packed = data.contiguous().is_none().then(|| packed(data));
            let ptr = pending._packed.as_ref().map(|packed| packed.as_ptr());
            pending.staged_from = ptr.or(data.contiguous());
            address = pending.staged_from.map_or(0, |ptr| ptr as u64);
        } else {
            let copy = self.heap.allocate(envelope.bytes)?;
            // SAFETY: the block has room for all the data.
            unsafe { data.pack(copy.pointer()) };
            direct = copy.offset();
            pending._copy = Some(copy);
        }
        let staged = pending.staged_from.is_some();
        self.with_ring(to, |ring| {
            if staged && ring.lanes[lane].staging.is_none() {
                ring.lanes[lane].staging = Some(self.heap.allocate(STAGING)?);
            }
            let staging = ring.lanes[lane].staging.as_ref().map_or(0, |block| block.offset());
            let shown = ring.lane(lane);
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
                ring.write(self, to, &envelope, Some((lane, number)), &mut nothing)
            })
            .transpose()
        })??;
        Ok(pending)
    }
}

fn packed(data: &View<'_>) -> Vec<u8> {
    let mut bytes = Vec::<u8>::with_capacity(data.bytes());
    // SAFETY: the vector has room for all the data, and `pack` writes every byte of it.
    unsafe {
        data.pack(bytes.as_mut_ptr());
        bytes.set_len(data.bytes());
    }
    bytes
}

impl Pending<'_> {
    /// Waits until the receiver has taken the data.
    pub(crate) fn complete(self, waiter: &Waiter<'_>) -> Result<()> {
        match &self {
            Pending::Done => Ok(()),
            Pending::Offer { offer, to, .. } => {
                waiter.until_by(Some(*to), || offer.done().then_some(()))
            }
            Pending::Lane(pending) => pending.complete(waiter),
        }
        // An error drops `self`, which takes the data back.
    }
}

impl LanePending<'_> {
    fn ack(&self) -> &super::layout::LaneAck {
        &self.endpoint.world.memory.ack(self.to, self.endpoint.rank).lanes[self.lane]
    }

    /// Waits until the receiver has everything, and feeds it piece by piece where needed.
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()> {
        let ack = self.ack();
        let finished = || ack.finished.load(Acquire) == self.number;
        if let Some(from) = self.staged_from {
            let mut filled = 0;
            while filled < self.bytes {
                // A piece's place is free again when all but the last three have been taken.
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
                let ring = ring.as_ref().expect("the lane is in it");
                let staging = ring.lanes[self.lane].staging.as_ref().expect("made when posted");
                // SAFETY: the source is the caller's buffer of `bytes` bytes; the target a piece
                // of the staging area, which a receiver that lies may read at any time, as bytes.
                unsafe {
                    let to = staging.pointer().add(filled % STAGING);
                    std::ptr::copy_nonoverlapping(from.add(filled), to, piece);
                }
                filled += piece;
                ring.lane(self.lane).filled.store(filled as u64, Release);
                publish();
                self.endpoint.world.bell(self.to).ring_after_fence();
            }
        }
        waiter.until_by(Some(self.to), || finished().then_some(()))
    }
}

impl Drop for LanePending<'_> {
    /// The lane is free, and the buffer the sender's alone, after this: a receiver in the middle
    /// of the message sees that it was withdrawn.
    fn drop(&mut self) {
        let (endpoint, ack) = (self.endpoint, self.ack());
        let finished = || ack.finished.load(Acquire) == self.number;
        let mut ring = endpoint.rings[self.to].lock();
        let Some(ring) = ring.as_mut() else { return };
        if !finished() {
            access::withdraw(&ring.lane(self.lane).withdrawn, self.number);
            endpoint.world.bell(self.to).ring_after_fence();
            while ack.reading.load(Acquire) == self.number
                && !finished()
                && !endpoint.world.is_dead(self.to)
            {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        }
        ring.lanes[self.lane].busy = false;
    }
}

impl Endpoint {
    /// Takes the data of a message to `into`.
    ///
    /// # Safety
    /// `into` is valid for writes of the message's bytes.
    pub(crate) unsafe fn fetch(
        &self,
        arrived: Arrived,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<()> {
        let Arrived { envelope, body } = arrived;
        let bytes = envelope.bytes;
        let taken = match body {
            Body::Eager(data) => {
                assert_eq!(data.len(), bytes);
                // SAFETY: the target has room for `bytes`, and the source, a vector of this
                // rank's own, has as many.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), into, bytes) };
                true
            }
            Body::Handover(handover) => {
                let copied = handover.read(&self.world, |from, len| {
                    assert_eq!(len, bytes);
                    // SAFETY: the target has room for `bytes`, and the sender's buffer, which it
                    // keeps alive while the handover is being read, has as many.
                    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) };
                });
                copied.is_some()
            }
            // SAFETY: the target is valid, as the caller promises.
            Body::Large(large) => unsafe { self.fetch_large(large, bytes, into, waiter)? },
        };
        if taken {
            return Ok(());
        }
        // It was withdrawn: its sender has failed, and says so by a fault.
        waiter.until_by(Some(envelope.source as usize), || None)
    }

    /// Tells the sender of a message that will not be taken that it has been.
    pub(crate) fn refuse(&self, message: Arrived) {
        let source = message.envelope.source as usize;
        match message.body {
            Body::Large(large) => {
                let ack = &self.world.memory.ack(self.rank, source).lanes[large.lane];
                ack.finished.store(large.number, Release);
            }
            // A handover is given back by being dropped: before its sender is woken.
            body => drop(body),
        }
        self.world.bell(source).ring();
    }

    /// Whether data of this type that come from a peer must be looked at first: another process
    /// may write any bytes, and two types of one program may have the same number, which is a
    /// hash of 32 bits. Types without invalid values need no look.
    pub(crate) fn must_check(&self, dtype: DType) -> bool {
        dtype.valid.is_some()
    }

    /// As [`Endpoint::fetch`]. Gives false if the sender has withdrawn the message.
    unsafe fn fetch_large(
        &self,
        large: super::ring::Large,
        bytes: usize,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        let source = large.source;
        let corrupt = |what| Error::Corrupt { rank: source, what };
        let memory = &self.world.memory;
        let ack = &memory.ack(self.rank, source).lanes[large.lane];
        let reader = super::ring::RingReader::find(self, source)?;
        let reader = reader.ok_or_else(|| corrupt("its ring has gone"))?;
        let lane = reader.lane(large.lane);
        ack.drained.store(0, Relaxed);
        let admitted = access::announce(&ack.reading, large.number, &lane.withdrawn);
        let result = (|| {
            let withdrawn = || lane.withdrawn.load(Acquire) >= large.number;
            if !admitted {
                return Ok(false);
            }
            if lane.number.load(Acquire) != large.number {
                return Err(corrupt("a large message is not in its lane"));
            }
            let direct = lane.direct.load(Relaxed);
            if direct != 0 {
                let from = memory.heap(source, direct, bytes);
                let from = from.ok_or_else(|| corrupt("a message lies outside its arena"))?;
                // SAFETY: the source lies within the arena; the target has room for `bytes`.
                unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) };
                return Ok(true);
            }
            if self.world.tuning.single_copy
                && super::single_copy::read(memory, source, lane.address.load(Relaxed), into, bytes)
            {
                return Ok(true);
            }
            let staging = lane.staging.load(Relaxed);
            let staging = memory.heap(source, staging, STAGING);
            let staging = staging.ok_or_else(|| corrupt("a message lies outside its arena"))?;
            let mut drained = 0;
            while drained < bytes {
                let filled = waiter.until_by(Some(source), || {
                    let filled = lane.filled.load(Acquire) as usize;
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
                        let from = staging.add(drained % STAGING);
                        std::ptr::copy_nonoverlapping(from, into.add(drained), piece);
                    }
                    drained += piece;
                    ack.drained.store(drained as u64, Release);
                    publish();
                    self.world.bell(source).ring_after_fence();
                }
            }
            Ok(true)
        })();
        // In this order: the sender uses the lane again when it sees the second, and another
        // thread of this rank may then announce itself in the first.
        ack.reading.store(0, Release);
        ack.finished.store(large.number, Release);
        publish();
        self.world.bell(source).ring_after_fence();
        result
    }
}
