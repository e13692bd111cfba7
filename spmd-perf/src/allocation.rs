//! What plain allocation costs under `SharedAlloc`, beside the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::time::Instant;

use fastrand::Rng;
use spmd::SharedAlloc;
use spmd::prelude::*;

const SIZES: [usize; 5] = [64, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
const PAGE: usize = 4096;
/// A sample takes about this long ..
const SAMPLE_SECONDS: f64 = 2e-3;
/// .. and the median of so many counts.
const SAMPLES: usize = 25;
/// Blocks that live at a time in the last pattern.
const LIVE: usize = 1000;

/// What is done with a block.
#[derive(Clone, Copy)]
enum Pattern {
    Free,
    Touch,
    ZeroedTouch,
    /// In the place of one of many others, of 64 bytes to twice the size.
    Replace,
}

const PATTERNS: [(Pattern, &str); 4] = [
    (Pattern::Free, "allocate, free"),
    (Pattern::Touch, "allocate, touch each page, free"),
    (Pattern::ZeroedTouch, "allocate zeros, touch each page, free"),
    (Pattern::Replace, "replace one of 1000 of mixed sizes"),
];

/// Rank 0 measures and prints; the others wait.
pub(crate) fn measure(ctx: &Ctx) -> Result<()> {
    if ctx.rank() == 0 {
        println!("ns, {:?}\n", ctx.mode());
        println!(
            "{:<40} {:>10} {:>10} {:>12} {:>7}",
            "", "bytes", "system", "SharedAlloc", "ratio"
        );
        for (pattern, name) in PATTERNS {
            for bytes in SIZES {
                if matches!(pattern, Pattern::Replace) && !(PAGE..1 << 20).contains(&bytes) {
                    continue;
                }
                let (system, shared) = both(bytes, pattern);
                let ratio = shared / system;
                println!("{name:<40} {bytes:>10} {system:>10.0} {shared:>12.0} {ratio:>7.2}");
            }
        }
    }
    ctx.barrier()
}

/// ns of both allocators, in turns.
fn both(bytes: usize, pattern: Pattern) -> (f64, f64) {
    let mut system = Subject::new(System, bytes, pattern);
    let mut shared = Subject::new(SharedAlloc, bytes, pattern);
    let mut turns = 1;
    while system.time(turns) * (turns as f64) < SAMPLE_SECONDS * 1e9 && turns < 1 << 20 {
        turns *= 2;
    }
    shared.time(turns);
    let samples = (0..SAMPLES).map(|_| (system.time(turns), shared.time(turns)));
    let (mut a, mut b): (Vec<_>, Vec<_>) = samples.unzip();
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    (a[SAMPLES / 2], b[SAMPLES / 2])
}

/// An allocator at work.
struct Subject<A: GlobalAlloc> {
    allocator: A,
    bytes: usize,
    pattern: Pattern,
    live: Vec<(*mut u8, Layout)>,
    random: Rng,
}

impl<A: GlobalAlloc> Subject<A> {
    fn new(allocator: A, bytes: usize, pattern: Pattern) -> Subject<A> {
        let random = Rng::with_seed(1);
        let mut subject = Subject { allocator, bytes, pattern, live: Vec::new(), random };
        if let Pattern::Replace = pattern {
            subject.live = (0..LIVE).map(|_| subject.mixed()).collect();
        }
        subject
    }

    /// ns of one of so many turns.
    fn time(&mut self, turns: usize) -> f64 {
        let start = Instant::now();
        (0..turns).for_each(|_| self.turn());
        start.elapsed().as_secs_f64() * 1e9 / turns as f64
    }

    fn turn(&mut self) {
        if let Pattern::Replace = self.pattern {
            let place = self.random.usize(..LIVE);
            let new = self.mixed();
            let (old, layout) = std::mem::replace(&mut self.live[place], new);
            // SAFETY: it was allocated with this layout, and is out of the list.
            unsafe { self.allocator.dealloc(old, layout) };
            return;
        }
        let layout = layout_of(self.bytes);
        let zeroed = matches!(self.pattern, Pattern::ZeroedTouch);
        let block = self.allocate(layout, zeroed);
        if !matches!(self.pattern, Pattern::Free) {
            touch(block, self.bytes);
        }
        // SAFETY: it was just allocated with this layout.
        unsafe { self.allocator.dealloc(black_box(block), layout) };
    }

    fn allocate(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: the layout has a size.
        let block = unsafe {
            if zeroed { self.allocator.alloc_zeroed(layout) } else { self.allocator.alloc(layout) }
        };
        if block.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        block
    }

    /// A block of a random size, touched.
    fn mixed(&mut self) -> (*mut u8, Layout) {
        let layout = layout_of(64 + self.random.usize(..2 * self.bytes));
        let block = self.allocate(layout, false);
        touch(block, layout.size());
        (block, layout)
    }
}

impl<A: GlobalAlloc> Drop for Subject<A> {
    fn drop(&mut self) {
        for (block, layout) in self.live.drain(..) {
            // SAFETY: it was allocated with this layout, and is out of the list.
            unsafe { self.allocator.dealloc(block, layout) };
        }
    }
}

fn layout_of(bytes: usize) -> Layout {
    Layout::array::<u64>(bytes.div_ceil(8)).expect("far less than there is memory")
}

/// Writes a byte of each page.
fn touch(block: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(PAGE) {
        // SAFETY: the place lies in the block, which is this caller's own.
        unsafe { block.add(at).write_volatile(1) };
    }
}
