//! A packet from another process.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spmd_core::fuzzing::packet(bytes));
