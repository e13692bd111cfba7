//! A rank as a member of its world.

use std::sync::Arc;

use super::heap::SegmentHeap;
use super::world::World;
use crate::text::Interner;
use crate::wait::Bell;

/// What a rank has of its world, whatever it does there.
pub(crate) struct Member {
    pub(crate) world: Arc<World>,
    pub(crate) rank: usize,
    pub(crate) interner: Interner,
    pub(crate) heap: Arc<SegmentHeap>,
}

impl Member {
    pub(super) fn new(world: Arc<World>, rank: usize) -> Member {
        let heap = Arc::new(SegmentHeap::new(world.clone(), rank));
        Member { world, rank, interner: Interner::new(), heap }
    }

    #[inline]
    pub(crate) fn bell(&self) -> Bell<'_> {
        self.world.bell(self.rank)
    }
}
