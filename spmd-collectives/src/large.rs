//! How algorithms on large data see the buffers of all ranks.
//!
//! Where every buffer can be reached (ranks in one address space, or buffers in shared memory),
//! peers read them in place. Otherwise each rank copies its data, segment by segment, through a
//! staging area in its arena that stays in the cache; two halves take turns, so one meeting of
//! all ranks a segment is enough: whoever fills a half again has met everybody since it was last
//! read.

use std::cell::Cell;

use spmd_core::algorithm::{LAST_STAGE, Round, copy_from_peer};
use spmd_core::{DType, Error, Result};

/// Which of a rank's exposures is which.
pub(crate) const SEND: usize = 0;
pub(crate) const RECV: usize = 1;
const STAGING: usize = 2;

/// A number that every rank says at the first meeting: whether its buffers can be reached.
const REACHABLE: usize = 0;

/// A round on large data, after the first meeting.
pub(crate) struct Large<'r, 'a> {
    pub(crate) round: &'r Round<'a>,
    pub(crate) dtype: DType,
    /// Peers' buffers can be read in place.
    pub(crate) direct: bool,
    staging: *mut u8,
    half: usize,
    stage: Cell<u32>,
}

impl<'r, 'a> Large<'r, 'a> {
    /// Exposes this rank's buffers (address and bytes each; may be empty), and meets everybody.
    /// `half` is the room of one half of the staging area in bytes, the same on all ranks.
    ///
    /// # Safety
    /// The buffers stay allocated until the round is over. The algorithm orders what this rank
    /// writes into them and what peers read by meetings, and ends with one after the last read.
    pub(crate) unsafe fn meet(
        round: &'r Round<'a>,
        dtype: DType,
        send: (*const u8, usize),
        recv: (*const u8, usize),
        half: usize,
    ) -> Result<Large<'r, 'a>> {
        // SAFETY: as the caller promises.
        let reachable = unsafe {
            let send = round.expose(SEND, send.0, send.1);
            round.expose(RECV, recv.0, recv.1) && send
        };
        let mut large = Large {
            round,
            dtype,
            direct: true,
            staging: std::ptr::null_mut(),
            half: half.next_multiple_of(64),
            stage: Cell::new(1),
        };
        if round.one_address_space() {
            round.arrive(1)?;
            return Ok(large);
        }
        round.set_number(REACHABLE, u64::from(reachable));
        large.staging = round.staging(2 * large.half)?;
        // SAFETY: staging memory outlives the round.
        unsafe { round.expose(STAGING, large.staging, 2 * large.half) };
        round.arrive(1)?;
        large.direct = (0..round.size()).all(|peer| round.number_of(peer, REACHABLE) == 1);
        Ok(large)
    }

    /// Meets everybody once more.
    pub(crate) fn arrive(&self) -> Result<()> {
        if self.stage.get() == LAST_STAGE {
            let text = "the data have too many segments for one call; raise SPMD_SEGMENT";
            return Err(Error::Argument(text.into()));
        }
        self.stage.set(self.stage.get() + 1);
        self.round.arrive(self.stage.get())
    }

    /// This rank's half of the staging area for segment `turn`.
    pub(crate) fn half(&self, turn: usize) -> *mut u8 {
        // SAFETY: the area has two halves.
        unsafe { self.staging.add(turn % 2 * self.half) }
    }

    /// A peer's half of its staging area for segment `turn`.
    pub(crate) fn half_of(&self, peer: usize, turn: usize) -> Result<*const u8> {
        let area = self.round.reach(peer, STAGING, 2 * self.half)?;
        let area = area.ok_or_else(|| self.round.lied(peer))?;
        // SAFETY: the area, checked by `reach`, has two halves.
        Ok(unsafe { area.add(turn % 2 * self.half) })
    }

    /// A peer's buffer, where buffers can be reached.
    pub(crate) fn reach(&self, peer: usize, which: usize, bytes: usize) -> Result<*const u8> {
        let place = self.round.reach(peer, which, bytes)?;
        place.ok_or_else(|| self.round.lied(peer))
    }

    /// Copies `count` elements of a peer to this rank's own memory.
    ///
    /// # Safety
    /// Both places hold `count` elements, and nobody who keeps the rules writes `from` now.
    pub(crate) unsafe fn take(
        &self,
        peer: usize,
        from: *const u8,
        into: *mut u8,
        count: usize,
    ) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { take(self.round, self.dtype, peer, from, into, count) }
    }
}

/// As [`Large::take`], for any round.
///
/// # Safety
/// As [`Large::take`].
pub(crate) unsafe fn take(
    round: &Round<'_>,
    dtype: DType,
    peer: usize,
    from: *const u8,
    into: *mut u8,
    count: usize,
) -> Result<()> {
    let bytes = count * dtype.size as usize;
    let mut room = Vec::new();
    // SAFETY: as the caller promises; memory of a peer is apart from this rank's.
    unsafe {
        let from = checked(round, dtype, peer, from, count, &mut room)?;
        if peer == round.rank() {
            std::ptr::copy(from, into, bytes);
        } else {
            copy_from_peer(from, into, bytes);
        }
    }
    Ok(())
}

/// A peer's `count` elements at `from`, to fold: in place, or copied to `room` and checked, where
/// bytes may be no values of their type.
///
/// # Safety
/// As [`Large::take`]; the result is valid until `room` changes.
pub(crate) unsafe fn checked(
    round: &Round<'_>,
    dtype: DType,
    peer: usize,
    from: *const u8,
    count: usize,
    room: &mut Vec<u8>,
) -> Result<*const u8> {
    if !round.must_check(dtype) || peer == round.rank() {
        return Ok(from);
    }
    let bytes = count * dtype.size as usize;
    room.resize(bytes, 0);
    // SAFETY: `from` holds `count` elements; what a hostile peer makes of them meanwhile, the
    // copy is some bytes, which are then looked at.
    let valid = unsafe {
        std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), bytes);
        dtype.all_valid(room.as_ptr(), count)
    };
    if valid { Ok(room.as_ptr()) } else { Err(round.invalid(peer)) }
}

/// The part of `count` elements that rank `rank` of `ranks` works on: its start and length.
pub(crate) fn part(count: usize, ranks: usize, rank: usize) -> (usize, usize) {
    let start = |rank: usize| count / ranks * rank + (count % ranks).min(rank);
    (start(rank), start(rank + 1) - start(rank))
}
