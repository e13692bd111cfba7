//! The objects that live on the ranks of a process, by number.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::internal::discard;

/// An object, of any type.
type Object = Arc<dyn Any + Send + Sync>;

/// By the rank on which it lives, and its number there. As many as there is memory for.
#[derive(Default)]
pub(crate) struct Objects(Mutex<BTreeMap<(usize, u64), Object>>);

impl Objects {
    pub(crate) fn insert(&self, place: (usize, u64), object: Object) {
        self.0.lock().insert(place, object);
    }

    pub(crate) fn get(&self, place: (usize, u64)) -> Option<Object> {
        self.0.lock().get(&place).cloned()
    }

    /// Those of this rank are not used any more.
    pub(crate) fn forget(&self, rank: usize) {
        let mut all = self.0.lock();
        let places: Vec<_> =
            all.range((rank, 0)..=(rank, u64::MAX)).map(|(place, _)| *place).collect();
        let its: Vec<Object> = places.iter().filter_map(|place| all.remove(place)).collect();
        drop(all);
        end(its);
    }

    /// All are not.
    pub(crate) fn end_all(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        end(all.into_values());
    }
}

/// Their ends may do anything, and panic.
fn end(objects: impl IntoIterator<Item = Object>) {
    for object in objects {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(object))) {
            discard(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_forgets_its_own() {
        let objects = Objects::default();
        let places = [(0, 0), (0, 7), (1, 0), (1, u64::MAX), (2, 3), (usize::MAX, 1)];
        places.iter().for_each(|place| objects.insert(*place, Arc::new(place.1)));
        let there = || places.map(|place| objects.get(place).is_some());
        objects.forget(1);
        assert_eq!(there(), [true, true, false, false, true, true]);
        objects.forget(usize::MAX);
        objects.forget(5);
        assert_eq!(there(), [true, true, false, false, true, false]);
        objects.forget(0);
        assert_eq!(there(), [false, false, false, false, true, false]);
    }
}
