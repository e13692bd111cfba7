//! What another process says to the failure detector of this one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spmd_core::fuzzing::detector(bytes));
