//! The stacks of the coroutines of one worker.
//!
//! On Linux they are cut from one reservation of address space, which takes memory page by page
//! as it is touched. A stack that a coroutine gives back is the next one handed out, with its
//! pages.

use std::io;

#[cfg(target_os = "linux")]
pub(super) use linux::{Guards, PooledStack, StackPool};
#[cfg(not(target_os = "linux"))]
pub(super) use portable::{PooledStack, StackPool};

/// Address space of one stack in bytes. Memory is taken page by page, as it is touched.
pub const DEFAULT_STACK_SIZE: usize = 1 << 20;

/// Stacks for the calls that one thread starts, cut from as many pools as it needs.
pub(super) struct Stacks {
    pool: Option<StackPool>,
    /// How many the pool still has.
    left: usize,
    free: Vec<PooledStack>,
}

impl Stacks {
    /// How many are reserved at a time.
    const MANY: usize = 16;
    /// How many are kept at most while nobody uses them: those of a window of large sends.
    const KEPT: usize = 64;

    pub(super) const fn new() -> Stacks {
        Stacks { pool: None, left: 0, free: Vec::new() }
    }

    /// A stack. Errors: the system's, when it has no room for it.
    pub(super) fn take(&mut self) -> io::Result<PooledStack> {
        if let Some(stack) = self.free.pop() {
            return Ok(stack);
        }
        if self.left == 0 {
            self.pool = Some(StackPool::new(Stacks::MANY, DEFAULT_STACK_SIZE)?);
            self.left = Stacks::MANY;
        }
        let pool = self.pool.as_mut().expect("it has some left");
        let stack = pool.take()?;
        self.left -= 1;
        Ok(stack)
    }

    /// Takes a stack back.
    pub(super) fn give_back(&mut self, stack: PooledStack) {
        if self.free.len() < Stacks::KEPT {
            self.free.push(stack);
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::num::NonZeroUsize;
    use std::ops::Range;
    use std::ptr;
    use std::sync::Arc;

    use corosensei::stack::valgrind::ValgrindStackRegistration;
    use corosensei::stack::{Stack, StackPointer};

    /// Linux 6.13; not among the constants of `libc`.
    const MADV_GUARD_INSTALL: libc::c_int = 102;
    /// One page would do for Rust, which touches every page of a large frame; C does not.
    const GUARD_SIZE: usize = 16 << 10;
    /// The smallest stack. Less would save nothing, as only touched pages take memory, and one
    /// stack of each pool is for signal handlers, which need room for a frame of the kernel's too.
    const MIN_SIZE: usize = 64 << 10;

    /// A mapping, cut into strides of a guard and the stack above it.
    struct Region {
        start: *mut u8,
        len: usize,
    }

    // SAFETY: a region is an address range that it owns; nothing in it is bound to a thread.
    unsafe impl Send for Region {}
    // SAFETY: shared references only read the two fields.
    unsafe impl Sync for Region {}

    impl Region {
        fn reserve(len: usize) -> io::Result<Region> {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
            // SAFETY: a new anonymous mapping, at an address of the kernel's choice, touches no
            // memory that exists.
            let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // A huge page would give the first touch of a stack 2 MiB of memory. Kernels built
            // without huge pages refuse the advice, and need it not.
            // SAFETY: the range is the mapping just made; the advice does not change contents.
            unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
            Ok(Region { start: start.cast(), len })
        }

        /// Makes every access to the pages of `range` (offsets in the region) a fault.
        fn install_guard(&self, range: Range<usize>) -> io::Result<()> {
            debug_assert!(range.end <= self.len);
            // SAFETY: the range lies in the mapping, whose length is at most `isize::MAX`.
            let start = unsafe { self.start.add(range.start) }.cast::<libc::c_void>();
            // The advice of Linux 6.13 keeps the mapping in one piece, of which a process may
            // have only 65,530; older kernels refuse it.
            // SAFETY: the pages belong to this region and are not in use: they are the guard of
            // a stack that nobody has been given yet.
            if unsafe { libc::madvise(start, range.len(), MADV_GUARD_INSTALL) } == 0 {
                return Ok(());
            }
            // SAFETY: as above.
            match unsafe { libc::mprotect(start, range.len(), libc::PROT_NONE) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: the range is the mapping that `reserve` made; the pool and every stack of
            // it hold the region in an `Arc`, so none is left that could be in use.
            unsafe { libc::munmap(self.start.cast(), self.len) };
        }
    }

    /// A stack of a [`StackPool`].
    pub(in super::super) struct PooledStack {
        base: StackPointer,
        limit: StackPointer,
        memory: Range<usize>,
        _known_to_valgrind: ValgrindStackRegistration,
        _region: Arc<Region>,
    }

    impl PooledStack {
        /// The addresses above its guard.
        pub(in super::super) fn memory(&self) -> Range<usize> {
            self.memory.clone()
        }
    }

    // SAFETY: `limit..base` was cut from the region for this stack alone and stays mapped as long
    // as the stack holds the region. It begins with a guard and has at least `MIN_SIZE` bytes
    // above that, more than corosensei asks for; `base` and `limit` are addresses of pages, which
    // or of cache lines, which are aligned for every architecture.
    unsafe impl Stack for PooledStack {
        fn base(&self) -> StackPointer {
            self.base
        }

        fn limit(&self) -> StackPointer {
            self.limit
        }
    }

    /// Stacks begin at different cache lines of a page: at equal ones, those of many ranks would
    /// compete for the same few places of a first-level cache.
    const COLORS: usize = 4096;

    /// How far below the end of its part stack number `index` begins, in bytes: neighbours far
    /// apart, as steps of the golden section are.
    fn color(index: usize) -> usize {
        index.wrapping_mul(2531) % COLORS / 64 * 64
    }

    /// Stacks for the coroutines of one worker.
    pub(in super::super) struct StackPool {
        region: Arc<Region>,
        guards: Guards,
        size: usize,
        cut: usize,
        free: Vec<PooledStack>,
    }

    impl StackPool {
        /// Reserves address space for `count` stacks of at least `size` bytes each.
        pub(in super::super) fn new(count: usize, size: usize) -> io::Result<StackPool> {
            // SAFETY: asks for a number; this one exists on every system.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            let guard = GUARD_SIZE.next_multiple_of(page);
            // SAFETY: reads a number of the process's start; an unknown key gives zero.
            let signal_frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
            let size = size.max(MIN_SIZE + signal_frame);
            let sizes = size
                .checked_add(guard + COLORS)
                .and_then(|bytes| bytes.checked_next_multiple_of(page))
                .and_then(|stride| Some((stride, stride.checked_mul(count)?)))
                .filter(|&(_, len)| isize::try_from(len).is_ok());
            let Some((stride, len)) = sizes else {
                return Err(io::ErrorKind::OutOfMemory.into());
            };
            let region = Region::reserve(len)?;
            let start = region.start as usize;
            let guards = Guards { region: start..start + len, stride, guard };
            Ok(StackPool { region: Arc::new(region), guards, size, cut: 0, free: Vec::new() })
        }

        /// A stack, with a guard below it. Errors: the kernel's, when it cannot make the guard.
        ///
        /// Panics when more than `count` stacks are taken at a time.
        pub(in super::super) fn take(&mut self) -> io::Result<PooledStack> {
            if let Some(stack) = self.free.pop() {
                return Ok(stack);
            }
            let guards = &self.guards;
            let offset = self.cut * guards.stride;
            assert!(offset < self.region.len, "more stacks are taken than were reserved");
            self.region.install_guard(offset..offset + guards.guard)?;
            let limit = guards.region.start + offset;
            let base = limit + guards.stride - color(self.cut);
            self.cut += 1;
            Ok(PooledStack {
                base: NonZeroUsize::new(base).expect("a mapping is not at address zero"),
                limit: NonZeroUsize::new(limit).expect("a mapping is not at address zero"),
                memory: limit + guards.guard..base,
                _known_to_valgrind: ValgrindStackRegistration::new(limit as *mut u8, guards.stride),
                _region: self.region.clone(),
            })
        }

        /// Takes a stack back.
        pub(in super::super) fn give_back(&mut self, stack: PooledStack) {
            self.free.push(stack);
        }

        /// The size of each stack in bytes.
        pub(in super::super) fn stack_size(&self) -> usize {
            self.size
        }

        /// Where the guards are.
        pub(in super::super) fn guards(&self) -> Guards {
            self.guards.clone()
        }
    }

    /// Where the guards of a pool lie.
    #[derive(Clone)]
    pub(in super::super) struct Guards {
        region: Range<usize>,
        stride: usize,
        guard: usize,
    }

    impl Guards {
        /// Of no pool.
        pub(in super::super) fn none() -> Guards {
            Guards { region: 0..0, stride: 1, guard: 0 }
        }

        /// How many bytes lie between the guard of the stack in which `address` is and that; none in
        /// no stack.
        pub(in super::super) fn above(&self, address: usize) -> usize {
            if !self.region.contains(&address) {
                return 0;
            }
            ((address - self.region.start) % self.stride).saturating_sub(self.guard)
        }

        /// Whether `address` is in one of them. May be asked in a signal handler.
        pub(in super::super) fn contain(&self, address: usize) -> bool {
            self.region.contains(&address)
                && (address - self.region.start) % self.stride < self.guard
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::io;

    pub(in super::super) use corosensei::stack::DefaultStack as PooledStack;

    /// Stacks for the coroutines of one worker.
    pub(in super::super) struct StackPool {
        size: usize,
        free: Vec<PooledStack>,
    }

    impl StackPool {
        /// A pool of stacks of `size` bytes each, the first of which is made at once, so that an
        /// impossible size is an error here.
        pub(in super::super) fn new(_count: usize, size: usize) -> io::Result<StackPool> {
            if isize::try_from(size).is_err() {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            Ok(StackPool { size, free: vec![PooledStack::new(size)?] })
        }

        /// A stack, with a guard below it. Errors: the system's, when it has no memory for it.
        pub(in super::super) fn take(&mut self) -> io::Result<PooledStack> {
            match self.free.pop() {
                Some(stack) => Ok(stack),
                None => PooledStack::new(self.size),
            }
        }

        /// Takes a stack back.
        pub(in super::super) fn give_back(&mut self, stack: PooledStack) {
            self.free.push(stack);
        }
    }
}
