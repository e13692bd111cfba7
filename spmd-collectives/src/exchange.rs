//! What all-to-all calls share: every rank holds blocks for peers, one after another, and reads
//! from each peer the block that is for it. Messages are not needed: everybody shows its whole
//! buffer, and readers know where their blocks lie.

use spmd_core::internal::{Args, Incoming, PAYLOAD, Round, copy_bytes};
use spmd_core::{DType, Result};

use crate::large::stream::two_segments;
use crate::large::{CopyPath, LargeRound, take};

/// What a rank puts into an exchange. Memory as the functions here ask for it.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) dtype: &'a DType,
    pub(crate) send: *const u8,
    /// Elements in `send`.
    pub(crate) total: usize,
    pub(crate) recv: *mut u8,
    /// Whether the ranks' counts fit together.
    pub(crate) counts: CountsCheck,
    /// Whether there is a block for each rank of the communicator, which it alone reads.
    pub(crate) by_rank: bool,
}

/// Whether what each rank sends is what another takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountsCheck {
    /// As they make the same call.
    Implied,
    /// What this rank's peers send is what it takes.
    Fit,
    /// Not so.
    Differ(Uneven),
}

/// A block that is not as long as its receiver, which finds that, has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uneven {
    /// Who sends it.
    from: usize,
    sends: usize,
    takes: usize,
}

impl CountsCheck {
    /// Of blocks that come, each with what this rank takes.
    pub(crate) fn of(mut blocks: impl Iterator<Item = (Incoming, usize)>) -> CountsCheck {
        let uneven = blocks.find(|(block, takes)| block.count != *takes);
        uneven.map_or(CountsCheck::Fit, |(block, takes)| {
            CountsCheck::Differ(Uneven { from: block.peer, sends: block.count, takes })
        })
    }

    /// Of the blocks that the peers of a call have for this rank, each with what it takes.
    pub(crate) fn of_incoming(args: &Args<'_>) -> CountsCheck {
        let takes = |block: &Incoming| (*block, args.recv.blocks.of(block.side).1);
        CountsCheck::of(args.incoming.iter().map(takes))
    }

    /// The rank whose block does not fit.
    pub(crate) fn wrong(self) -> Option<usize> {
        match self {
            CountsCheck::Differ(uneven) => Some(uneven.from),
            _ => None,
        }
    }
}

/// The number under which a rank says how long its longest block is.
const LONGEST: usize = 1;
/// The number under which a rank says whose count it has found to be wrong, and what it takes.
const WRONG: usize = 2;
/// The number under which it says what that rank sends.
const SENDS: usize = 3;

impl<'a> Exchange<'a> {
    /// What a call brings, of `ranks` ranks that hold a block for each other.
    pub(crate) fn of_ranks(args: &Args<'a>, ranks: usize, counts: CountsCheck) -> Self {
        Exchange {
            dtype: args.dtype,
            send: args.send.ptr,
            total: args.send.blocks.total(ranks),
            recv: args.recv.ptr,
            counts,
            by_rank: true,
        }
    }

    fn size(&self) -> usize {
        self.dtype.size as usize
    }

    fn publish_agreed(&self, round: &Round<'_>) {
        match self.counts {
            CountsCheck::Implied => {}
            CountsCheck::Fit => round.set_number(WRONG, 0),
            CountsCheck::Differ(Uneven { from, sends, takes }) => {
                let takes = u32::try_from(takes).unwrap_or(u32::MAX);
                round.set_number(WRONG, u64::from(takes) << 32 | (from as u64 + 1));
                round.set_number(SENDS, sends as u64);
            }
        }
    }

    /// After a meeting: the same error on all ranks, if one of them has found counts to differ.
    /// With few peers a rank looks at these alone; the others meet once more, and hear of it there.
    fn check_agreed(
        &self,
        round: &Round<'_>,
        mut incoming: impl Iterator<Item = Incoming>,
    ) -> Result<()> {
        if self.counts == CountsCheck::Implied {
            return Ok(());
        }
        let wrong = |peer: &usize| round.number_of(*peer, WRONG) != 0;
        let found = match self.by_rank {
            true => (0..round.size()).find(wrong),
            false => Some(round.rank())
                .filter(wrong)
                .or_else(|| incoming.find(|block| wrong(&block.peer)).map(|block| block.peer)),
        };
        let Some(to) = found else { return Ok(()) };
        let (said, sends) = (round.number_of(to, WRONG), round.number_of(to, SENDS));
        let (from, takes) = ((said as u32).wrapping_sub(1), said >> 32);
        let more = if takes == u64::from(u32::MAX) { " or more" } else { "" };
        Err(round.disagree(&format!(
            "different counts: rank {from} of the communicator sends {sends} elements to rank {to}, \
             which takes {takes}{more}"
        )))
    }

    /// Everybody shows its blocks in its payload, and reads. One meeting.
    ///
    /// # Safety
    /// `send` holds `total` elements, at most [`PAYLOAD`] bytes on every rank; `recv` has room for
    /// all of `incoming`, and is apart from `send`.
    pub(crate) unsafe fn through_payloads(
        &self,
        round: &Round<'_>,
        incoming: impl Iterator<Item = Incoming> + Clone,
    ) -> Result<()> {
        let (size, bytes) = (self.size(), self.total * self.size());
        self.publish_agreed(round);
        // SAFETY: the payload has that many bytes, and so has `send`.
        unsafe { copy_bytes(self.send, round.payload(bytes), bytes) };
        round.arrive(1)?;
        self.check_agreed(round, incoming.clone())?;
        for block in incoming {
            if !is_within(&block, size, PAYLOAD) {
                return Err(round.lied(block.peer));
            }
            let own = block.peer == round.rank();
            let payload =
                if own { self.send } else { round.payload_of(block.peer, block.total * size) };
            // SAFETY: the peer has published its payload, in which the block lies, as was just
            // looked at, and this rank's own lies in `send`; `recv` has room for it.
            unsafe {
                let (from, into) =
                    (payload.add(block.from * size), self.recv.add(block.into * size));
                take(round, self.dtype, block.peer, from, into, block.count)?;
            }
        }
        Ok(())
    }

    /// Peers read from the buffers where they are: two meetings. Where they cannot, `blocks`
    /// blocks, the same number on all ranks, go piece by piece through the staging areas: a
    /// meeting a piece, and one more. `block(index)` gives the start and length of a block in
    /// `send`, which one rank reads, unless there is only one. Without a `segment` they go through
    /// the kernel instead.
    ///
    /// # Safety
    /// `send` holds `total` elements, all blocks among them; `recv` has room for all of
    /// `incoming`, and is apart from `send`.
    pub(crate) unsafe fn through_buffers(
        &self,
        round: &Round<'_>,
        segment: Option<usize>,
        blocks: usize,
        block: impl Fn(usize) -> (usize, usize),
        incoming: impl Iterator<Item = Incoming> + Clone,
    ) -> Result<()> {
        let size = self.size();
        let longest = (0..blocks).map(|index| block(index).1).max().unwrap_or(0);
        // Ranks that may have blocks of other lengths must come to the same length of pieces.
        let step = segment.map_or(0, |segment| match round.size() {
            2 if self.counts == CountsCheck::Implied => {
                two_segments(segment / blocks.max(1), longest * size, size)
            }
            _ => (segment / (blocks.max(1) * size)).max(1),
        });
        round.set_number(LONGEST, longest as u64);
        self.publish_agreed(round);
        let send = (self.send, self.total * size);
        let nothing = (std::ptr::null(), 0);
        let own = |block: &Incoming| block.peer == round.rank();
        // A block has one reader, unless it is the only one.
        let kept: Vec<usize> = match blocks {
            1 => Vec::new(),
            _ => incoming.clone().filter(own).map(|block| block.index).collect(),
        };
        let piece = |turn: usize, count: usize| count.saturating_sub(turn * step).min(step);
        let fill = |large: &LargeRound<'_, '_>, turn: usize| {
            for index in (0..blocks).filter(|index| !kept.contains(index)) {
                let (offset, count) = block(index);
                // SAFETY: a place has room for a piece of each block; the piece lies in `send`.
                unsafe {
                    let from = self.send.wrapping_add((offset + turn * step) * size);
                    let into = match self.by_rank {
                        true => large.next_for(index, turn),
                        false => large.place(turn).add(index * step * size),
                    };
                    copy_bytes(from, into, piece(turn, count) * size);
                }
            }
        };
        // SAFETY: the buffer is the caller's, and nobody writes it during the call; the last
        // meeting is after the last read.
        let mut large = unsafe {
            let path = match segment {
                None => CopyPath::Kernel,
                Some(_) if self.by_rank => CopyPath::Pieces(step * size),
                Some(_) => CopyPath::Staged(blocks * step * size),
            };
            LargeRound::meet(round, self.dtype, send, nothing, path, |large| fill(large, 0))?
        };
        let taken = incoming.clone().fold(0usize, |sum, block| sum.saturating_add(block.count));
        large.writes(taken.saturating_mul(size));
        self.check_agreed(round, incoming.clone())?;
        if large.direct || large.kernel {
            for block in incoming {
                if !is_within(&block, size, usize::MAX) {
                    return Err(round.lied(block.peer));
                }
                let from = (block.from * size, block.total * size);
                // SAFETY: the block lies in the peer's buffer, whose length is checked, or in
                // `send`; `recv` has room for it.
                unsafe {
                    let into = self.recv.add(block.into * size);
                    if own(&block) {
                        large.take(block.peer, self.send.add(from.0), into, block.count)?;
                    } else {
                        large.fetch(block.peer, from, into, block.count)?;
                    }
                }
            }
            return large.arrive();
        }
        let longest = (0..round.size()).map(|peer| round.number_of(peer, LONGEST) as usize);
        let longest = longest.max().unwrap_or(0);
        if let Some(block) = incoming.clone().find(|block| block.count > longest) {
            return Err(round.lied(block.peer));
        }
        for turn in 0..longest.div_ceil(step) {
            for block in incoming.clone() {
                let (start, count) = (turn * step, piece(turn, block.count));
                if count == 0 {
                    continue;
                }
                if !is_within(&block, size, usize::MAX) {
                    return Err(round.lied(block.peer));
                }
                // SAFETY: the block lies within what the peer sends, which is `send` on this rank.
                // A peer's place, whose length is checked, has room for a piece of each block, and
                // `index` is less than `blocks`. `recv` has room for the block.
                unsafe {
                    let offset = (block.from + start) * size;
                    let from = if own(&block) {
                        self.send.add(offset)
                    } else {
                        let direct = (offset, block.total * size);
                        let staged = || match self.by_rank {
                            true => large.next_from(block.peer, turn),
                            false => {
                                let place = large.place_of(block.peer, turn)?;
                                Ok(place.add(block.index * step * size))
                            }
                        };
                        large.source(block.peer, direct, staged)?
                    };
                    let into = self.recv.add((block.into + start) * size);
                    large.take(block.peer, from, into, count)?;
                }
            }
            if large.staged {
                fill(&large, turn + 1);
            }
            large.arrive()?;
        }
        Ok(())
    }
}

/// Whether a block lies within the peer's buffer, and that within `limit` bytes: both may be
/// another process's word.
fn is_within(block: &Incoming, size: usize, limit: usize) -> bool {
    let end = block.from.checked_add(block.count);
    let bytes = block.total.checked_mul(size);
    end.is_some_and(|end| end <= block.total) && bytes.is_some_and(|bytes| bytes <= limit)
}
