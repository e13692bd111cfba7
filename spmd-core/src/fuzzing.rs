//! What reads bytes from outside, for the fuzzer in `fuzz/`. None of it may panic, whatever it is
//! given; that it takes no more memory than its input is worth, the fuzzer watches.

use crate::fault::Fault;
use crate::settings::Settings;
use crate::transport::cluster::{detector, packet};
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

/// What another process says to a failure detector.
pub fn detector(bytes: &[u8]) {
    detector::hostile::receive(bytes);
    detector::hostile::snapshot(bytes);
}

/// The text of a fault that a peer has written.
pub fn fault(bytes: &[u8]) {
    if let Ok(fault) = postcard::from_bytes::<Fault>(bytes) {
        assert!(!fault.to_string().is_empty());
        let short = fault.shortened(300).to_string();
        assert!(!short.is_empty());
    }
}
