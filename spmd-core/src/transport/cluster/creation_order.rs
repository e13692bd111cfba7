//! Which leader of this process makes communicators now.
//!
//! A library makes a communicator with a call that holds the process up until the others have come,
//! so two of them must be made one after the other, in one order on all processes that make both.
//! Nobody knows who those are. So the leaders that are about to make some try, all of a
//! communicator together, to take the turn in each of their processes, and begin again if one of
//! them could not. A wish that is older than others keeps them from taking the turn, so that it
//! comes to its own.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The leaders of one process, which are known by the numbers of their communicators: an older one
/// has the smaller number.
#[derive(Default)]
pub(super) struct CreationOrder(Mutex<State>);

#[derive(Default)]
struct State {
    wishes: BTreeSet<u64>,
    taken: Option<u64>,
}

impl CreationOrder {
    /// Announces that the leader of this communicator wants to make others.
    pub(super) fn wish(&self, context: u64) -> CreationRequest<'_> {
        self.0.lock().wishes.insert(context);
        CreationRequest { creation_order: self, context }
    }
}

/// A leader that wants its turn, or has it.
pub(super) struct CreationRequest<'a> {
    creation_order: &'a CreationOrder,
    context: u64,
}

impl CreationRequest<'_> {
    /// Takes the turn, if nobody has it and no older communicator's leader wants it.
    pub(super) fn take(&self) -> bool {
        let mut state = self.creation_order.0.lock();
        let mine = state.taken.is_none() && state.wishes.first() == Some(&self.context);
        if mine {
            state.taken = Some(self.context);
        }
        mine
    }

    /// Lets others take the turn, if it was taken.
    pub(super) fn give_back(&self) {
        let mut state = self.creation_order.0.lock();
        if state.taken == Some(self.context) {
            state.taken = None;
        }
    }
}

impl Drop for CreationRequest<'_> {
    fn drop(&mut self) {
        self.give_back();
        self.creation_order.0.lock().wishes.remove(&self.context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_turn_and_the_oldest_wish_comes_first() {
        let creation_order = CreationOrder::default();
        let young = creation_order.wish(3);
        assert!(young.take() && !young.take());
        let (old, beside) = (creation_order.wish(1), creation_order.wish(2));
        assert!(!old.take());
        young.give_back();
        assert!(!young.take() && !beside.take() && old.take());
        // Whoever has no turn gives none back.
        beside.give_back();
        assert!(!beside.take());
        drop(old);
        assert!(!young.take() && beside.take());
        drop(beside);
        assert!(young.take());
    }
}
