//! What one rank brings to a collective call: memory, its division into blocks, an operation, a
//! root.
//!
//! [`Call`](crate::call::Call) is what all ranks compare, `Args` what each has for itself. Both are
//! made by the typed method, and below it nothing else travels.

use crate::buffer::Place;
use crate::call::{Call, Kind};
use crate::comm::Comm;
use crate::element::DType;
use crate::error::{Error, MixedPlaces, Result};
use crate::op::ErasedOp;

/// Carries a collective out in the arena that its ranks share.
///
/// # Safety
/// As [`dispatch`](crate::dispatch::dispatch); the memory is the host's.
pub type Arena = unsafe fn(&Comm, &Call<'_>, &Args<'_>) -> Result<()>;

/// A collective: what planes know it by, and how the arena carries it out.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// What is carried out. The call that needs it may be another one: a broadcast of an object is
    /// two of bytes.
    pub kind: Kind,
    /// What is left of it for a rank alone.
    pub single_rank: SingleRank,
    /// How the arena does it.
    pub arena: Arena,
}

/// What a rank does that is the only one of its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleRank {
    /// Nothing.
    Nothing,
    /// It takes what it contributes.
    Copies,
    /// The same as one among others.
    Same,
}

/// What one rank brings to a collective.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Args<'a> {
    /// What is to be done with it.
    pub collective: &'a Collective,
    /// The elements.
    pub dtype: &'a DType,
    /// The operation of a reduction.
    pub op: Option<&'a ErasedOp<'a>>,
    /// The root, in the communicator; 0 where there is none.
    pub root: usize,
    /// What the rank contributes.
    pub send: Memory<'a>,
    /// Where it gets what it is given; the same as `send` in place.
    pub recv: Memory<'a>,
    /// The blocks that its peers have for it, where it cannot know them from its own: in a scatter
    /// of varying blocks the root's, in an alltoall of such all ranks' in an order of its own, of
    /// its neighbours in a grid what each has.
    pub incoming: &'a [Incoming],
}

/// A block that a peer has for this rank. Whoever said so may have lied.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// The peer.
    pub peer: usize,
    /// In a grid, on which side of this rank it is.
    pub side: usize,
    /// Which of the peer's blocks it is.
    pub index: usize,
    /// Where it starts in what the peer sends, in elements.
    pub from: usize,
    /// How many elements the peer sends in all.
    pub total: usize,
    /// Where it goes in this rank's memory.
    pub into: usize,
    /// How many elements it has.
    pub count: usize,
}

/// Memory of a rank in one piece.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Memory<'a> {
    /// Where it is.
    pub place: Place,
    /// Its first element; null where this rank needs none.
    pub ptr: *mut u8,
    /// What it is made of.
    pub blocks: Blocks<'a>,
}

/// Blocks of elements, one after another without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks<'a> {
    /// A single one, of so many elements.
    One(usize),
    /// One for each rank, of so many elements each.
    Equal(usize),
    /// One for each rank, of different lengths: the displacement of each, and the end of the last.
    Varying(&'a [usize]),
}

impl<'a> Args<'a> {
    /// Nothing but the call.
    #[inline]
    pub const fn new(collective: &'a Collective, dtype: &'a DType) -> Args<'a> {
        let (send, recv) = (Memory::NONE, Memory::NONE);
        Args { collective, dtype, op: None, root: 0, send, recv, incoming: &[] }
    }

    /// With an operation.
    #[inline]
    pub fn op(mut self, op: &'a ErasedOp<'a>) -> Args<'a> {
        self.op = Some(op);
        self
    }

    /// With a root.
    #[inline]
    pub fn root(mut self, root: usize) -> Args<'a> {
        self.root = root;
        self
    }

    /// What the rank contributes.
    #[inline]
    pub fn send(mut self, send: Memory<'a>) -> Args<'a> {
        self.send = send;
        self
    }

    /// Where it gets what it is given.
    #[inline]
    pub fn recv(mut self, recv: Memory<'a>) -> Args<'a> {
        self.recv = recv;
        self
    }

    /// The blocks that its peers have for it.
    #[inline]
    pub fn incoming(mut self, incoming: &'a [Incoming]) -> Args<'a> {
        self.incoming = incoming;
        self
    }

    /// The size of an element in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.dtype.size as usize
    }

    /// Whether all memory is where the processor reads it.
    #[inline]
    pub fn is_on_host(&self) -> bool {
        self.send.place == Place::Host && self.recv.place == Place::Host
    }

    /// What is wrong with the places of its memory, which are not all on the host, where the planes that
    /// there are, or the `only` one that is asked, gave these reasons.
    #[cold]
    pub(crate) fn out_of_reach(
        &self,
        call: &Call<'_>,
        refused: &[String],
        only: Option<&str>,
    ) -> Error {
        let (send, recv) = (self.send.place, self.recv.place);
        if self.send.is_some() && self.recv.is_some() && send != recv {
            let call = call.to_string();
            return Error::MixedPlaces(Box::new(MixedPlaces { call, send, recv }));
        }
        match only {
            None => Error::out_of_reach(call, refused),
            Some(only) => Error::left_to_one_plane(call, refused, only),
        }
    }
}

impl Memory<'_> {
    /// No memory.
    pub const NONE: Memory<'static> =
        Memory { place: Place::Host, ptr: std::ptr::null_mut(), blocks: Blocks::One(0) };

    /// Memory of the host, which holds values or is room for them.
    #[inline]
    pub fn host(ptr: *const u8, blocks: Blocks<'_>) -> Memory<'_> {
        Memory { place: Place::Host, ptr: ptr.cast_mut(), blocks }
    }

    /// Whether this rank has any.
    #[inline]
    pub fn is_some(&self) -> bool {
        !self.ptr.is_null()
    }
}

impl Blocks<'_> {
    /// Where the block of a rank starts, and how long it is.
    #[inline]
    pub fn of(&self, rank: usize) -> (usize, usize) {
        match self {
            Blocks::One(count) => (0, *count),
            Blocks::Equal(count) => (rank * count, *count),
            Blocks::Varying(starts) => (starts[rank], starts[rank + 1] - starts[rank]),
        }
    }

    /// The elements of all of them, one for each of so many ranks.
    #[inline]
    pub fn total(&self, ranks: usize) -> usize {
        match self {
            Blocks::One(count) => *count,
            Blocks::Equal(count) => count.saturating_mul(ranks),
            Blocks::Varying(starts) => starts.last().copied().unwrap_or(0),
        }
    }

    /// The length of the longest.
    #[inline]
    pub fn longest(&self) -> usize {
        match self {
            Blocks::One(count) | Blocks::Equal(count) => *count,
            Blocks::Varying(starts) => {
                starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
            }
        }
    }

    /// Whether their lengths may differ.
    #[inline]
    pub fn vary(&self) -> bool {
        matches!(self, Blocks::Varying(_))
    }

    /// A number that differs, but for chance, between blocks (FNV-1a, by words). Blocks of equal
    /// length need none: they are agreed on, as the ranks make the same call.
    pub fn digest(&self) -> u64 {
        let Blocks::Varying(starts) = self else { return 0 };
        starts.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, start| {
            (hash ^ *start as u64).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}
