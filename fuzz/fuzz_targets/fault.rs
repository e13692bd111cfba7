//! A fault that a peer has written.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spmd_core::fuzzing::fault(bytes));
