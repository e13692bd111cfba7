//! Miri and valgrind on the modules whose unsafe code needs neither threads that share an arena nor
//! the kernel.

use crate::programs;
use crate::steps::Outcome;
use crate::tools::{self, cargo, command};

/// The tests of these modules of `spmd-core`.
const MODULES: [&str; 8] =
    ["element::", "op::", "buffer::", "call::", "text::", "heap::ranges", "record::", "packet::"];
const TESTS: [&str; 4] = ["test", "--package", "spmd-core", "--lib"];

const VALGRIND: [&str; 3] = ["valgrind", "--quiet", "--error-exitcode=99"];

pub(crate) fn run() -> Outcome {
    if tools::output(cargo(&["miri", "--version"])).is_none() {
        return Outcome::Skipped(
            "this toolchain has no Miri (rustup +nightly component add miri)".into(),
        );
    }
    let mut command = cargo(&["miri"]);
    // Tests that try many cases try fewer there (`cfg!(miri)`).
    command.args(TESTS).arg("--").args(MODULES);
    Outcome::of(command)
}

/// The same under valgrind, which most machines can have.
pub(crate) fn memcheck() -> Outcome {
    if tools::output(command("valgrind", &["--version"])).is_none() {
        return Outcome::Skipped("valgrind is not installed (apt install valgrind)".into());
    }
    let programs = match programs::build(&["--workspace", "--lib"], |_| ()) {
        Ok(programs) => programs,
        Err(why) => return Outcome::failed(why),
    };
    match programs::of(&programs, "spmd-core/src/lib.rs") {
        Ok(tests) => Outcome::of(tests.command(&VALGRIND, &MODULES)),
        Err(why) => Outcome::failed(why),
    }
}
