//! Copying the data of calls.

/// Copies bytes as [`std::ptr::copy_nonoverlapping`], and as fast wherever they lie.
///
/// A copy that the C library makes by `rep movsb` takes twenty times as long on AMD's Zen 3 where the target
/// lies 1 to 31 bytes behind the source, but for whole pages: so do vectors, behind a header of 16 bytes, and
/// staging areas.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]. A process that may write `from` meanwhile can change what arrives, and
/// nothing else.
#[inline]
pub unsafe fn copy_bytes(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= STRING && is_just_behind(from, into) {
        // SAFETY: the caller's promises.
        return unsafe { by_words(from, into, bytes) };
    }
    // SAFETY: the caller's promises.
    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) }
}

/// [`copy_bytes`] where both places may overlap, as [`std::ptr::copy`].
///
/// # Safety
/// As [`std::ptr::copy`].
pub unsafe fn move_bytes(from: *const u8, into: *mut u8, bytes: usize) {
    let apart = (from as usize).abs_diff(into as usize) >= bytes;
    // SAFETY: the caller's promises; the first copy is of places that lie apart.
    unsafe { if apart { copy_bytes(from, into, bytes) } else { std::ptr::copy(from, into, bytes) } }
}

/// From so many bytes on a C library may copy by an instruction for strings.
#[cfg(target_arch = "x86_64")]
const STRING: usize = 2 << 10;

/// Whether the target lies so that an instruction for strings may be slow.
pub(crate) fn is_just_behind(from: *const u8, into: *mut u8) -> bool {
    let behind = (into as usize).wrapping_sub(from as usize) % PAGE;
    cfg!(target_arch = "x86_64") && (1..32).contains(&behind)
}

pub(crate) const PAGE: usize = 4 << 10;

/// [`copy_bytes`] without an instruction for strings.
///
/// # Safety
/// As [`copy_bytes`].
#[cfg(target_arch = "x86_64")]
#[cold]
unsafe fn by_words(from: *const u8, into: *mut u8, bytes: usize) {
    use std::arch::x86_64::__m128i as Word;
    const WORD: usize = size_of::<Word>();
    const ROW: usize = 8 * WORD;
    let head = into.align_offset(WORD).min(bytes);
    // SAFETY: `head` is at most `bytes`; the rows and the rest after them are what follows, each copied from its place
    // in the source to the same place in the target, which is aligned for a word after the head.
    unsafe {
        std::ptr::copy_nonoverlapping(from, into, head);
        let mut done = head;
        while bytes - done >= ROW {
            let (from, into) = (from.add(done).cast::<Word>(), into.add(done).cast::<Word>());
            for word in 0..ROW / WORD {
                // Volatile: of another loop the compiler would make such a copy again.
                into.add(word).write_volatile(from.add(word).read_unaligned());
            }
            done += ROW;
        }
        std::ptr::copy_nonoverlapping(from.add(done), into.add(done), bytes - done);
    }
}

/// Bytes from which the copy does not go through caches, which would hold none of it in the end.
const HUGE: usize = 32 << 20;

/// Copies `bytes` that a peer has written, from its cache or from memory.
///
/// What is too large for caches goes around them, up to two fifths faster (`docs/performance.md`).
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]. A process that may write `from` meanwhile can change what
/// arrives, and nothing else.
#[inline]
pub unsafe fn copy_from_peer(from: *const u8, into: *mut u8, bytes: usize) {
    // SAFETY: the caller's promises.
    unsafe {
        if bytes >= HUGE {
            copy_around(from, into, bytes);
        } else {
            copy_bytes(from, into, bytes);
        }
    }
}

/// [`copy_from_peer`] of a part of more than caches can hold.
///
/// # Safety
/// As [`copy_from_peer`].
pub unsafe fn copy_around(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the caller's promises; the machine has AVX2.
        return unsafe { around::copy(from, into, bytes) };
    }
    // SAFETY: the caller's promises.
    unsafe { copy_bytes(from, into, bytes) }
}

#[cfg(target_arch = "x86_64")]
mod around {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use super::PAGE;

    const LINE: usize = 64;
    /// Prefetchers work page by page: a line of each of some pages in turn keeps more on the way, by two fifths
    /// on one processor. On another one (AMD's Zen 3) it takes five times as long as page after page.
    const WAYS: [usize; 2] = [1, PAGES];
    const PAGES: usize = 4;
    /// The faster way here, found once; none yet.
    static PAGES_IN_TURN: AtomicUsize = AtomicUsize::new(0);

    /// What is copied by one way to see how long it takes, and how often: less than a segment of a staging area.
    const TRIED: usize = PAGES * PAGE;
    const TRIES: usize = 3;

    /// # Safety
    /// As [`super::copy_around`], on a machine that has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy(from: *const u8, into: *mut u8, bytes: usize) {
        // Whole lines are written: what comes before the first one goes by itself.
        let head = into.align_offset(LINE).min(bytes);
        // SAFETY: `head` is at most `bytes`; what is tried, the groups and the rest after them are what follows,
        // each copied from its place in the source to the same place in the target, which is on a
        // line after the head.
        unsafe {
            std::ptr::copy_nonoverlapping(from, into, head);
            let mut done = head;
            if PAGES_IN_TURN.load(Relaxed) == 0 && bytes - done >= 2 * TRIES * TRIED {
                try_both(from.add(done), into.add(done));
                done += 2 * TRIES * TRIED;
            }
            let whole = (bytes - done) / (PAGES * PAGE) * (PAGES * PAGE);
            match PAGES_IN_TURN.load(Relaxed) {
                PAGES => copy_pages::<PAGES>(from.add(done), into.add(done), whole),
                _ => copy_pages::<1>(from.add(done), into.add(done), whole),
            }
            done += whole;
            _mm_sfence();
            std::ptr::copy_nonoverlapping(from.add(done), into.add(done), bytes - done);
        }
    }

    /// Copies what is tried, and finds the faster way. A store fence comes after it.
    ///
    /// # Safety
    /// As [`copy_pages`], with `2 * TRIES * TRIED` bytes.
    #[cold]
    #[target_feature(enable = "avx2")]
    unsafe fn try_both(from: *const u8, into: *mut u8) {
        let mut fastest = [Duration::MAX; WAYS.len()];
        for turn in 0..2 * TRIES {
            let (from, into) = (from.wrapping_add(turn * TRIED), into.wrapping_add(turn * TRIED));
            let since = Instant::now();
            // SAFETY: this function's contract, of a part.
            unsafe {
                match WAYS[turn % 2] {
                    PAGES => copy_pages::<PAGES>(from, into, TRIED),
                    _ => copy_pages::<1>(from, into, TRIED),
                }
            }
            let way = &mut fastest[turn % 2];
            *way = since.elapsed().min(*way);
        }
        PAGES_IN_TURN.store(WAYS[usize::from(fastest[1] < fastest[0])], Relaxed);
    }

    /// Copies bytes of whole groups of pages, a line of each page of a group in turn. A store fence comes after
    /// it.
    ///
    /// # Safety
    /// Both places have so many bytes, apart from each other; `into` is on a line. The machine has
    /// AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn copy_pages<const PAGES: usize>(from: *const u8, into: *mut u8, bytes: usize) {
        for group in (0..bytes).step_by(PAGES * PAGE) {
            for line in (0..PAGE).step_by(LINE) {
                for page in 0..PAGES {
                    let at = group + page * PAGE + line;
                    // SAFETY: the line lies in the pages; the target is aligned to 32 bytes, as it is
                    // on a line. Loads need no alignment.
                    unsafe {
                        let from = from.add(at).cast::<__m256i>();
                        let into = into.add(at).cast::<__m256i>();
                        let (low, high) =
                            (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
                        _mm256_stream_si256(into, low);
                        _mm256_stream_si256(into.add(1), high);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE, copy_bytes, move_bytes};

    #[test]
    fn places_that_overlap() {
        let numbers: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        for (from, into) in [(0, 16), (16, 0), (0, 4096), (9, 9), (0, 5000), (0, 4097)] {
            let mut moved = numbers.clone();
            let all = moved.as_mut_ptr();
            // SAFETY: both places lie within the vector.
            unsafe { move_bytes(all.add(from), all.add(into), 5000) };
            assert_eq!(moved[into..into + 5000], numbers[from..from + 5000]);
        }
    }

    #[test]
    fn every_byte_arrives_wherever_it_lies_and_no_other_is_written() {
        let source: Vec<u8> = (0..16 * PAGE).map(|i| (i % 251) as u8).collect();
        let mut target = vec![0u8; source.len()];
        // From these on, the places of both in their pages are alike.
        let from = source.as_ptr().align_offset(PAGE);
        let into = target.as_ptr().align_offset(PAGE);
        for bytes in [0, 2047, 2048, 3000, 4097, 40_003] {
            for (start, behind) in [(0, 0), (0, 16), (0, 1), (5, 31), (100, 32), (7, 3)] {
                target.fill(255);
                let (from, into) = (from + start, into + start + behind);
                let source = &source[from..from + bytes];
                // SAFETY: both vectors have that many bytes there.
                unsafe { copy_bytes(source.as_ptr(), target[into..].as_mut_ptr(), bytes) };
                assert!(target[..into].iter().all(|byte| *byte == 255));
                assert_eq!(target[into..into + bytes], *source);
                assert!(target[into + bytes..].iter().all(|byte| *byte == 255));
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_byte_arrives_around_the_cache_and_no_other_is_written() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let all = 300_000;
        let source: Vec<u8> = (0..all).map(|i| (i % 251) as u8).collect();
        let mut target = vec![0u8; all];
        for bytes in [0, 1, 63, 16 << 10, 70_000, 200_001] {
            for (from, into) in [(0, 0), (1, 7), (64, 33), (13, 64)] {
                target.fill(255);
                let place = target[into..].as_mut_ptr();
                // SAFETY: both vectors are long enough for the offsets and the longest copy, and
                // the machine has AVX2.
                unsafe { super::around::copy(source[from..].as_ptr(), place, bytes) };
                assert!(target[..into].iter().all(|byte| *byte == 255));
                assert_eq!(target[into..into + bytes], source[from..from + bytes]);
                assert!(target[into + bytes..].iter().all(|byte| *byte == 255));
            }
        }
    }
}
