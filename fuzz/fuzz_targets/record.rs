//! The call that a peer says to be in, and its texts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spmd_core::fuzzing::record(bytes));
