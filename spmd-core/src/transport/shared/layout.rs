//! What lies where in an arena. Every field that a peer reads is an atomic, so that a reference
//! to it is sound whatever another process writes.
//!
//! ```text
//! control   header | bells, one line pair a rank | deaths | notices    all ranks write
//! segment r head   | text table | areas | failures | ring table       rank r writes, all read
//!           shares, one a peer                       rank r and that peer write, all read
//!           heap                                     rank r writes, all read
//!           windows, of process ranks                all ranks write that have the window
//! ```

use crate::sync::atomic::{AtomicU8 as SharedU8, AtomicU32 as SharedU32, AtomicU64 as SharedU64};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::collective::proposal::Proposal;
use super::record::CallRecord;
use super::ring::format::{CHUNKS, RENDEZVOUS, RING_BYTES, RendezvousAck};
use crate::group::TRACKS;
use crate::text::Table;

#[cfg(target_os = "linux")]
pub(crate) const MAGIC: u64 = 0x7370_6d64_6172_656e;
pub(crate) const PAGE: usize = 4096;
const COLORS: usize = 32;

/// Slots of an area: collectives that may be under way on one communicator at once.
pub(crate) const SLOTS: usize = 4;
/// Bytes that travel in a slot's first cache line.
pub(crate) const INLINE: usize = 48;
/// Bytes a slot carries at most without exposing a buffer.
pub const PAYLOAD: usize = 4096;
/// Places of a rank for how it has failed, which blocks use in turn.
pub(crate) const FAILURES: usize = 3;
/// Waiting agents of one rank that are on record at once.
pub(crate) const AGENTS: usize = 8;
/// Bytes of text of one fault.
pub(crate) const FAULT_BYTES: usize = 2000;

/// The first page of an arena.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) protocol: AtomicU32,
    pub(crate) ranks: AtomicU32,
    /// Bytes of a segment's records: differs between versions that don't fit together.
    pub(crate) records_bytes: AtomicU64,
    /// The launcher's process.
    pub(crate) launcher: AtomicU32,
    _pad: AtomicU32,
    pub(crate) faults: FaultCount,
}

/// How many faults have been recorded, in a line of its own: every call looks at it.
#[repr(C, align(64))]
pub(crate) struct FaultCount {
    /// Numbers given to faults.
    pub(crate) claimed: SharedU32,
    /// Faults that can be read.
    pub(crate) ready: SharedU32,
    /// The number of the last one that ends single waits: a verdict.
    pub(crate) verdict: SharedU32,
}

/// A rank's bell, and what the launcher says of its process.
#[repr(C, align(128))]
pub(crate) struct BellLine {
    pub(crate) word: crate::sync::atomic::AtomicU32,
    /// 1 once the kernel has confirmed that the rank's process is gone.
    pub(crate) dead: AtomicU32,
    /// 1 once others have gone on without the rank, which has ended its block.
    pub(crate) departed: AtomicU32,
    /// 1 while a sender waits for room in its ring to the rank.
    pub(crate) crowded: crate::sync::atomic::AtomicU32,
}

/// A place for one fault. `faults.rs` says whose there are, and when a place is used again.
#[repr(C, align(64))]
pub(crate) struct FaultPlace<const N: usize = FAULT_BYTES> {
    /// 0 empty, `u32::MAX` being written, else the number, in the order of all faults, of the one
    /// that is here.
    pub(crate) state: SharedU32,
    pub(crate) len: SharedU32,
    /// The communicator or the block that it stops; 0 for all.
    pub(crate) stops: SharedU64,
    pub(crate) text: [SharedU8; N],
}

/// One agent of a rank that sleeps in a wait.
#[repr(C, align(64))]
pub(crate) struct Agent {
    /// Odd while it waits; moves on at every start and end of a wait.
    pub(crate) epoch: AtomicU64,
    /// Whom it waits for: a world rank plus one, or [`Agent::ANY`].
    pub(crate) on: AtomicU32,
    /// The block in which it waits.
    pub(crate) block: AtomicU32,
    /// The communicator.
    pub(crate) context: AtomicU64,
    /// Milliseconds of the arena's clock at the start.
    pub(crate) since: AtomicU64,
    /// The last snapshot in which it looked again and still had to wait.
    pub(crate) confirmed: AtomicU64,
    /// 1 if the agent is the rank's own, 0 if it is one to which the rank gave a communicator.
    pub(crate) own: AtomicU32,
    /// What ends the wait: [`Agent::ACT`], [`Agent::MESSAGE`], [`Agent::DATA`], [`Agent::POLL`],
    /// [`Agent::STARTED`] or [`Agent::LOCK`].
    pub(crate) ended_by: AtomicU32,
    /// 1 if what stops its communicator does not end the wait.
    pub(crate) steadfast: AtomicU32,
    /// Which of the communicator's tracks of started calls it is; 0 for all other calls.
    pub(crate) track: AtomicU32,
    pub(crate) call: CallRecord,
}

impl Agent {
    pub(crate) const ANY: u32 = u32::MAX;
    /// Something that whoever it waits for does.
    pub(crate) const ACT: u32 = 0;
    /// A message, which it looks for where messages come.
    pub(crate) const MESSAGE: u32 = 1;
    /// Data that another process's library is about to bring, or what another process answers
    /// whatever it waits for: nobody has to do anything for it.
    pub(crate) const DATA: u32 = 2;
    /// A message, for which the rank polls: it may stop that at any time.
    pub(crate) const POLL: u32 = 3;
    /// The end of a call that the agent has started: what that waits for is on record itself, or
    /// nothing of the rank counts as waiting.
    pub(crate) const STARTED: u32 = 4;
    /// A lock of a window, which whoever has it leaves: where it lies in another process, by what
    /// comes there.
    pub(crate) const LOCK: u32 = 5;
}

/// The first page of a segment.
#[repr(C, align(128))]
pub(crate) struct Head {
    /// `block << 2 | state`: the block that the rank is in, and whether it is inside (1), has
    /// left it properly (2) or has failed (3). 0: it has not entered the world.
    pub(crate) state: AtomicU64,
    pub(crate) pid: AtomicU32,
    /// Who besides the waiting agents may hold a communicator of the rank, as in `agents::idle`.
    pub(crate) idle_agents: AtomicU32,
    /// 1 if the rank is in a block in which it has called `agree` or `shrink`: it means to go on
    /// when others fail.
    pub(crate) goes_on: AtomicU32,
    pub(crate) agents: [Agent; AGENTS],
}

/// One call in flight on one communicator, as its owner shows it.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// `round << 20 | stage`; written last.
    pub(crate) stamp: AtomicU64,
    pub(crate) fingerprint: AtomicU64,
    pub(crate) inline: [AtomicU64; INLINE / 8],
    pub(crate) lengths: [AtomicU64; 8],
    /// Buffers that peers may read until the round is over.
    pub(crate) exposed: [Exposed; 3],
    /// 1 once the owner has taken its exposures back early.
    pub(crate) withdrawn: AtomicU64,
    _pad: [AtomicU64; 1],
    pub(crate) call: CallRecord,
    _pad2: [AtomicU64; 4],
}

/// Where a buffer lies, for peers.
#[repr(C)]
pub(crate) struct Exposed {
    /// An address (ranks of one process) or an offset in the owner's segment; 0 for none.
    pub(crate) place: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// What one rank shows on one communicator.
#[repr(C, align(128))]
pub(crate) struct CollectivePage {
    /// The communicator that the owner uses it for; 0 for none that can be dropped.
    pub(crate) context: Word,
    /// The last round that the owner has left.
    pub(crate) done: Word,
    /// The owner's subtree has arrived.
    pub(crate) arrive: Word,
    /// The owner has learnt that all have arrived.
    pub(crate) release: Word,
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) payload: [Payload; SLOTS],
    /// The last agreement that the owner has left.
    pub(crate) agreed: Word,
    pub(crate) proposals: [Proposal; 2],
    /// 1 once the owner knows what has stopped the communicator.
    pub(crate) told: Word,
    /// By what the owner has stopped it.
    pub(crate) fault: FaultPlace,
}

/// A word in a line of its own.
#[repr(C, align(64))]
pub(crate) struct Word(pub(crate) AtomicU64);

/// Room for a small message of a collective.
#[repr(C, align(128))]
pub(crate) struct Payload(pub(crate) [AtomicU8; PAYLOAD]);

/// Bytes of an arena of threads for large messages beyond those that rings have places for: about
/// 45,000 that a rank has under way. Memory is taken page by page, as it is touched.
const CHUNK_ROOM: usize = 4 << 20;

/// What a receiver tells one sender: how far it has read.
#[repr(C, align(128))]
pub(crate) struct Ack {
    /// Bytes of the sender's ring that have been read.
    pub(crate) head: AtomicU64,
    /// 1 while the receiver keeps as much from this sender as its window allows.
    pub(crate) full: AtomicU64,
    pub(crate) all_rendezvous: [RendezvousAck; RENDEZVOUS],
    /// Where it says that of those in chunks: offsets in its segment, 0 until it has taken one.
    pub(crate) chunks: [AtomicU64; CHUNKS],
}

/// The sizes of an arena; the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaLayout {
    pub(crate) ranks: usize,
    /// Communicators that a rank can have at a time.
    pub(crate) areas: usize,
    pub(crate) segment_bytes: usize,
    /// Bytes before the first segment.
    pub(crate) control_bytes: usize,
    /// Whether messages have room: a ring from each rank to each.
    pub(crate) rings: bool,
    /// Bytes of each rank that each peer may write as well.
    pub(crate) share_bytes: usize,
}

/// What each of two process ranks has of memory that both may write.
#[cfg(target_os = "linux")]
const SHARE: usize = 1 << 20;
/// Up to how many process ranks have it.
#[cfg(target_os = "linux")]
const SHARING: usize = 128;

/// What a process rank has at least for staging areas and shared buffers.
#[cfg(target_os = "linux")]
const STAGING: usize = 64 << 20;

/// Ranks of one process have rings up to this many.
const RINGED: usize = 256;

impl ArenaLayout {
    /// The arena of ranks that share an address space, with a heap of `heap_bytes` besides what
    /// rings need: none where buffers can be reached where they are.
    pub(crate) fn anonymous(ranks: usize, heap_bytes: usize) -> ArenaLayout {
        let areas = if ranks <= 256 { 1024 } else { 128 };
        let control_bytes = control_bytes(ranks);
        let rings = ranks <= RINGED;
        let mut layout =
            ArenaLayout { ranks, areas, segment_bytes: 0, control_bytes, rings, share_bytes: 0 };
        let rings = if layout.rings { ranks * RING_BYTES + CHUNK_ROOM } else { 0 };
        layout.segment_bytes = layout.heap_offset() + rings + heap_bytes.next_multiple_of(PAGE);
        layout
    }

    /// The arena of process ranks, sparse: 64 GiB of address space a rank, less where there are
    /// many.
    #[cfg(target_os = "linux")]
    pub(crate) fn processes(ranks: usize) -> ArenaLayout {
        const TOTAL: usize = 16 << 40;
        let segment_bytes = (TOTAL / ranks.max(1)).min(64 << 30) / PAGE * PAGE;
        let control_bytes = control_bytes(ranks);
        let share_bytes = if ranks <= SHARING { SHARE } else { 0 };
        ArenaLayout { ranks, areas: 1024, segment_bytes, control_bytes, rings: true, share_bytes }
    }

    /// The same with segments of so many bytes, as far as these are neither too few for what ranks
    /// need nor more than before.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_segments(self, bytes: usize) -> ArenaLayout {
        let least = (self.heap_offset() + self.ranks * RING_BYTES).next_multiple_of(PAGE) + STAGING;
        let segment_bytes = bytes.max(least).min(self.segment_bytes) / PAGE * PAGE;
        ArenaLayout { segment_bytes, ..self }
    }

    /// The layout of an arena of process ranks whose file is so long, if it can be one.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_file(ranks: usize, bytes: usize) -> Option<ArenaLayout> {
        // A number that somebody else has written: sums of so many fit.
        let layout = Some(ranks).filter(|ranks| *ranks <= 1 << 20).map(ArenaLayout::processes)?;
        let segments = bytes.checked_sub(layout.control_bytes)?;
        let layout = layout.with_segments(segments / ranks);
        (layout.total_bytes() == bytes).then_some(layout)
    }

    pub(crate) fn bells_offset(&self) -> usize {
        bells_offset()
    }

    pub(crate) fn deaths_offset(&self) -> usize {
        deaths_offset(self.ranks)
    }

    /// Places for the deaths of ranks, and one for what stops everything.
    pub(crate) fn deaths(&self) -> usize {
        deaths(self.ranks)
    }

    pub(crate) fn notices_offset(&self) -> usize {
        notices_offset(self.ranks)
    }

    /// How many faults can be looked up by their numbers.
    #[inline]
    pub(crate) fn notices(&self) -> usize {
        notices(self.ranks)
    }

    #[inline]
    pub(crate) fn segment_offset(&self, rank: usize) -> usize {
        self.control_bytes + rank * self.segment_bytes
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.segment_offset(self.ranks)
    }

    /// The records at the start of a segment are shifted by some lines, differently from rank to
    /// rank: at equal offsets in their pages, those of many ranks would compete for the same few
    /// places of a first-level cache.
    #[inline]
    pub(crate) fn records_offset(&self, rank: usize) -> usize {
        self.segment_offset(rank) + rank % COLORS * (PAGE / COLORS)
    }

    /// With those of the tracks.
    #[inline]
    pub(crate) fn all_areas(&self) -> usize {
        self.areas * (1 + TRACKS)
    }

    // Offsets within a segment's records.

    #[inline]
    pub(crate) fn text_offset(&self) -> usize {
        size_of::<Head>()
    }

    #[inline]
    pub(crate) fn area_offset(&self, area: usize) -> usize {
        self.text_offset()
            + size_of::<Table>().next_multiple_of(128)
            + area * size_of::<CollectivePage>()
    }

    /// The area of such a track (1 and up) of started calls, of the communicator whose other calls
    /// are on this area.
    #[inline]
    pub(crate) fn area_of_track(&self, area: usize, track: usize) -> usize {
        self.areas * track + area
    }

    pub(crate) fn failure_offset(&self, place: usize) -> usize {
        self.area_offset(self.all_areas()) + place * size_of::<FaultPlace>()
    }

    pub(crate) fn verdict_offset(&self) -> usize {
        self.failure_offset(FAILURES)
    }

    pub(crate) fn acks_offset(&self) -> usize {
        (self.verdict_offset() + size_of::<FaultPlace>()).next_multiple_of(128)
    }

    pub(crate) fn ring_table_offset(&self) -> usize {
        let acks = if self.rings { self.ranks * size_of::<Ack>() } else { 0 };
        self.acks_offset() + acks
    }

    /// Where in a rank's segment lies what `peer` may write as well.
    pub(crate) fn share_offset(&self, peer: usize) -> usize {
        let table = if self.rings { self.ranks * size_of::<AtomicU64>() } else { 0 };
        let records = (self.ring_table_offset() + table).next_multiple_of(PAGE) + PAGE;
        records + peer * self.share_bytes
    }

    pub(crate) fn heap_offset(&self) -> usize {
        self.share_offset(self.ranks)
    }

    /// All of a rank's heap.
    pub(crate) fn heap(&self) -> Range<usize> {
        self.heap_offset()..self.segment_bytes
    }

    /// The same of a process: what it has for itself, and what is for parts of windows, which peers may
    /// write, and for nothing else ever.
    pub(crate) fn heap_and_windows(&self) -> (Range<usize>, Range<usize>) {
        let Range { start, end } = self.heap();
        let middle = start + (end - start) / 2 / PAGE * PAGE;
        (start..middle, middle..end)
    }
}

fn bells_offset() -> usize {
    size_of::<Header>().next_multiple_of(PAGE)
}

fn deaths_offset(ranks: usize) -> usize {
    bells_offset() + (ranks * size_of::<BellLine>()).next_multiple_of(PAGE)
}

fn deaths(ranks: usize) -> usize {
    ranks + 1
}

fn notices_offset(ranks: usize) -> usize {
    deaths_offset(ranks) + (deaths(ranks) * size_of::<FaultPlace>()).next_multiple_of(PAGE)
}

/// Enough that a rank which must look at all others has missed more faults than there are ranks.
fn notices(ranks: usize) -> usize {
    (2 * ranks + 64).next_power_of_two()
}

fn control_bytes(ranks: usize) -> usize {
    notices_offset(ranks) + (notices(ranks) * size_of::<SharedU64>()).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_lines_do_not_share() {
        assert_eq!(size_of::<Slot>() % 64, 0);
        assert_eq!(std::mem::offset_of!(Slot, call), 192);
        assert_eq!(std::mem::offset_of!(Slot, exposed), 128);
        assert!(size_of::<Head>() <= PAGE);
        let layouts = [
            ArenaLayout::anonymous(4096, 0),
            #[cfg(target_os = "linux")]
            ArenaLayout::processes(1),
            #[cfg(target_os = "linux")]
            ArenaLayout::processes(SHARING),
            #[cfg(target_os = "linux")]
            ArenaLayout::processes(4096),
            #[cfg(target_os = "linux")]
            ArenaLayout::processes(SHARING).with_segments(1),
        ];
        for layout in layouts {
            assert!(layout.heap_offset() <= layout.segment_bytes);
            assert_eq!(layout.share_offset(0) % PAGE, 0);
            assert!(layout.share_offset(0) >= layout.ring_table_offset() + PAGE);
            assert_eq!(layout.segment_bytes % PAGE, 0);
            assert_eq!(layout.control_bytes % PAGE, 0);
            assert!(layout.failure_offset(FAILURES) <= layout.verdict_offset());
            assert!(layout.verdict_offset() + size_of::<FaultPlace>() <= layout.acks_offset());
            assert!(layout.bells_offset() < layout.deaths_offset());
            assert!(layout.deaths_offset() < layout.notices_offset());
            assert!(layout.notices_offset() + layout.notices() * 8 <= layout.control_bytes);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_tells_its_layout() {
        for (ranks, each) in [(1, 0), (2, 1 << 30), (128, 300 << 20), (4096, usize::MAX)] {
            let layout = ArenaLayout::processes(ranks).with_segments(each);
            let bytes = layout.total_bytes();
            assert_eq!(ArenaLayout::of_file(ranks, bytes), Some(layout), "{ranks} {each}");
            for wrong in [0, 4096, bytes - 1, bytes + 1, usize::MAX] {
                assert_eq!(ArenaLayout::of_file(ranks, wrong), None, "{ranks} {each} {wrong}");
            }
        }
        let (usual, least) =
            (ArenaLayout::processes(2), ArenaLayout::processes(2).with_segments(0));
        assert_eq!(usual.with_segments(usize::MAX), usual);
        assert!(least.segment_bytes >= least.heap_offset() + STAGING);
        assert!(least.total_bytes() < 1 << 30, "{least:?}");
    }
}
