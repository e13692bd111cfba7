//! Values that tasks read and write, in the order in which the tasks were spawned.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::graph::Need;
use crate::node::{Runnable, depends};

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

    pub(crate) fn order(&self) -> &Mutex<Order> {
        &self.order
    }

    pub(crate) fn value(&self) -> *mut T {
        self.value.get()
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

/// How a task uses data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    /// It reads what was there, too.
    Write,
    /// What was there does not matter.
    Overwrite,
}

/// Whom the next task waits for that uses some data.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Order {
    /// The last one that writes them.
    writer: Option<Arc<dyn Runnable>>,
    /// Those that read what that has written.
    readers: Vec<Arc<dyn Runnable>>,
    /// When there are so many, it is looked which are over.
    many: usize,
}

impl Order {
    const fn new() -> Order {
        Order { writer: None, readers: Vec::new(), many: 0 }
    }

    /// The task that must have gone well before the data can be used like this.
    pub(crate) fn needed(&self, mode: Mode) -> Option<Arc<dyn Runnable>> {
        self.writer.as_ref().filter(|_| mode != Mode::Overwrite).cloned()
    }

    /// `task`, which is being made, uses the data like this, after those that use them now.
    pub(crate) fn follows(&mut self, task: &Arc<dyn Runnable>, mode: Mode) {
        if let Some(writer) = &self.writer {
            depends(task.clone(), writer.header(), Need::Data);
        }
        if mode == Mode::Read {
            if self.readers.len() >= self.many.max(16) {
                self.readers.retain(|reader| !reader.header().is_over());
                self.many = 2 * self.readers.len();
            }
            return self.readers.push(task.clone());
        }
        for reader in self.readers.drain(..) {
            depends(task.clone(), reader.header(), Need::Data);
        }
        self.writer = Some(task.clone());
    }
}
