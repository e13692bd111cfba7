//! Boards of a rank: taken for a communicator, cleared, and free again.

use std::sync::atomic::Ordering::*;

use super::board::Board;
use super::contexts::{Contexts, EXTRA_COMMS, Retiring, board_of};
use super::endpoint::Endpoint;
use crate::group::{Account, Scope, TRACKS};

impl Endpoint {
    /// The rank has one more communicator besides its block's own.
    pub(crate) fn opens_comm(&self) {
        self.extra_comms.fetch_add(1, Relaxed);
        EXTRA_COMMS.fetch_add(1, Relaxed);
    }

    /// The rank has dropped one of those.
    pub(crate) fn closes_comm(&self) {
        self.extra_comms.fetch_sub(1, Relaxed);
        EXTRA_COMMS.fetch_sub(1, Relaxed);
    }

    /// Boards that this rank could use for a new communicator, as a bit mask.
    pub(crate) fn free_boards(&self) -> Vec<u64> {
        let mut contexts = self.contexts.lock();
        let Contexts { free, retiring, .. } = &mut *contexts;
        retiring.retain(|old| {
            let Account { rounds, agreements, stopped } = old.account;
            let memory = &self.world.memory;
            // Where no call was started there is nothing to read.
            let left_track = |rank: usize, track: usize| {
                let page = || memory.board(rank, memory.layout.board_of_track(old.board, track));
                rounds[track] == 0 || page().done.0.load(Acquire) >= rounds[track]
            };
            let left = |rank: usize| {
                let page = memory.board(rank, old.board);
                rank == self.rank
                    || (page.agreed.0.load(Acquire) >= agreements
                        && (0..rounds.len()).all(|track| left_track(rank, track))
                        && (!stopped || page.told.0.load(Acquire) != 0))
                    || page.context.0.load(Acquire) != old.scope.context
                    || self.world.is_dead(rank)
            };
            let here = &old.scope.here;
            let settled = match &old.scope.together {
                Some(together) => together.is_over(old.account, here, left),
                None => here.iter().all(left),
            };
            if settled {
                free[old.board / 64] |= 1 << (old.board % 64);
            }
            !settled
        });
        free.clone()
    }

    /// The least number that this rank can give to a new communicator.
    pub(crate) fn next_context(&self) -> u64 {
        self.contexts.lock().next
    }

    pub(crate) fn skip_contexts(&self, next: u64) {
        let mut contexts = self.contexts.lock();
        contexts.next = contexts.next.max(next);
    }

    /// Takes a board for a new communicator and clears this rank's page of it, if it is free.
    pub(crate) fn take_board(&self, board: usize, context: u64) -> bool {
        let (word, bit) = (board / 64, 1 << (board % 64));
        let mut contexts = self.contexts.lock();
        let free = contexts.free.get_mut(word).filter(|word| **word & bit != 0);
        let Some(word) = free else { return false };
        *word &= !bit;
        self.clear_boards(&mut contexts, board);
        self.world.memory.board(self.rank, board).context.0.store(context, Release);
        true
    }

    /// The rank starts its first call on the communicator of this board.
    pub(crate) fn use_tracks(&self, board: usize) {
        self.contexts.lock().tracks[board / 64] |= 1 << (board % 64);
    }

    /// Clears this rank's pages for a communicator; those for started calls only if they were used, as
    /// few are, and each page takes memory from the first touch on.
    fn clear_boards(&self, contexts: &mut Contexts, board: usize) {
        self.clear_board(board);
        let (word, bit) = (&mut contexts.tracks[board / 64], 1 << (board % 64));
        if *word & bit != 0 {
            *word &= !bit;
            let layout = &self.world.memory.layout;
            (1..=TRACKS).for_each(|track| self.clear_board(layout.board_of_track(board, track)));
        }
    }

    fn clear_board(&self, board: usize) {
        let page = self.world.memory.board(self.rank, board);
        page.slots.iter().for_each(|slot| slot.stamp.store(0, Release));
        page.proposals.iter().for_each(|proposal| proposal.clear());
        let words = [&page.done, &page.arrive, &page.release, &page.agreed, &page.told];
        words.iter().for_each(|word| word.0.store(0, Release));
        page.fault.clear();
    }

    /// Clears what this rank shows of a block, before any rank can enter it.
    pub(crate) fn clear_for(&self, block: u32) {
        self.clear_boards(&mut self.contexts.lock(), board_of(block));
        self.world.memory.failure(self.rank, block).clear();
    }

    /// The communicator on this board is gone; the board is free when no peer reads it any more.
    /// `started`: the rounds on its tracks.
    pub(crate) fn retire_board(&self, board: &Board, scope: &Scope, started: [u64; TRACKS]) {
        let page = self.world.memory.board(self.rank, board.index);
        page.context.0.store(0, Release);
        let stopped = page.fault.holds(scope.context);
        let mut rounds = [board.rounds(); 1 + TRACKS];
        rounds[1..].copy_from_slice(&started);
        let account = Account { rounds, agreements: board.agreements(), stopped };
        let retiring = Retiring { board: board.index, account, scope: scope.clone() };
        self.contexts.lock().retiring.push(retiring);
    }
}
