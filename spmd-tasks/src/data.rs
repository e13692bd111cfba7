//! Values that tasks read and write, in the order in which the tasks were spawned.

use std::cell::UnsafeCell;
use std::fmt;

use parking_lot::Mutex;

use crate::inner::Act;
use crate::order::Order;
use crate::place::{Mode, Place, Use};
use crate::region::Region;
use crate::view::sealed::{Lends, View};

/// A value that tasks read and write: see [`Tasks::datadeps`](crate::Tasks::datadeps).
///
/// Tasks reach it by [`DataDeps::read`](crate::DataDeps::read) and its like, everybody else when they are
/// over, by [`get_mut`](Data::get_mut) and [`into_inner`](Data::into_inner).
#[derive(Default)]
pub struct Data<T> {
    order: Mutex<Order>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by tasks alone while the data are shared: by one that writes it, which may
// be on another thread (`Send`), or by several that read it (`Sync`), as `Order` has it.
unsafe impl<T: Send + Sync> Sync for Data<T> {}

impl<T> Data<T> {
    /// Data that tasks may read and write.
    pub const fn new(value: T) -> Data<T> {
        Data { order: Mutex::new(Order::new()), value: UnsafeCell::new(value) }
    }

    /// The value. No task uses it, as nobody else has the data.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// That of a task that uses the value like this.
    pub(crate) fn place<'d>(&'d self, mode: Mode, fold: Act<'d>) -> Place<'d> {
        Place { order: &self.order, how: Use { mode, region: Region::WHOLE }, fold, wrong: None }
    }

    pub(crate) fn value(&self) -> *mut T {
        self.value.get()
    }
}

impl<'d, T: Send + Sync> View<'d> for &'d Data<T> {
    fn place(&self, mode: Mode) -> Place<'d> {
        Data::place(self, mode, None)
    }
}

impl<'a, T> Lends<'a> for &Data<T> {
    type Shared = &'a T;
    type Exclusive = &'a mut T;

    unsafe fn shared(&'a self) -> &'a T {
        // SAFETY: this function's contract.
        unsafe { &*self.value() }
    }

    unsafe fn exclusive(&'a self) -> &'a mut T {
        // SAFETY: this function's contract.
        unsafe { &mut *self.value() }
    }
}

impl<T> From<T> for Data<T> {
    fn from(value: T) -> Data<T> {
        Data::new(value)
    }
}

impl<T> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Data").finish_non_exhaustive()
    }
}
