//! A rank as a member of its world.

use std::sync::Arc;

use super::heap::SegmentHeap;
use super::world::World;
use crate::mode::Mode;
use crate::text::Interner;
use crate::wait::Bell;

/// What a rank has of its world, whatever it does there.
pub(crate) struct Member {
    pub(crate) world: Arc<World>,
    pub(crate) rank: usize,
    pub(crate) interner: Interner,
    pub(crate) heap: Arc<SegmentHeap>,
    /// Where the parts of windows lie, if it is a process.
    pub(crate) windows: Option<Arc<SegmentHeap>>,
}

impl Member {
    pub(super) fn new(world: Arc<World>, rank: usize) -> Member {
        let layout = world.memory.layout;
        let (heap, windows) = match world.mode {
            Mode::Processes => {
                let (heap, windows) = layout.heap_and_windows();
                (heap, Some(windows))
            }
            Mode::Threads | Mode::Virtual => (layout.heap(), None),
        };
        let part = |part| Arc::new(SegmentHeap::new(world.clone(), rank, part));
        let (heap, windows) = (part(heap), windows.map(part));
        Member { world, rank, interner: Interner::new(), heap, windows }
    }

    #[inline]
    pub(crate) fn bell(&self) -> Bell<'_> {
        self.world.bell(self.rank)
    }
}
