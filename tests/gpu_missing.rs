//! What a program is told where something of a GPU is missing or fails: by processes of their own, in
//! environments of their own, on the stand-in card, which fails when it is asked to.

#[path = "support/card.rs"]
mod card;
mod support;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use spmd::prelude::*;
use spmd_gpu::{Device, GpuError, Local, OnDevice, probe};

/// What a process says that runs [`a_program`] in an environment with these changes.
fn said(changes: &[(&str, Option<&str>)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args(["a_program", "--exact", "--ignored", "--nocapture"]).stderr(Stdio::null());
    for (name, value) in changes {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn assert_said(changes: &[(&str, Option<&str>)], texts: &[&str]) {
    let said = said(changes);
    for text in texts {
        assert!(said.contains(text), "{changes:?}: no '{text}' in: {said}");
    }
}

#[test]
#[ignore = "run by the others, in environments of their own"]
fn a_program() {
    let room = || Device::open(0)?.zeros::<u8>(2_000_000).map(drop);
    let ended: Result<(), GpuError> = probe().ready().and_then(|()| room());
    if let Err(error) = ended {
        return println!("{error:?}: {error}");
    }
    let ended =
        Spmd::new(3).threads().timeout(Duration::from_secs(60)).plane(Local::new()).run(|ctx| {
            for turn in 0..20 {
                let device = ctx.device()?;
                let mut numbers = device.buffer_from(&[turn; 1000])?;
                ctx.allreduce_in_place(&mut numbers, Sum)?;
                if numbers.to_vec()? != [3 * turn; 1000] {
                    return Err("a wrong sum".into());
                }
            }
            Ok(())
        });
    match ended {
        Ok(_) => println!("all is well"),
        Err(error) => println!("{error}"),
    }
    println!("{}", probe());
}

#[test]
fn each_missing_thing_is_an_error_that_says_what_to_do() {
    if !card::stand_in() {
        return;
    }
    assert_said(&[], &["all is well"]);
    assert_said(
        &[("LD_LIBRARY_PATH", None)],
        &["DriverMissing { tried: [\"libcuda.so\", \"libcuda.so.1\"] }", "install NVIDIA's driver"],
    );
    assert_said(
        &[("SPMD_STANDIN_CUDA", Some("11080"))],
        &["DriverTooOld { found: 11080 }", "knows CUDA 11.8", "install a newer driver"],
    );
    assert_said(
        &[("SPMD_STANDIN_CARDS", Some("0"))],
        &["NoDevice { ordinal: 0, count: 0 }", "CUDA_VISIBLE_DEVICES"],
    );
    assert_said(
        &[("SPMD_NVRTC_LIB", Some("/nowhere/libnvrtc.so"))],
        &["NvrtcMissing { tried: [\"/nowhere/libnvrtc.so\"] }", "SPMD_NVRTC_LIB"],
    );
    assert_said(
        &[("SPMD_STANDIN_MEMORY", Some("1000000"))],
        &["OutOfDeviceMemory { asked: 2000000, free: ", "fewer ranks"],
    );
    assert_said(
        &[("SPMD_STANDIN_FAIL", Some("cuDevicePrimaryCtxRetain:1:46"))],
        &["DeviceBusy", "wait for that, or ask for another device"],
    );
}

/// Where HIP is, RCCL stands in for NCCL.
#[test]
fn nccl_of_another_vendor_is_found_beside_its_driver() -> Result<()> {
    if !card::stand_in() {
        return Ok(());
    }
    let libraries = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let has_nccl = |folder: &&str| Path::new(folder).join("libnccl.so.2").exists();
    let card = libraries.split(':').find(has_nccl).expect("the stand-in has one");
    let folder = tempfile::tempdir()?;
    let link = |of: &str, name: &str| symlink(Path::new(card).join(of), folder.path().join(name));
    for name in ["libcuda.so.1", "libnvrtc.so"] {
        link(name, name)?;
    }
    link("libnccl.so.2", "librccl.so")?;
    let alone = [("LD_LIBRARY_PATH", folder.path().to_str())];
    assert_said(&alone, &["NCCL: NCCL is not installed"]);
    link("libnvrtc.so", "libamdhip64.so")?;
    assert_said(&alone, &["NCCL: 2.", "(librccl.so)", "all is well"]);
    Ok(())
}

/// Ranks take the cards in turn, and the first one's carries out what they call.
#[test]
fn ranks_on_cards_that_do_not_reach_each_other_are_told() {
    if card::stand_in() {
        let two = ("SPMD_STANDIN_CARDS", Some("2"));
        assert_said(&[two], &["all is well"]);
        let texts = ["its ranks use several devices", "Nccl", "gpu_missing.rs"];
        assert_said(&[two, ("SPMD_STANDIN_PEERS", Some("0"))], &texts);
    }
}

/// Nobody hangs, and somebody says what it was.
#[test]
fn a_card_that_fails_in_the_middle_ends_the_block() {
    if !card::stand_in() {
        return;
    }
    let lost = ["the device is lost in", "compute-sanitizer"];
    for (fails, texts) in [
        ("cuLaunchKernel:7:719", &lost[..]),
        ("cuStreamWaitEvent:20:700", &lost),
        ("cuEventRecord:15:700", &lost),
        ("cuMemcpyHtoDAsync_v2:11:719", &lost),
        ("cuMemcpyDtoHAsync_v2:11:719", &lost),
        ("cuStreamSynchronize:9:719", &lost),
        ("cuMemAllocAsync:12:2", &["the device has no room for 4000 bytes"]),
        ("cuModuleLoadData:1:200", &["cuModuleLoadData", "kernel image is invalid"]),
        ("cuStreamCreate:3:2", &["cuStreamCreate", "out of memory"]),
    ] {
        assert_said(&[("SPMD_STANDIN_FAIL", Some(fails))], texts);
    }
}
