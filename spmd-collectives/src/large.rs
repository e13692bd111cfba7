//! How algorithms on large data see the buffers of all ranks.
//!
//! Where every buffer can be reached (ranks in one address space, or buffers in shared memory),
//! peers read them in place. Where the kernel lets processes read each other's memory, it copies
//! what is large enough. Otherwise each rank copies its data, segment by segment, through a
//! staging area in its arena that stays in the cache. Its places take turns, so one meeting of all
//! ranks a segment is enough: whoever fills a place again has met everybody since it was last
//! read. Two places would do for that; with more of them, and each call beginning at the next,
//! what is filled has left the nearest cache of the peer that read it, which takes half the time.
//!
//! Half of that again it takes to fill what one has just read oneself: to read a line that a peer
//! has written brings it over, and its writer must ask for it back. So data for one peer go, where
//! there is such memory, through what the two of them share ([`Round::share`]): results to where
//! the input was that they were made of, every second piece of an exchange to where the piece
//! before came from, and what one sends to where the other's was if they take turns.

mod parts;
mod places;
pub(crate) mod stream;

use std::cell::Cell;

pub(crate) use parts::{Parts, part};
use spmd_core::internal::{LAST_STAGE, Round, copy_around, copy_bytes, copy_from_peer, move_bytes};
use spmd_core::{DType, Error, Result};

/// Which of a rank's exposures is which.
pub(crate) const SEND: usize = 0;
pub(crate) const RECV: usize = 1;
const STAGING: usize = 2;

/// A number that every rank says at the first meeting: which of its buffers can be reached.
const REACHABLE: usize = 0;
const NOT: u64 = 0;
const SEND_ONLY: u64 = 1;
const BOTH: u64 = 2;

/// Bytes of the staging areas of all ranks, as long as three segments of each fit in; of what two
/// ranks share, half as much.
const AREAS: usize = 1 << 20;

/// A place is written again when those who fold have taken results from it, two turns later.
const LEAST_PLACES: usize = 3;

/// How large data go that cannot be read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPath {
    /// Through staging areas with places of so many bytes, the same on all ranks.
    Staged(usize),
    /// The same, where a place has a piece of so many bytes for each peer, and one more.
    Pieces(usize),
    /// From `rank` to the others through its staging area with places of so many bytes; of two
    /// ranks through what they share, for which `rank` must be the same on both, and without `show`
    /// even where its buffer can be read in place.
    From { rank: usize, place: usize, show: bool },
    /// Through the kernel.
    Kernel,
}

/// Bytes written by all ranks together from which copies go around caches: with less a later reader
/// finds them there.
const ALL: usize = 64 << 20;

/// A round on large data.
pub(crate) struct LargeRound<'r, 'a> {
    pub(crate) round: &'r Round<'a>,
    pub(crate) dtype: &'a DType,
    /// All peers' buffers can be read in place.
    pub(crate) direct: bool,
    /// Those that cannot be are read through the kernel.
    pub(crate) kernel: bool,
    /// What this rank sends goes through the staging area.
    pub(crate) staged: bool,
    /// All ranks together write more than caches can hold.
    around: bool,
    staging: *mut u8,
    /// Bytes of a place in the staging area, or of a piece if those go through what pairs share.
    place: usize,
    places: usize,
    piece: usize,
    /// Each two ranks have memory that both may write.
    shared: bool,
    /// The memory that two ranks share, if data go from one of them to the other.
    stream: Option<*mut u8>,
    /// The place of the first segment.
    first: usize,
    /// Meetings after the first.
    steps: Cell<usize>,
}

impl<'r, 'a> LargeRound<'r, 'a> {
    /// Exposes this rank's buffers (address and bytes each; may be empty), and meets everybody. If
    /// its data go through the staging area, `fill` is called before that, for the first segment.
    ///
    /// Peers may write what `recv` names, as they see fit: in one address space it is never a
    /// buffer of a type that must be checked ([`Round::must_check`]).
    ///
    /// # Safety
    /// The buffers stay allocated until the round is over. The algorithm orders what this rank
    /// writes into them and what peers read by meetings, and ends with one after the last read.
    pub(crate) unsafe fn meet(
        round: &'r Round<'a>,
        dtype: &'a DType,
        send: (*const u8, usize),
        recv: (*const u8, usize),
        path: CopyPath,
        fill: impl FnOnce(&LargeRound<'r, 'a>),
    ) -> Result<LargeRound<'r, 'a>> {
        let (place, piece) = match path {
            CopyPath::Kernel => (0, 0),
            CopyPath::Staged(place) | CopyPath::From { place, .. } => {
                (place.next_multiple_of(64), 0)
            }
            CopyPath::Pieces(piece) => {
                let piece = piece.next_multiple_of(64);
                (piece.saturating_mul(round.size() + 1), piece)
            }
        };
        let kernel = path == CopyPath::Kernel;
        let share = round.share(0, 1 % round.size());
        let most = share.map_or(0, |share| share.1 / LEAST_PLACES);
        let shared = (1..=most).contains(&piece);
        // If the two take turns, the place stays the same; if one goes on sending, it moves on.
        let number = round.number() as usize;
        let (first, stream) = match path {
            CopyPath::From { rank, .. } if round.size() == 2 && place <= most => {
                (number.wrapping_sub(rank), share.map(|share| share.0))
            }
            _ => (number, None),
        };
        let hidden = stream.is_some() && matches!(path, CopyPath::From { show: false, .. });
        // SAFETY: the buffers stay allocated until the round is over, and meetings stand between
        // what this rank writes into them and what peers read (this function's contract).
        let (send_shown, recv_shown) = unsafe {
            let shown = !hidden && round.expose(SEND, send.0, send.1);
            (shown, round.expose(RECV, recv.0, recv.1))
        };
        let place = if shared { piece } else { place };
        let places = AREAS / round.size() / if shared { 2 * piece } else { place.max(1) };
        let mut large = LargeRound {
            round,
            dtype,
            direct: true,
            kernel,
            staged: !send_shown && !kernel,
            around: false,
            staging: std::ptr::null_mut(),
            place,
            places: places.clamp(LEAST_PLACES, 16),
            piece,
            shared,
            stream,
            first,
            steps: Cell::new(0),
        };
        if round.one_address_space() {
            round.arrive(1)?;
            return Ok(large);
        }
        let shown = match (send_shown, recv_shown) {
            (false, _) => NOT,
            (true, false) => SEND_ONLY,
            (true, true) => BOTH,
        };
        round.set_number(REACHABLE, shown);
        if kernel {
            round.announce_address(SEND, send.0);
            round.arrive(1)?;
        } else {
            large.show_staging(fill)?;
        }
        large.direct = (0..round.size()).all(|peer| large.shows(peer) == BOTH);
        Ok(large)
    }

    fn show_staging(&mut self, fill: impl FnOnce(&LargeRound<'r, 'a>)) -> Result<()> {
        self.round.announce_reading();
        if !self.shared && self.stream.is_none() {
            let area = self.places * self.place;
            self.staging = self.round.staging(area)?;
            // SAFETY: staging memory outlives the round.
            unsafe { self.round.expose(STAGING, self.staging, area) };
        }
        if self.staged {
            fill(self);
        }
        self.round.arrive(1)?;
        self.round.learn_reading();
        Ok(())
    }

    /// Says that every rank writes so many bytes.
    pub(crate) fn writes(&mut self, bytes: usize) {
        self.around = goes_around(bytes, self.round.size());
    }

    /// Whether ranks write into each other's buffers: in one address space, if all bytes are
    /// values. Others are looked at by who receives them, whose buffers are not open: that all
    /// ranks go by one type here is a matter of a hash.
    pub(crate) fn pushes(&self) -> bool {
        self.round.one_address_space() && !self.round.must_check(self.dtype)
    }

    /// Which of a peer's buffers can be reached.
    fn shows(&self, peer: usize) -> u64 {
        self.round.number_of(peer, REACHABLE)
    }

    /// Copies `count` elements, `offset` bytes into what a peer sends (of `total` bytes), to
    /// `into`: in place or through the kernel, where nothing is staged.
    ///
    /// # Safety
    /// `into`, this rank's own and apart from the buffer, has room for them, and they lie within
    /// that. Nobody who keeps the rules writes them now.
    pub(crate) unsafe fn fetch(
        &self,
        peer: usize,
        (offset, total): (usize, usize),
        into: *mut u8,
        count: usize,
    ) -> Result<()> {
        let bytes = count * self.dtype.size as usize;
        // SAFETY: the elements lie within the buffer, whose length `reach` and `read_private`
        // compare, nobody who keeps the rules writes them now, and `into`, apart from them, has
        // room (this function's contract), as has `scratch`. `take` looks at bytes that may be no
        // values before it gives them to the caller.
        unsafe {
            if self.direct || self.shows(peer) != NOT {
                return self.take(peer, self.reach(peer, SEND, total)?.add(offset), into, count);
            }
            if !self.round.must_check(self.dtype) {
                return self.round.read_private(peer, SEND, (offset, total), into, bytes);
            }
            let mut scratch = vec![0u8; bytes];
            self.round.read_private(peer, SEND, (offset, total), scratch.as_mut_ptr(), bytes)?;
            self.take(peer, scratch.as_ptr(), into, count)
        }
    }

    /// Meets everybody once more.
    pub(crate) fn arrive(&self) -> Result<()> {
        self.steps.set(self.steps.get() + 1);
        self.round.arrive(self.stage_after(self.steps.get())?)
    }

    /// The stage in which a rank is after so many steps from the first meeting on.
    pub(super) fn stage_after(&self, steps: usize) -> Result<u32> {
        match u32::try_from(1 + steps) {
            Ok(stage) if stage <= LAST_STAGE => Ok(stage),
            _ => Err(Error::argument(
                "the data have too many segments for one call; raise SPMD_SEGMENT".into(),
            )),
        }
    }

    /// A peer's buffer, where buffers can be reached.
    pub(crate) fn reach(&self, peer: usize, which: usize, bytes: usize) -> Result<*const u8> {
        let place = self.round.reach(peer, which, bytes)?;
        place.ok_or_else(|| self.round.lied(peer))
    }

    /// Copies `count` elements of a peer to this rank's own memory.
    ///
    /// # Safety
    /// Both places hold `count` elements, apart from each other, and nobody who keeps the rules
    /// writes `from` now.
    pub(crate) unsafe fn take(
        &self,
        peer: usize,
        from: *const u8,
        into: *mut u8,
        count: usize,
    ) -> Result<()> {
        let mut scratch = Vec::new();
        // SAFETY: both places hold `count` elements, apart from each other, and nobody who keeps
        // the rules writes `from` now (this function's contract). What `checked` gives is `from`,
        // or as much in `scratch`, apart from `into` as well.
        unsafe {
            if !self.around {
                return take(self.round, self.dtype, peer, from, into, count);
            }
            let from = checked(self.round, self.dtype, peer, from, count, &mut scratch)?;
            copy_around(from, into, count * self.dtype.size as usize);
        }
        Ok(())
    }
}

/// Whether copies go around caches where each of `ranks` ranks writes so many bytes.
pub(crate) fn goes_around(bytes: usize, ranks: usize) -> bool {
    bytes.saturating_mul(ranks) >= ALL
}

/// As [`LargeRound::take`], for any round.
///
/// # Safety
/// As [`LargeRound::take`].
pub(crate) unsafe fn take(
    round: &Round<'_>,
    dtype: &DType,
    peer: usize,
    from: *const u8,
    into: *mut u8,
    count: usize,
) -> Result<()> {
    let bytes = count * dtype.size as usize;
    let mut scratch = Vec::new();
    // SAFETY: both places hold `count` elements, and nobody who keeps the rules writes `from` now
    // (contract of `LargeRound::take`). What `checked` gives is `from`, or as much in `scratch`.
    // Memory of a peer is apart from `into`, which is this rank's own; `copy` needs no such thing.
    unsafe {
        let from = checked(round, dtype, peer, from, count, &mut scratch)?;
        if peer == round.rank() {
            move_bytes(from, into, bytes);
        } else {
            copy_from_peer(from, into, bytes);
        }
    }
    Ok(())
}

/// A peer's `count` elements at `from`, to fold: in place, or copied to `scratch` and checked,
/// where bytes may be no values of their type.
///
/// # Safety
/// As [`LargeRound::take`]; the result is valid until `scratch` changes.
pub(crate) unsafe fn checked(
    round: &Round<'_>,
    dtype: &DType,
    peer: usize,
    from: *const u8,
    count: usize,
    scratch: &mut Vec<u8>,
) -> Result<*const u8> {
    if !round.must_check(dtype) || peer == round.rank() {
        return Ok(from);
    }
    let bytes = count * dtype.size as usize;
    scratch.resize(bytes, 0);
    // SAFETY: `from` holds `count` elements; what a hostile peer makes of them meanwhile, the
    // copy is some bytes, which are then looked at.
    let valid = unsafe {
        copy_bytes(from, scratch.as_mut_ptr(), bytes);
        dtype.all_valid(scratch.as_ptr(), count)
    };
    if valid { Ok(scratch.as_ptr()) } else { Err(round.invalid(peer)) }
}
