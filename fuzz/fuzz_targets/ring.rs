//! The ring of messages of a peer in another process.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spmd_core::fuzzing::ring(bytes));
