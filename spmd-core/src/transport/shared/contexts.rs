//! Boards and numbers for new communicators.

use std::sync::atomic::Ordering::*;

use super::Endpoint;
use super::board::Board;
use crate::group::Scope;

/// Boards 0 and 1 belong to the blocks themselves, in turn.
pub(crate) const RESERVED: usize = 2;
/// Numbers below this belong to blocks.
pub(crate) const FIRST_CONTEXT: u64 = 1 << 32;

/// A board whose communicator is gone here while peers may still read it.
pub(crate) struct Retiring {
    board: usize,
    last: u64,
    scope: Scope,
}

/// What a rank has to give to new communicators.
pub(crate) struct Contexts {
    /// Bit set: the board is free.
    free: Vec<u64>,
    retiring: Vec<Retiring>,
    next: u64,
    /// The communicators from which agents of this rank want to make others now.
    parents: Vec<u64>,
    /// The one of them whose turn it is.
    turn: Option<u64>,
}

/// An agent's wish to make a communicator. Agents of one rank that did so at once could agree
/// with different peers on the same board and number; so one has the turn, and the others try
/// again. It is given to the parent with the lowest number, which has it on all its ranks sooner
/// or later, as those before it let go of it in any case.
pub struct Turn<'a> {
    endpoint: &'a Endpoint,
    parent: u64,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, parent: u64) -> Turn<'a> {
        endpoint.contexts.lock().parents.push(parent);
        Turn { endpoint, parent }
    }

    /// Boards that this rank could use, as a bit mask, and the least number that it can give:
    /// all members use one board that is free on all of them, and the greatest number. `None`
    /// while another agent has the turn.
    pub fn offer(&self) -> Option<(Vec<u64>, u64)> {
        let mut contexts = self.endpoint.contexts.lock();
        if contexts.turn.is_none() && contexts.parents.iter().min() == Some(&self.parent) {
            contexts.turn = Some(self.parent);
        }
        let mine = contexts.turn == Some(self.parent);
        mine.then(|| (self.endpoint.free_boards(&mut contexts), contexts.next))
    }

    /// Lets go of the turn: on some rank, another agent has it.
    pub fn pass(&self) {
        let mut contexts = self.endpoint.contexts.lock();
        contexts.turn = contexts.turn.filter(|parent| *parent != self.parent);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pass();
        self.endpoint.contexts.lock().parents.retain(|parent| *parent != self.parent);
    }
}

impl Contexts {
    pub(super) fn new(boards: usize) -> Contexts {
        let mut free = vec![u64::MAX; boards / 64];
        free[0] &= !((1 << RESERVED) - 1);
        Contexts {
            free,
            retiring: Vec::new(),
            next: FIRST_CONTEXT,
            parents: Vec::new(),
            turn: None,
        }
    }
}

impl Endpoint {
    /// Boards that this rank could use for a new communicator, as a bit mask.
    fn free_boards(&self, contexts: &mut Contexts) -> Vec<u64> {
        let Contexts { free, retiring, .. } = contexts;
        retiring.retain(|old| {
            let left = |rank: usize| {
                let page = self.world.memory.board(rank, old.board);
                rank == self.rank
                    || page.done.0.load(Acquire) >= old.last
                    || self.world.is_dead(rank)
            };
            let settled = old.scope.group.iter().all(left);
            if settled {
                free[old.board / 64] |= 1 << (old.board % 64);
            }
            !settled
        });
        free.clone()
    }

    pub(crate) fn skip_contexts(&self, next: u64) {
        let mut contexts = self.contexts.lock();
        contexts.next = contexts.next.max(next);
    }

    /// Takes a board for a new communicator and clears this rank's page of it.
    pub(crate) fn take_board(&self, board: usize) {
        self.contexts.lock().free[board / 64] &= !(1 << (board % 64));
        self.clear_board(board);
    }

    pub(crate) fn clear_board(&self, board: usize) {
        let page = self.world.memory.board(self.rank, board);
        page.slots.iter().for_each(|slot| slot.stamp.store(0, Release));
        [&page.done, &page.arrive, &page.release].iter().for_each(|word| word.0.store(0, Release));
    }

    /// The communicator on this board is gone; the board is free when no peer reads it any more.
    pub(crate) fn retire_board(&self, board: &Board, scope: &Scope) {
        let retiring = Retiring { board: board.index, last: board.rounds(), scope: scope.clone() };
        self.contexts.lock().retiring.push(retiring);
    }
}
