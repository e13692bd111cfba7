//! What reads bytes from outside, for the fuzzer in `fuzz/`. None of it may panic, whatever it is
//! given; that it takes no more memory than its input is worth, the fuzzer watches.

use crate::boot::Settings;
use crate::transport::across::packet;
use crate::tuning;

/// A packet that another process sends.
pub fn packet(bytes: &[u8]) {
    packet::fuzz(bytes);
}

/// A file of `spmd-perf tune`, and the line that the launcher makes of a section.
pub fn tuning_file(text: &str) {
    tuning::fuzz(text);
}

/// What the `SPMD_*` variables of this process set.
pub fn settings() {
    if let Err(error) = Settings::from_environment() {
        assert!(!error.to_string().is_empty());
    }
}
