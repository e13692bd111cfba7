//! What reads bytes from outside, for the fuzzer in `fuzz/`. None of it may panic, whatever it is
//! given; that it takes no more memory than its input is worth, the fuzzer watches.

use crate::boot::Settings;
use crate::transport::across::packet;
use crate::transport::shared::ring::hostile;
use crate::tuning;

/// A packet that another process sends.
pub fn packet(bytes: &[u8]) {
    packet::fuzz(bytes);
}

/// The ring of a peer in another process.
pub fn ring(bytes: &[u8]) {
    hostile::read(bytes);
}

/// The record of a peer's call, and its texts.
pub fn record(bytes: &[u8]) {
    hostile::describe(bytes);
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
