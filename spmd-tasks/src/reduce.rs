//! Tasks that add to data what they have made by themselves.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::access::{Access, Gives};
use crate::data::Data;
use crate::place::{Mode, Place};

/// A task makes a part of these data by itself, to which it gets a `&mut T`: see
/// [`DataDeps::reduce`](crate::DataDeps::reduce).
pub struct Reduce<'d, T, I, C> {
    data: &'d Data<T>,
    identity: Option<I>,
    combine: Option<C>,
    part: Option<T>,
    /// Where the part is once the task has gone well.
    kept: Arc<Mutex<Option<T>>>,
}

impl<'d, T, I, C> Reduce<'d, T, I, C> {
    pub(crate) fn new(data: &'d Data<T>, identity: I, combine: C) -> Reduce<'d, T, I, C> {
        let (identity, combine) = (Some(identity), Some(combine));
        Reduce { data, identity, combine, part: None, kept: Arc::default() }
    }
}

impl<'d, T, I, C> Access<'d> for Reduce<'d, T, I, C>
where
    T: Send + Sync,
    I: FnOnce() -> T + Send,
    C: FnOnce(&mut T, T) + Send + 'd,
{
    fn places(&mut self, places: &mut Vec<Place<'d>>) {
        let (data, combine, kept) = (self.data, self.combine.take(), self.kept.clone());
        let fold = move || {
            let part = kept.lock().take();
            if let (Some(combine), Some(part)) = (combine, part) {
                // SAFETY: the task that does this has its turn to write the data, alone.
                combine(unsafe { &mut *data.value() }, part);
            }
        };
        places.push(data.place(Mode::Fold, Some(Box::new(fold))));
    }
}

impl<'a, T, I: FnOnce() -> T, C> Gives<'a> for Reduce<'_, T, I, C> {
    type Item = &'a mut T;

    unsafe fn give(&'a mut self) -> &'a mut T {
        let identity = self.identity.take().expect("it is called once");
        self.part.insert(identity())
    }

    fn keep(self) {
        *self.kept.lock() = self.part;
    }
}

impl<T, I, C> fmt::Debug for Reduce<'_, T, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduce").finish_non_exhaustive()
    }
}
