//! Copying what another core has written.

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
            std::ptr::copy_nonoverlapping(from, into, bytes);
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
    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) }
}

#[cfg(target_arch = "x86_64")]
mod around {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    const LINE: usize = 64;
    /// Prefetchers work page by page: a line of each of some pages in turn keeps more on the way.
    const PAGE: usize = 4 << 10;
    const PAGES: usize = 4;

    /// # Safety
    /// As [`super::copy_around`], on a machine that has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy(from: *const u8, into: *mut u8, bytes: usize) {
        // Whole lines are written: what comes before the first one goes by itself.
        let head = into.align_offset(LINE).min(bytes);
        // SAFETY: `head` is at most `bytes`; the blocks and the rest after them are what follows,
        // each copied from its place in the source to the same place in the target, which is on a
        // line after the head.
        unsafe {
            std::ptr::copy_nonoverlapping(from, into, head);
            let mut done = head;
            while bytes - done >= PAGES * PAGE {
                copy_pages(from.add(done), into.add(done));
                done += PAGES * PAGE;
            }
            _mm_sfence();
            std::ptr::copy_nonoverlapping(from.add(done), into.add(done), bytes - done);
        }
    }

    /// Copies some pages, a line of each in turn. A store fence comes after it.
    ///
    /// # Safety
    /// Both places have so many bytes, apart from each other; `into` is on a line. The machine has
    /// AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn copy_pages(from: *const u8, into: *mut u8) {
        for line in (0..PAGE).step_by(LINE) {
            for page in 0..PAGES {
                let at = page * PAGE + line;
                // SAFETY: the line lies in the pages; the target is aligned to 32 bytes, as it is
                // on a line. Loads need no alignment.
                unsafe {
                    let from = from.add(at).cast::<__m256i>();
                    let into = into.add(at).cast::<__m256i>();
                    let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
                    _mm256_stream_si256(into, low);
                    _mm256_stream_si256(into.add(1), high);
                }
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
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
