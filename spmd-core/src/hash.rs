//! Hashes that are the same in every process and build.

/// One round of folded multiplication (the mixer of wyhash).
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let product = u128::from(value ^ 0x9e37_79b9_7f4a_7c15) * 0xe703_7ed1_a0b4_28db;
    (product as u64) ^ ((product >> 64) as u64)
}
