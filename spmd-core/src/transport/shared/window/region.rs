//! Memory of one process that others of its host may map: where the elements of a window's parts lie
//! whose ranks live in several processes.
//!
//! It is a sealed memfd, which has no name in the file system. Others find it by the number of its
//! process and of its descriptor there, and know it by a random number at its start: in a container
//! beside that of its owner, the same numbers mean something else, or nothing. It goes when all who
//! have it mapped have dropped it.

/// What the others find a region by, as two words.
pub(crate) type Key = [u64; 2];

/// The key of no region.
pub(crate) const NONE: Key = [0; 2];

/// On what elements begin.
pub(super) const ALIGN: usize = 128;

pub(crate) use system::Region;

#[cfg(target_os = "linux")]
mod system {
    use std::collections::hash_map::RandomState;
    use std::fs::File;
    use std::hash::{BuildHasher, Hasher};
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
    use std::os::unix::fs::OpenOptionsExt;
    use std::ptr::{NonNull, null_mut};
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs, ftruncate};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

    use super::{ALIGN, Key};

    /// How many descriptors a process has for regions of its own at most: the program needs some, too.
    const MOST: usize = 128;

    /// What the kernel calls the file system of memfds of plain pages (`TMPFS_MAGIC`).
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;

    /// Memory that is shared, zeroed at first, but for the number at its start.
    pub(crate) struct Region {
        start: NonNull<u8>,
        bytes: usize,
        /// Of its owner: by it others can find it.
        file: Option<Descriptor>,
    }

    /// One of [`MOST`] descriptors.
    struct Descriptor {
        file: OwnedFd,
        _place: Place,
    }

    /// The place of a descriptor among those that there may be.
    struct Place;

    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    impl Place {
        fn take() -> Option<Place> {
            let place = Place;
            (TAKEN.fetch_add(1, Relaxed) < MOST).then_some(place)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            TAKEN.fetch_sub(1, Relaxed);
        }
    }

    // SAFETY: an address and a descriptor, which any thread may use; what lies there is accessed by
    // atomics alone.
    unsafe impl Send for Region {}
    // SAFETY: as above.
    unsafe impl Sync for Region {}

    impl Region {
        /// Room for so many bytes; `None` if the system has it not, or the process has as many regions
        /// as it may.
        pub(crate) fn create(bytes: usize) -> Option<Region> {
            let (bytes, place) = (bytes.checked_add(ALIGN)?, Place::take()?);
            let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
            let file = rustix::fs::memfd_create("spmd-window", flags).ok()?;
            ftruncate(&file, bytes as u64).ok()?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).ok()?;
            let mut region = Region::map(file.as_fd(), bytes)?;
            // Never 0, which is what memory holds that nobody has written.
            let number = RandomState::new().build_hasher().finish() | 1;
            region.number().store(number, Relaxed);
            region.file = Some(Descriptor { file, _place: place });
            Some(region)
        }

        /// The region of so many bytes that has this key in a process of this host; `None` if it
        /// cannot be found from here.
        pub(crate) fn open([place, number]: Key, bytes: usize) -> Option<Region> {
            let bytes = bytes.checked_add(ALIGN)?;
            let (process, descriptor) = (place >> 32, place as u32);
            let path = format!("/proc/{process}/fd/{descriptor}");
            // What is no file is not opened but as a path: that could have an effect.
            let path = File::options().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
            path.metadata().ok().filter(std::fs::Metadata::is_file)?;
            let path = format!("/proc/self/fd/{}", path.as_raw_fd());
            let file = File::options().read(true).write(true).open(path).ok()?;
            // Not of huge pages, of which its owner could leave none: an access would be a fault.
            fstatfs(&file).ok().filter(|system| system.f_type == TMPFS)?;
            let sealed = fcntl_get_seals(&file).ok()?.contains(SealFlags::SHRINK);
            if !sealed || file.metadata().ok()?.len() != bytes as u64 {
                return None;
            }
            let region = Region::map(file.as_fd(), bytes)?;
            (region.number().load(Relaxed) == number).then_some(region)
        }

        /// Maps a file of this length, which is sealed.
        fn map(file: BorrowedFd<'_>, bytes: usize) -> Option<Region> {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: fresh mappings at an address of the kernel's choice; the second takes the place
            // of the first, which nothing refers to, and of which the system has found that there is
            // memory for it. The file is sealed against shrinking, so that no access within its length
            // can fault for that.
            let start = unsafe {
                let room = mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE).ok()?;
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                mmap(room, bytes, access, flags, file, 0).inspect_err(|_| _ = munmap(room, bytes))
            };
            let region = Region { start: NonNull::new(start.ok()?.cast())?, bytes, file: None };
            let start = region.start.as_ptr().cast();
            // A child that this process forks does not get it: it is no rank.
            // SAFETY: the mapping just made, from which this takes nothing in this process.
            unsafe { madvise(start, bytes, Advice::LinuxDontFork) }.ok()?;
            Some(region)
        }

        fn number(&self) -> &AtomicU64 {
            // SAFETY: a region begins with an aligned word, stays mapped as long as `self`, and is
            // accessed by atomics alone.
            unsafe { self.start.cast::<AtomicU64>().as_ref() }
        }

        /// What others find it by, if it is this process's own.
        pub(crate) fn key(&self) -> Option<Key> {
            let descriptor = self.file.as_ref()?.file.as_raw_fd() as u64;
            let place = u64::from(std::process::id()) << 32 | descriptor;
            Some([place, self.number().load(Relaxed)])
        }

        /// Where its room starts, aligned to [`ALIGN`].
        pub(crate) fn room(&self) -> *mut u8 {
            self.start.as_ptr().wrapping_add(ALIGN)
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: the whole mapping, made in `map`; whoever has an address in it has `self`, too.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::Key;

    /// There is none: processes share no memory here.
    pub(crate) enum Region {}

    impl Region {
        pub(crate) fn create(_: usize) -> Option<Region> {
            None
        }

        pub(crate) fn open(_: Key, _: usize) -> Option<Region> {
            None
        }

        pub(crate) fn key(&self) -> Option<Key> {
            match *self {}
        }

        pub(crate) fn room(&self) -> *mut u8 {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;

    // One test, as all regions of the process count.
    #[test]
    fn a_region_is_found_by_its_key_alone_and_is_the_same_memory() {
        let own = Region::create(5000).expect("there is memory");
        let [place, number] = own.key().expect("it is this process's own");
        let found = Region::open([place, number], 5000).expect("it is there");
        assert!(found.key().is_none());
        // SAFETY: both have room for so many bytes, which nobody else accesses.
        unsafe {
            assert_eq!(found.room().add(4999).read(), 0);
            own.room().add(4999).write(7);
            assert_eq!(found.room().add(4999).read(), 7);
        }
        // Not with another number, of another length, of a process that is not there, or a pipe.
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let pipe = place >> 32 << 32 | std::os::fd::AsRawFd::as_raw_fd(&reader) as u64;
        for (key, bytes) in [
            ([place, number ^ 2], 5000),
            ([place, number], 4999),
            ([place | 1 << 63, number], 5000),
            ([pipe, number], 5000),
            (NONE, 5000),
        ] {
            assert!(Region::open(key, bytes).is_none(), "{key:x?}, {bytes}");
        }
        drop(own);
        // SAFETY: as above; it stays as long as anybody has it.
        assert_eq!(unsafe { found.room().add(4999).read() }, 7);
        assert!(Region::open([place, number], 5000).is_none());
        // There is not that much memory, nor are there that many descriptors.
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 46] {
            assert!(Region::create(bytes).is_none(), "{bytes}");
        }
        for _ in 0..2 {
            let all: Vec<Region> = std::iter::from_fn(|| Region::create(1)).take(1000).collect();
            assert_eq!(all.len(), 128);
        }
    }
}
