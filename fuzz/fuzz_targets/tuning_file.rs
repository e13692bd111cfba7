//! A tuning file.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| spmd_core::fuzzing::tuning_file(text));
