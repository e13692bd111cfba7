//! Devices that tests run on, the stand-in card among them.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use spmd_gpu::cudarc::driver::sys;
use spmd_gpu::{Device, GpuError, probe};

/// Whether there is a device. Says so where there is none.
pub fn gpu() -> bool {
    is_here(probe().ready())
}

/// Whether that is here. Says so where it is not, which `SPMD_REQUIRE_GPU=1` makes a failure.
pub fn is_here(found: Result<(), GpuError>) -> bool {
    let Err(missing) = found else { return true };
    let required = std::env::var("SPMD_REQUIRE_GPU").is_ok_and(|value| value == "1");
    assert!(!required, "SPMD_REQUIRE_GPU=1, and {missing}");
    println!("SKIPPED: {missing}");
    false
}

/// Whether the device is the stand-in. Says so where it is another one.
pub fn stand_in() -> bool {
    if !gpu() {
        return false;
    }
    let name = Device::open(0).and_then(|device| device.name()).expect("it is ready");
    let is_here = name.contains("stand-in");
    if !is_here {
        println!("SKIPPED: {name} is no stand-in card (`cargo xtask test gpu` runs on one)");
    }
    is_here
}

/// The folder of the stand-in's libraries.
pub fn libraries() -> PathBuf {
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&folders);
    folders.find(|it| it.join("libnccl.so.2").exists()).expect("the stand-in has an NCCL")
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

/// A word that a device looks at, which stays to the end of the process.
#[repr(align(65536))]
struct Page(AtomicU32);

/// Has the device wait, in this rank's stream, until the host gives it leave.
pub fn hold(device: &Device) -> &'static AtomicU32 {
    let page: &'static Page = Box::leak(Box::new(Page(AtomicU32::new(0))));
    let (place, mut there) = ((&raw const *page).cast_mut().cast(), 0);
    device.stream().context().bind_to_thread().expect("it has a context");
    // SAFETY: a page of the program's, which stays; the stream waits for a word of it.
    let code = unsafe {
        let registered = sys::cuMemHostRegister_v2(place, size_of::<Page>(), 3).result();
        let found = sys::cuMemHostGetDevicePointer_v2(&mut there, place, 0).result();
        let stream = device.stream().cu_stream();
        let waits = sys::cuStreamWaitValue32_v2(stream, there, 1, 0).result();
        registered.and(found).and(waits)
    };
    code.expect("a device can wait for a word of the host's");
    &page.0
}
