//! Devices that tests run on, the stand-in card among them.

#![allow(dead_code, reason = "each test file uses a part of this")]

use spmd_gpu::{Device, probe};

/// Whether there is a device. Says so where there is none.
pub fn gpu() -> bool {
    let Err(missing) = probe().ready() else { return true };
    let required = std::env::var("SPMD_REQUIRE_GPU").is_ok_and(|value| value == "1");
    assert!(!required, "SPMD_REQUIRE_GPU=1, and {missing}");
    println!("SKIPPED: {missing}");
    false
}

/// Whether the stand-in is here. Says so where it is not.
pub fn stand_in() -> bool {
    let name = probe().ready().and_then(|()| Device::open(0)?.name());
    let is_here = name.is_ok_and(|name| name.contains("stand-in"));
    if !is_here {
        println!("SKIPPED: the stand-in card is not here (`cargo xtask test gpu` builds it)");
    }
    is_here
}

/// Runs a test of this file as processes that share a card, in an environment with these changes; how that
/// ended, and all that they said.
pub fn on_one_card(test: &str, ranks: usize, changes: &[(&str, &str)]) -> (Option<i32>, String) {
    let own = std::env::current_exe().expect("a test knows its own path");
    let mut job = crate::support::spmdrun(&["--ranks", &ranks.to_string(), "--as", "processes"]);
    job.arg(own).env("SPMD_SEGMENT", "1024").envs(changes.iter().copied());
    job.args([test, "--exact", "--include-ignored", "--nocapture", "--quiet"]);
    let ran = crate::support::finish(&mut job);
    (ran.code, ran.out + &ran.err)
}
