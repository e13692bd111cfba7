//! The variables that a program reads: their values with a zero byte between them.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// All that are numbers, lists or names; none that names a file to be written.
const NAMES: [&str; 13] = [
    "SPMD_RANKS",
    "SPMD_AS",
    "SPMD_TIMEOUT",
    "SPMD_STACK_SIZE",
    "SPMD_CORES",
    "SPMD_CPUS",
    "SPMD_FORCE",
    "SPMD_SEGMENT",
    "SPMD_SINGLE_COPY",
    "SPMD_REPRODUCIBLE",
    "SPMD_CHAOS",
    "SPMD_WINDOW",
    "SPMD_RANKS_PER_PROCESS",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut values = bytes.split(|byte| *byte == 0);
    for name in NAMES {
        match values.next() {
            // SAFETY: the fuzzer runs this on its only thread.
            Some(value) => unsafe { std::env::set_var(name, OsStr::from_bytes(value)) },
            // SAFETY: as above.
            None => unsafe { std::env::remove_var(name) },
        }
    }
    spmd_core::fuzzing::settings();
});
