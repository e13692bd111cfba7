//! The values of [`rank_local!`](crate::rank_local) that one rank has.

use std::any::Any;
use std::cell::{Cell, RefCell};

/// The values of one rank, or of a thread that is none.
pub(crate) struct Locals {
    values: RefCell<Values>,
    /// Whether they are being dropped.
    closed: Cell<bool>,
}

#[derive(Default)]
struct Values {
    /// By place.
    all: Vec<Option<Box<dyn Any>>>,
    /// The places in the order of their first use.
    order: Vec<usize>,
}

thread_local! {
    static OUTSIDE: Locals = const { Locals::new() };
}

/// Whether those of this thread, on which no rank runs, are being dropped, or have been.
pub(crate) fn thread_is_closed() -> bool {
    OUTSIDE.try_with(Locals::is_closed).unwrap_or(true)
}

/// Gives the values of this thread, on which no rank runs, to `f`.
pub(crate) fn with_thread<R>(f: impl FnOnce(&Locals) -> R) -> R {
    OUTSIDE.with(f)
}

impl Locals {
    pub(crate) const fn new() -> Locals {
        let values = Values { all: Vec::new(), order: Vec::new() };
        Locals { values: RefCell::new(values), closed: Cell::new(false) }
    }

    /// The value in this place, which `init` makes if there is none: valid until [`Locals::close`]
    /// or the end of `self`.
    pub(crate) fn get<T: 'static>(&self, place: usize, init: fn() -> T) -> *const T {
        assert!(
            !self.closed.get(),
            "a rank_local! was used while those of its rank are being dropped"
        );
        if let Some(known) = self.find(place) {
            return known;
        }
        // The initialiser may use other values, and even this one.
        let made: Box<dyn Any> = Box::new(init());
        if let Some(known) = self.find(place) {
            return known;
        }
        let mut values = self.values.borrow_mut();
        if values.all.len() <= place {
            values.all.resize_with(place + 1, || None);
        }
        values.all[place] = Some(made);
        values.order.push(place);
        drop(values);
        self.find(place).expect("it was just put there")
    }

    fn find<T: 'static>(&self, place: usize) -> Option<*const T> {
        let values = self.values.borrow();
        let value = values.all.get(place)?.as_ref()?;
        Some(value.downcast_ref::<T>().expect("a place belongs to one static"))
    }

    /// Whether they are being dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Drops all values, the last first. For their owner, when nothing uses them any more.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        loop {
            let mut values = self.values.borrow_mut();
            let Some(place) = values.order.pop() else { return };
            let value = values.all[place].take();
            drop(values);
            drop(value);
        }
    }
}

impl Drop for Locals {
    fn drop(&mut self) {
        self.close();
    }
}
