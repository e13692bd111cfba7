//! The end of what an agent has started, and who is told of it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Whether something that goes on is over.
#[derive(Default)]
pub(crate) struct Completion {
    /// Where it comes among all that have ended on this thread, from one on; zero if it is not over.
    place: Cell<u64>,
    /// Who is told, under which key.
    told: Cell<Option<(Rc<Completed>, usize)>>,
}

thread_local! {
    /// How many have ended on this thread.
    static ENDED: Cell<u64> = const { Cell::new(0) };
}

/// The keys of what is over, in that order, for who waits for the next of many.
#[derive(Default)]
pub(crate) struct Completed(RefCell<VecDeque<usize>>);

impl Completion {
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.place.get() != 0
    }

    /// Where it comes among all that have ended on this thread, if it is over.
    pub(crate) fn place(&self) -> Option<u64> {
        Some(self.place.get()).filter(|place| *place != 0)
    }

    /// It is over.
    pub(crate) fn complete(&self) {
        self.place.set(ENDED.with(|ended| {
            ended.set(ended.get() + 1);
            ended.get()
        }));
        if let Some((completed, key)) = self.told.take() {
            completed.add(key);
        }
    }

    /// Tells `completed` when this is over, under this key; at once, if it is.
    pub(crate) fn tell(&self, completed: &Rc<Completed>, key: usize) {
        match self.is_over() {
            true => completed.add(key),
            false => self.told.set(Some((completed.clone(), key))),
        }
    }
}

impl Completed {
    pub(crate) fn add(&self, key: usize) {
        self.0.borrow_mut().push_back(key);
    }

    /// The first that was not taken yet.
    pub(crate) fn take(&self) -> Option<usize> {
        self.0.borrow_mut().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
