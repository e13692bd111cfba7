//! Copies of whole lines at the speed of `memcpy`, which is no access that Rust has a name for.
//!
//! Where a processor has AVX, an aligned load or store of 16 bytes is atomic (Intel SDM volume 3,
//! section 10.1.1; AMD64 volume 2, section 7.3.2). So it does what aligned relaxed atomic accesses of
//! the words in it do, of whichever size, and a block of assembly that makes such accesses does
//! nothing that a loop over atomics could not. `rep movsq` is a row of moves of 8 bytes, in any order
//! (Intel SDM volume 3, sections 10.1.1 and 10.2.4), which a processor makes of whole lines where it
//! can, and then reads none of those that it writes.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use assembly::{read, split, write};
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) use none::{read, split, write};

/// What is copied at a time.
pub(super) const LINE: usize = 64;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod assembly {
    use super::LINE;

    /// What is shorter is copied word by word.
    const LEAST: usize = 256;

    /// From so many lines on the processor copies them in its own way, which takes some time to begin.
    const MANY: usize = 128;

    /// How many bytes come before the first line of a part's memory that is aligned, and how many
    /// lines follow.
    #[inline]
    pub(in super::super) fn split(part: *const u8, bytes: usize) -> (usize, usize) {
        if bytes < LEAST || !is_x86_feature_detected!("avx") {
            return (bytes, 0);
        }
        let first = part.align_offset(LINE);
        (first, (bytes - first) / LINE)
    }

    macro_rules! copy_lines {
        ($from:expr, $into:expr, $lines:expr, $load:literal, $store:literal) => {
            std::arch::asm!(
                "2:",
                concat!($load, " xmm0, [{from}]"),
                concat!($load, " xmm1, [{from} + 16]"),
                concat!($load, " xmm2, [{from} + 32]"),
                concat!($load, " xmm3, [{from} + 48]"),
                concat!($store, " [{into}], xmm0"),
                concat!($store, " [{into} + 16], xmm1"),
                concat!($store, " [{into} + 32], xmm2"),
                concat!($store, " [{into} + 48], xmm3"),
                "add {from}, 64",
                "add {into}, 64",
                "dec {lines}",
                "jnz 2b",
                from = inout(reg) $from => _,
                into = inout(reg) $into => _,
                lines = inout(reg) $lines => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                options(nostack),
            )
        };
    }

    /// # Safety
    /// The lines can be read and written, and do not overlap; one of both begins at a multiple of 8,
    /// if others access it at the same time.
    #[inline]
    unsafe fn copy_many(from: *const u8, into: *mut u8, lines: usize) {
        // SAFETY: reads and writes the lines that the caller vouches for, forwards, as the direction
        // flag is clear where assembly begins. Each move is an access of 8 bytes, aligned in the part,
        // so atomic for words of 8 bytes and less.
        unsafe {
            std::arch::asm!(
                "rep movsq",
                inout("rcx") lines * (LINE / 8) => _,
                inout("rsi") from => _,
                inout("rdi") into => _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// As [`super::super::read`] for so many lines, the first of which is aligned in the part.
    #[inline]
    pub(in super::super) unsafe fn read(from: *const u8, into: *mut u8, lines: usize) {
        if lines >= MANY {
            // SAFETY: the caller vouches for the lines, which are aligned in the part.
            unsafe { copy_many(from, into, lines) };
        } else if lines > 0 {
            // SAFETY: reads and writes the lines that the caller vouches for, and registers that it
            // names; there is one at least. `split` has seen that the processor has AVX.
            unsafe { copy_lines!(from, into, lines, "movdqa", "movdqu") };
        }
    }

    /// # Safety
    /// As [`super::super::write`] for so many lines, the first of which is aligned in the part.
    #[inline]
    pub(in super::super) unsafe fn write(from: *const u8, into: *mut u8, lines: usize) {
        if lines >= MANY {
            // SAFETY: the caller vouches for the lines, which are aligned in the part.
            unsafe { copy_many(from, into, lines) };
        } else if lines > 0 {
            // SAFETY: as in `read`.
            unsafe { copy_lines!(from, into, lines, "movdqu", "movdqa") };
        }
    }
}

/// Elsewhere the loops over words do it.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod none {
    pub(in super::super) fn split(_: *const u8, bytes: usize) -> (usize, usize) {
        (bytes, 0)
    }

    pub(in super::super) unsafe fn read(_: *const u8, _: *mut u8, _: usize) {}

    pub(in super::super) unsafe fn write(_: *const u8, _: *mut u8, _: usize) {}
}

#[cfg(all(test, target_arch = "x86_64", not(miri), not(loom)))]
mod tests {
    use super::super::{WordSize, read, write};

    /// Pieces that are copied word by word, by lines, and as the processor does, from places of any
    /// alignment, with a rest on both sides of the lines.
    #[test]
    fn every_way_copies_all_and_no_more() {
        const ALL: usize = 40_000;
        let mut part = vec![0u64; ALL / 8];
        let source: Vec<u8> = (0..ALL + 100).map(|at| (at * 7 % 251) as u8).collect();
        let mut back = vec![0u8; ALL + 100];
        for bytes in [0, 8, 248, 256, 4096, 8184, 8192, 8256, 8264, 16_384, 30_000 / 8 * 8] {
            for (at, shift) in [(0, 0), (8, 1), (24, 13), (64, 64), (1000, 3)] {
                part.fill(!0);
                back.fill(255);
                let place = part.as_mut_ptr().cast::<u8>();
                // SAFETY: the piece lies in the vector, which nobody else uses, at a whole number of
                // words; source and target are long enough, and apart from it.
                unsafe {
                    write(source.as_ptr().add(shift), place.add(at), bytes, WordSize::of(8));
                    read(place.add(at), back.as_mut_ptr().add(shift), bytes, WordSize::of(8));
                }
                let (before, rest) = back.split_at(shift);
                assert_eq!(rest[..bytes], source[shift..shift + bytes], "{bytes} at {at}");
                assert!(before.iter().chain(&rest[bytes..]).all(|byte| *byte == 255));
                let outside = part[..at / 8].iter().chain(&part[(at + bytes) / 8..]);
                assert!(outside.copied().all(|word| word == !0), "{bytes} at {at}");
            }
        }
    }
}
