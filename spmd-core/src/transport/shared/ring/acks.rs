//! What a receiver says of the large messages of a ring.

use std::sync::atomic::Ordering::*;

use super::super::heap::Block;
use super::super::member::Member;
use super::super::memory::Memory;
use super::format::*;
use super::reader::RendezvousReceive;
use crate::error::{Error, Result};

/// Looks at what `receiver` says of a rendezvous of the ring that `member` writes to it: `None` if
/// it has said nothing yet.
pub(in super::super) fn with_ack<R>(
    member: &Member,
    receiver: usize,
    rendezvous: usize,
    look: impl FnOnce(&RendezvousAck) -> R,
) -> Option<R> {
    let memory = &member.world.memory;
    ack_of(memory, (receiver, member.rank), rendezvous).map(look)
}

/// What a receiver says of a rendezvous of a sender's ring to it.
fn ack_of(
    memory: &Memory,
    (receiver, sender): (usize, usize),
    rendezvous: usize,
) -> Option<&RendezvousAck> {
    let acks = memory.ack(receiver, sender);
    let Some((chunk, index)) = in_chunk(rendezvous) else {
        return acks.all_rendezvous.get(rendezvous);
    };
    let offset = acks.chunks[chunk].load(Acquire);
    let bytes = chunk_size(chunk) * size_of::<RendezvousAck>();
    let base = memory.heap(receiver, offset, bytes).filter(|_| offset != 0)?;
    let base = base.cast::<RendezvousAck>();
    // SAFETY: the chunk lies within the arena, as just checked, which is mapped as long as `memory`
    // lives, and the index within the chunk. What it holds are atomics, which have no invalid values.
    base.is_aligned().then(|| unsafe { &*base.add(index) })
}

/// Where `member` says how far it is with a large message, which it makes if it is not there: `kept`
/// keeps that.
///
/// Errors: there is no memory for it.
pub(in super::super) fn own_ack<'a>(
    member: &'a Member,
    large: &RendezvousReceive,
    kept: &mut Vec<Block>,
) -> Result<&'a RendezvousAck> {
    let (memory, pair) = (&member.world.memory, (member.rank, large.source));
    if let Some((chunk, _)) = in_chunk(large.rendezvous) {
        let place = &memory.ack(member.rank, large.source).chunks[chunk];
        if place.load(Relaxed) == 0 {
            let bytes = chunk_size(chunk) * size_of::<RendezvousAck>();
            let block = member.heap.allocate(bytes)?;
            // SAFETY: the block has so many bytes, which nobody else knows yet.
            unsafe { block.pointer().write_bytes(0, bytes) };
            place.store(block.offset(), Release);
            kept.push(block);
        }
    }
    let nowhere = || Error::corrupt(large.source, "a message names no rendezvous");
    ack_of(memory, pair, large.rendezvous).ok_or_else(nowhere)
}
