//! The variables that a program reads: their values with a zero byte between them.
#![no_main]

use std::ffi::CString;

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
    // `setenv` would keep every value for ever; `putenv` takes the text itself into the environment.
    let text = |(name, value): (&str, &[u8])| {
        CString::new([name.as_bytes(), b"=", value].concat()).expect("no zero byte is left")
    };
    let texts: Vec<CString> = NAMES.into_iter().zip(&mut values).map(text).collect();
    for text in &texts {
        // SAFETY: the fuzzer runs this on its only thread, and the text lives until the variable
        // has been removed again; nobody writes into the environment's texts.
        unsafe { libc::putenv(text.as_ptr().cast_mut()) };
    }
    spmd_core::fuzzing::settings();
    for name in NAMES {
        // SAFETY: the fuzzer runs this on its only thread.
        unsafe { std::env::remove_var(name) };
    }
});
