//! Rounds and stages, as stamps tell them, and the slots in which they are shown.

use crate::transport::shared::layout::{CollectivePage, SLOTS, Slot};
use crate::transport::shared::prefetch::prefetch_to_change;

pub(crate) const STAGE_BITS: u32 = 20;
/// The last stage of a round.
pub const LAST_STAGE: u32 = (1 << STAGE_BITS) - 1;
/// Above this size ranks meet over a tree.
pub const FLAT: usize = 16;

pub(crate) fn stamp(round: u64, stage: u32) -> u64 {
    round << STAGE_BITS | u64::from(stage)
}

/// Which slot of a page is that of `round`.
#[inline]
pub(super) fn index_of(round: u64) -> usize {
    (round % SLOTS as u64) as usize
}

#[inline]
pub(super) fn slot_of(page: &CollectivePage, round: u64) -> &Slot {
    &page.slots[index_of(round)]
}

/// Asks for the lines of `place`, which peers have read, before they are written.
#[inline]
pub(super) fn prefetch_to_write(place: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        prefetch_to_change(place.wrapping_add(line));
    }
}
