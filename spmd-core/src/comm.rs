//! Communicators: a group of ranks and a number. Messages are in `messages.rs`.

mod messages;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::call::{Call, Kind};
use crate::error::{Error, Result};
use crate::group::{Group, Scope};
use crate::transport::shared::agents::Noted;
use crate::transport::shared::board::{Board, FLAT, Round};
use crate::transport::shared::contexts::{CONTEXT_STEP, RANK_BITS, board_of};
use crate::transport::shared::{Endpoint, Mode};

/// A communicator: ranks that call collectives together and exchange messages that no other
/// communicator sees.
///
/// It can be moved to another thread, not shared: calls start from one thread at a time, and
/// collectives in the same order on all its ranks. It frees itself when dropped.
pub struct Comm {
    endpoint: Arc<Endpoint>,
    scope: Scope,
    me: usize,
    board: Board,
    notes: [Cell<(usize, u32, u32, Noted)>; 16],
    /// The block's own communicator, not one made by the program.
    primary: bool,
}

/// Live communicators of this process besides the blocks' own.
static EXTRA_COMMS: AtomicUsize = AtomicUsize::new(0);

/// How many communicators besides the blocks' own are alive in this process.
pub(crate) fn extra_comms() -> usize {
    EXTRA_COMMS.load(Relaxed)
}

impl Comm {
    pub(crate) fn world(endpoint: Arc<Endpoint>, block: u32) -> Comm {
        let group = Group::World(endpoint.world.size());
        let scope = Scope { context: u64::from(block), block, group };
        let (me, board) = (endpoint.rank, Board::new(board_of(block), u64::from(block)));
        Comm { endpoint, scope, me, board, notes: Default::default(), primary: true }
    }

    /// Whether this is a communicator of this end.
    pub(crate) fn is_of(&self, endpoint: &Endpoint) -> bool {
        std::ptr::eq(&raw const *self.endpoint, endpoint)
    }

    /// This rank in this communicator, from 0.
    #[inline]
    pub fn rank(&self) -> usize {
        self.me
    }

    /// How many ranks this communicator has.
    #[inline]
    pub fn size(&self) -> usize {
        self.scope.group.len()
    }

    /// The rank in the world of a rank of this communicator.
    pub fn world_rank(&self, rank: usize) -> usize {
        self.scope.group.world(rank)
    }

    /// Numbers of a call's texts; a call met again costs one comparison.
    #[inline]
    fn note(&self, call: &Call<'_>) -> Noted {
        let site = std::ptr::from_ref(call.site) as usize;
        let dtype = call.dtype.map_or(0, |dtype| dtype.id);
        let op = call.op.map_or(0, |op| op.id());
        let place = &self.notes[(site >> 3) % self.notes.len()];
        let known = place.get();
        if (known.0, known.1, known.2) == (site, dtype, op) {
            return known.3;
        }
        let noted = Noted {
            dtype: call.dtype.map_or(0, |dtype| self.endpoint.text_of(&dtype.to_string())),
            op: call.op.map_or(0, |op| self.endpoint.text(op.name())),
            file: self.endpoint.text(call.site.file()),
        };
        place.set((site, dtype, op, noted));
        noted
    }

    fn refuse_reentry(&self, call: &Call<'_>) -> Result<()> {
        if crate::wait::is_in_operation() {
            return Err(Error::Reentrant { call: call.to_string() });
        }
        Ok(())
    }

    /// Runs a collective on the shared arena: what algorithms of `spmd-collectives` are made of.
    ///
    /// All ranks of the communicator call it, in the same order, with calls of equal
    /// fingerprints. Errors: what `body` gives, or the fault that stops the communicator.
    #[inline]
    pub fn collective<'a, R>(
        &'a self,
        call: &'a Call<'a>,
        body: impl FnOnce(&Round<'a>) -> Result<R>,
    ) -> Result<R> {
        self.refuse_reentry(call)?;
        let noted = self.note(call);
        Round::run(&self.endpoint, &self.scope, &self.board, self.me, call, noted, body)
    }

    /// The algorithm that is forced for this kind of call, if one is.
    #[inline]
    pub fn forced(&self, kind: Kind) -> Option<&str> {
        let forced = &self.endpoint.world.tuning.forced;
        if forced.is_empty() {
            return None;
        }
        forced.iter().find(|(name, _)| name == kind.name()).map(|(_, algorithm)| algorithm.as_str())
    }

    /// Up to how many ranks a small collective is best done flat, everybody reading everybody:
    /// ranks that share a core only add up the work.
    pub fn flat_limit(&self) -> usize {
        if self.endpoint.world.mode == Mode::Virtual { 4 } else { FLAT }
    }

    /// Bytes of a segment, where large data go through staging areas.
    pub fn segment(&self) -> usize {
        self.endpoint.world.tuning.segment
    }

    fn check_rank(&self, call: &Call<'_>, what: &'static str, given: usize) -> Result<()> {
        let size = self.size();
        if given < size {
            return Ok(());
        }
        Err(Error::RankOutOfRange { call: call.to_string(), what, given, size })
    }

    /// Refuses a root that is not a rank of this communicator.
    pub fn check_root(&self, call: &Call<'_>) -> Result<()> {
        call.root.map_or(Ok(()), |root| self.check_rank(call, "root", root))
    }
}

/// What making new communicators needs, for `split` and `dup` in `spmd-collectives`.
impl Comm {
    /// Boards that this rank could use for a new communicator, as a bit mask; all members use the
    /// same one.
    pub fn free_boards(&self) -> Vec<u64> {
        self.endpoint.free_boards()
    }

    /// The least number that this rank can give to a new communicator; all members use the
    /// greatest.
    pub fn next_context(&self) -> u64 {
        self.endpoint.next_context()
    }

    /// Makes the communicator of `members` (ranks of this one, in their new order), of which
    /// this rank is number `me`. `None` if another thread of this rank has taken the board since
    /// it was free. Members must meet once more before they use it.
    ///
    /// Its number is made of `base`, of this communicator's board and of its lowest world rank,
    /// so that of communicators that share a rank no two have the same, even if two threads of
    /// the rank make them at a time: from communicators on different boards.
    ///
    /// # Safety
    /// All members call this with the same arguments but `me`, and use the result only if all of
    /// them have got one. `base` is the greatest [`Comm::next_context`] of all ranks of this
    /// communicator, and `me` is this rank's place in `members`.
    pub unsafe fn child(
        &self,
        members: &[usize],
        me: usize,
        board: usize,
        base: u64,
    ) -> Option<Comm> {
        self.skip_contexts(base);
        let lowest = members.iter().map(|rank| self.world_rank(*rank)).min().unwrap_or(0);
        let context = base + ((self.board.index as u64) << RANK_BITS | lowest as u64);
        if !self.endpoint.take_board(board, context) {
            return None;
        }
        let identity = members.len() == self.size() && members.iter().copied().eq(0..self.size());
        let group = if identity {
            self.scope.group.clone()
        } else {
            Group::Some(members.iter().map(|rank| self.scope.group.world(*rank) as u32).collect())
        };
        let scope = Scope { context, block: self.scope.block, group };
        self.endpoint.extra_comms.fetch_add(1, Relaxed);
        EXTRA_COMMS.fetch_add(1, Relaxed);
        Some(Comm {
            endpoint: self.endpoint.clone(),
            scope,
            me,
            board: Board::new(board, context),
            notes: Default::default(),
            primary: false,
        })
    }

    /// Takes note that `base` has been used, on a rank that gets no communicator now.
    pub fn skip_contexts(&self, base: u64) {
        self.endpoint.skip_contexts(base + CONTEXT_STEP);
    }

    /// Where this communicator lies on the boards of its members.
    pub fn board(&self) -> usize {
        self.board.index
    }

    /// Which host the ranks of the world are on, as a color for `split`: one host, so far.
    pub fn host_color(&self) -> u32 {
        0
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if !self.primary {
            self.endpoint.extra_comms.fetch_sub(1, Relaxed);
            EXTRA_COMMS.fetch_sub(1, Relaxed);
            self.endpoint.retire_board(&self.board, &self.scope);
        }
    }
}
