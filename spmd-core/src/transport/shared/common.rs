//! What all ranks of a round would make alike, made once in each process.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::commons::Key;
use super::world::World;

/// A rank's hold on what the ranks of its process have in common. The last one frees it.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Common<T: Send + Sync + 'static> {
    value: Arc<T>,
    key: Key,
    world: Arc<World>,
}

impl<T: Send + Sync + 'static> Common<T> {
    /// What a rank has made of this before, or what `make` makes now. Ranks that hold it at a time
    /// have the same.
    pub(crate) fn of(world: &Arc<World>, key: Key, make: impl FnOnce() -> T) -> Common<T> {
        let mut known = world.commons.0.lock();
        let made = known.get(&key).and_then(Weak::upgrade);
        let made = made.and_then(|it| it.downcast::<T>().ok());
        let value = made.unwrap_or_else(|| {
            let value = Arc::new(make());
            let weak: Weak<T> = Arc::downgrade(&value);
            known.insert(key, weak);
            value
        });
        drop(known);
        Common { value, key, world: world.clone() }
    }
}

impl<T: Send + Sync + 'static> Deref for Common<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + Sync + 'static> Drop for Common<T> {
    fn drop(&mut self) {
        let mut known = self.world.commons.0.lock();
        // Others are made and dropped under the same lock.
        if Arc::strong_count(&self.value) == 1 {
            known.remove(&self.key);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mode::Mode;
    use crate::transport::shared::layout::ArenaLayout;
    use crate::transport::shared::memory::Memory;
    use crate::tuning::Tuning;
    use crate::wait::Policy;

    #[test]
    fn it_is_made_once_while_somebody_holds_it() {
        let memory = Memory::anonymous(ArenaLayout::anonymous(1, 1 << 20)).unwrap();
        let (mode, policy) = (Mode::Threads, Policy::new(1, 0));
        let world = World::new(memory, mode, policy, None, Tuning::default(), None, None);
        let world = Arc::new(world);
        let first = Common::of(&world, (7, 1), || vec![1]);
        let second = Common::of(&world, (7, 1), || vec![2]);
        let other = Common::of(&world, (7, 2), || vec![3]);
        assert_eq!((&*first, &*second, &*other), (&vec![1], &vec![1], &vec![3]));
        drop(first);
        assert_eq!(*Common::of(&world, (7, 1), || vec![4]), [1]);
        drop((second, other));
        assert!(world.commons.0.lock().is_empty());
        assert_eq!(*Common::of(&world, (7, 1), || vec![5]), [5]);
    }
}
