//! Hints to the processor: which lines of memory are needed soon, that other cores may have.

/// Asks for the line of this place, which is about to be read.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which changes no memory and does not fault, whatever the address.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Asks for the line of this place, which is about to be changed.
#[inline(always)]
pub fn prefetch_to_change(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which changes no memory and does not fault, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
