//! A task whose value another one uses.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::failure::Failure;
use crate::node::Valued;
use crate::rank::note_here;

/// A task whose value is used as long as this is there.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Input<T> {
    task: Arc<dyn Valued<T>>,
    /// The value is reached from wherever this is.
    _value: PhantomData<T>,
}

impl<T> Input<T> {
    pub(crate) fn new(task: Arc<dyn Valued<T>>) -> Input<T> {
        task.header().is_used();
        Input { task, _value: PhantomData }
    }

    /// The value. The task is over.
    pub(crate) fn value(&self) -> Result<&T, Failure> {
        self.task.outcome().as_ref().map_err(Failure::clone)
    }
}

impl<T> Drop for Input<T> {
    fn drop(&mut self) {
        if self.task.header().is_left() {
            // SAFETY: it has said so.
            note_here(unsafe { self.task.free() });
        }
    }
}
