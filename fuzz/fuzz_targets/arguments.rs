//! The command line of `spmdrun`: words with a zero byte between them.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let words = bytes.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
    spmd_launcher::fuzzing::arguments(words.collect());
});
