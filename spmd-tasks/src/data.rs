//! Values that tasks read and write, in the order in which the tasks were spawned.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::Mirror;

use crate::inner::Act;
use crate::order::Order;
use crate::place::{Mode, Place, Use};
use crate::placed::Placed;
use crate::processor::Home;
use crate::region::Region;
use crate::view::sealed::{Lends, View};

/// A value that tasks read and write: see [`Tasks::datadeps`](crate::Tasks::datadeps).
///
/// Tasks reach it by [`DataDeps::read`](crate::DataDeps::read) and its like, everybody else when they are
/// over, by [`get_mut`](Data::get_mut) and [`into_inner`](Data::into_inner).
#[derive(Default)]
pub struct Data<T> {
    order: Mutex<Order>,
    /// Where the value is, if on the host or on GPUs.
    home: Option<Arc<Home>>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by tasks alone while the data are shared: by one that writes it, which may
// be on another thread (`Send`), or by several that read it (`Sync`), as `Order` has it.
unsafe impl<T: Send + Sync> Sync for Data<T> {}

impl<T> Data<T> {
    /// Data that tasks may read and write.
    pub const fn new(value: T) -> Data<T> {
        Data { order: Mutex::new(Order::new()), home: None, value: UnsafeCell::new(value) }
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
        let (how, home) = (Use { mode, region: Region::WHOLE }, self.home.clone());
        Place { order: &self.order, how, fold, wrong: None, home }
    }

    pub(crate) fn value(&self) -> *mut T {
        self.value.get()
    }
}

impl<H> Data<H> {
    /// Data that tasks may use on the host and on GPUs, where they have the form `D`: they get a [`Placed`]. It is
    /// on the host at first, and comes by itself where a task asks for it; tasks of
    /// [`TaskOptions::host_or_gpu`](crate::TaskOptions::host_or_gpu) run where it is if that is worth it.
    pub fn placed<D: Mirror<H>>(value: H) -> Data<Placed<H, D>> {
        let value = Placed::new(value);
        Data { home: Some(value.home.clone()), ..Data::new(value) }
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
