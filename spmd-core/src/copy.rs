//! Copying what another core has written.

/// Bytes from which the source is read as several streams.
const LARGE: usize = 16 << 10;
/// Bytes from which the copy does not go through this core's cache, of which it would fill most.
const HUGE: usize = 4 << 20;
/// Streams, and the bytes of each in a block.
const STREAMS: usize = 4;
#[cfg(target_arch = "x86_64")]
const LONG: usize = 16 << 10;
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 4 << 10;

/// Copies `bytes` that a peer has written, from its cache or from memory.
///
/// One stream of reads does not keep as many lines on the way as a core can wait for: prefetchers
/// work page by page. Four pages at a time bring a quarter more from another core's cache, and
/// stores around the cache two fifths more of what no cache holds (`docs/performance.md`).
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]. A process that may write `from` meanwhile can change what
/// arrives, and nothing else.
#[inline]
pub unsafe fn copy_from_peer(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= LARGE && is_x86_feature_detected!("avx2") {
        // SAFETY: the caller's promises; the machine has AVX2.
        return unsafe { copy_in_streams(from, into, bytes) };
    }
    // SAFETY: the caller's promises.
    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) }
}

/// # Safety
/// As [`copy_from_peer`], on a machine that has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_in_streams(from: *const u8, into: *mut u8, bytes: usize) {
    use std::arch::x86_64::_mm_sfence;
    // Whole lines are written: what comes before the first one goes by itself.
    let head = into.align_offset(LINE).min(bytes);
    // SAFETY: `head` is at most `bytes`, and so is what the loops below go through; blocks are
    // copied from where they are in the source to the same place in the target, which is on a line
    // after the head.
    unsafe {
        std::ptr::copy_nonoverlapping(from, into, head);
        let (from, into, bytes) = (from.add(head), into.add(head), bytes - head);
        let mut done = 0;
        if bytes >= HUGE {
            while bytes - done >= STREAMS * SHORT {
                copy_block::<SHORT, true>(from.add(done), into.add(done));
                done += STREAMS * SHORT;
            }
            _mm_sfence();
        }
        while bytes - done >= STREAMS * LONG {
            copy_block::<LONG, false>(from.add(done), into.add(done));
            done += STREAMS * LONG;
        }
        while bytes - done >= STREAMS * SHORT {
            copy_block::<SHORT, false>(from.add(done), into.add(done));
            done += STREAMS * SHORT;
        }
        std::ptr::copy_nonoverlapping(from.add(done), into.add(done), bytes - done);
    }
}

#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Copies `STREAMS` times `EACH` bytes, a line of each stream in turn.
///
/// # Safety
/// Both places have so many bytes, apart from each other; `into` is on a line. The machine has
/// AVX2. After a copy `AROUND` the cache comes a store fence.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_block<const EACH: usize, const AROUND: bool>(from: *const u8, into: *mut u8) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_store_si256, _mm256_stream_si256};
    for line in (0..EACH).step_by(LINE) {
        for stream in 0..STREAMS {
            let at = stream * EACH + line;
            // SAFETY: the line lies in the block; the target is aligned to 32 bytes, as it is on a
            // line. Loads need no alignment.
            unsafe {
                let from = from.add(at).cast::<__m256i>();
                let into = into.add(at).cast::<__m256i>();
                let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
                if AROUND {
                    _mm256_stream_si256(into, low);
                    _mm256_stream_si256(into.add(1), high);
                } else {
                    _mm256_store_si256(into, low);
                    _mm256_store_si256(into.add(1), high);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_no_other_is_written() {
        let all = HUGE + 300_000;
        let source: Vec<u8> = (0..all).map(|i| (i % 251) as u8).collect();
        let mut target = vec![0u8; all];
        let block = STREAMS * (4 << 10);
        let lengths =
            [0, 1, LARGE - 1, LARGE, LARGE + 70, 4 * block - 1, 4 * block, 9 * block + 65];
        for bytes in lengths.into_iter().chain([HUGE, HUGE + 12_345]) {
            for (from, into) in [(0, 0), (1, 7), (64, 33), (13, 64)] {
                target.fill(255);
                let place = target[into..].as_mut_ptr();
                // SAFETY: both vectors are long enough for the offsets and the longest copy.
                unsafe { copy_from_peer(source[from..].as_ptr(), place, bytes) };
                assert!(target[..into].iter().all(|byte| *byte == 255));
                assert_eq!(target[into..into + bytes], source[from..from + bytes]);
                assert!(target[into + bytes..].iter().all(|byte| *byte == 255));
            }
        }
    }
}
