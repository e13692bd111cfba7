//! What planes keep with a communicator (attributes, MPI 5.0 section 7.7).

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

/// One value of each type, as long as the communicator lives, or calls go on that it has started.
#[derive(Clone, Default)]
pub(super) struct Attributes(Arc<Mutex<Vec<Box<dyn Any + Send>>>>);

impl Attributes {
    pub(super) fn get<T: Any + Clone>(&self) -> Option<T> {
        self.0.lock().iter().find_map(|it| it.downcast_ref::<T>().cloned())
    }

    pub(super) fn keep<T: Any + Send>(&self, value: T) {
        self.0.lock().push(Box::new(value));
    }
}
