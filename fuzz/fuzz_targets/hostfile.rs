//! A hostfile.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| spmd_launcher::fuzzing::hostfile(text));
