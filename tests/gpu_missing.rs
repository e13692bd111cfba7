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

/// What a process says that runs this test in an environment with these changes.
fn said_by(test: &str, changes: &[(&str, Option<&str>)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args([test, "--exact", "--ignored", "--nocapture"]).stderr(Stdio::null());
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
    let said = said_by("a_program", changes);
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
    if let Err(error) = probe().nccl {
        println!("{error:?}: {error}");
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
        &[("SPMD_NCCL_LIB", Some("/nowhere/libnccl.so"))],
        &["NcclMissing { tried: [\"/nowhere/libnccl.so\"] }", "SPMD_NCCL_LIB", "all is well"],
    );
    assert_said(
        &[("SPMD_STANDIN_MEMORY", Some("1000000"))],
        &["OutOfDeviceMemory { asked: 2000000, free: ", "fewer ranks"],
    );
    assert_said(
        &[("SPMD_STANDIN_FAIL", Some("cuDevicePrimaryCtxRetain:1:46"))],
        &["DeviceBusy", "wait for that, or ask for another device"],
    );
    // Of a driver that starts without one, too.
    assert_said(&[("CUDA_VISIBLE_DEVICES", Some(""))], &["NoDevice { ordinal: 0, count: 0 }"]);
}

/// Where HIP is, RCCL stands in for NCCL.
#[test]
fn nccl_of_another_vendor_is_found_beside_its_driver() -> Result<()> {
    if !card::stand_in() {
        return Ok(());
    }
    let folder = folder_of(&[("libcuda.so.1", "libcuda.so.1"), ("libnvrtc.so", "libnvrtc.so")])?;
    put(folder.path(), "libnccl.so.2", "librccl.so")?;
    let alone = [("LD_LIBRARY_PATH", folder.path().to_str())];
    let missing = "NcclMissing { tried: [\"libnccl.so.2\", \"libnccl.so\"] }";
    assert_said(&alone, &[missing, "NCCL: NCCL is not installed"]);
    put(folder.path(), "libnvrtc.so", "libamdhip64.so")?;
    assert_said(&alone, &["NCCL: 2.", "(librccl.so)", "all is well"]);
    Ok(())
}

/// Puts one of the stand-in's libraries into a folder, by this name.
fn put(folder: &Path, library: &str, name: &str) -> Result<()> {
    let place = folder.join(name);
    std::fs::create_dir_all(place.parent().expect("it is below the folder"))?;
    Ok(symlink(card::libraries().join(library), place)?)
}

/// A folder with these of the stand-in's libraries, by these names.
fn folder_of(all: &[(&str, &str)]) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    all.iter().try_for_each(|(library, name)| put(folder.path(), library, name))?;
    Ok(folder)
}

/// By the names that it may have, and in the folders of an active Python environment.
#[test]
fn libraries_are_found_by_other_names_and_in_python_environments() -> Result<()> {
    if !card::stand_in() {
        return Ok(());
    }
    let plain = [("libcuda.so.1", "libcuda.so.1"), ("libnccl.so.2", "libnccl.so")];
    let plain = folder_of(&plain)?;
    let packages = "lib/python3.12/site-packages/nvidia";
    let (nvrtc, nccl) = ("cu13/lib/libnvrtc.so.13", "nccl/lib/libnccl.so.2");
    let (nvrtc, nccl) = (format!("{packages}/{nvrtc}"), format!("{packages}/{nccl}"));
    let python = folder_of(&[("libnvrtc.so", &nvrtc), ("libnccl.so.2", &nccl)])?;
    let alone = ("LD_LIBRARY_PATH", plain.path().to_str());
    let none = [("VIRTUAL_ENV", None), ("CONDA_PREFIX", None)];
    let without =
        ["NvrtcMissing { tried: [\"libnvrtc.so.13\", \"libnvrtc.so.12\", \"libnvrtc.so\"] }"];
    assert_said(&[alone, none[0], none[1]], &without);
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let active = (name, python.path().to_str());
        let found = [&*format!("{nvrtc})"), "(libnccl.so)", "all is well"];
        assert_said(&[alone, none[0], none[1], active], &found);
        std::fs::remove_file(plain.path().join("libnccl.so"))?;
        assert_said(&[alone, none[0], none[1], active], &[&format!("{nccl})"), "all is well"]);
        put(plain.path(), "libnccl.so.2", "libnccl.so")?;
    }
    Ok(())
}

/// Functions that a library lacks are named, with its version.
#[test]
fn a_library_that_lacks_a_function_is_told() -> Result<()> {
    if !card::stand_in() {
        return Ok(());
    }
    let lacks = |function: &str| card::libraries().join(format!("without-{function}"));
    let told = |library: &str, name: &str, version: &str| {
        format!(
            "SymbolMissing {{ library: \"{library}\", name: \"{name}\", found_version: Some({version}) }}"
        )
    };
    let function = "cuStreamWriteValue32_v2";
    let driver = told("the CUDA driver", function, "(13, 0)");
    let text =
        format!("the CUDA driver of version 13.0 lacks the function {function}; install a newer");
    assert_said(&[("LD_LIBRARY_PATH", lacks(function).to_str())], &[&driver, &text]);
    for (variable, library, function, version) in [
        ("SPMD_NVRTC_LIB", "libnvrtc.so", "nvrtcGetCUBIN", "(13, 0)"),
        ("SPMD_NCCL_LIB", "libnccl.so.2", "ncclAllGather", "(2, 28)"),
    ] {
        let library = lacks(function).join(library);
        let library = library.to_str().expect("a path of text");
        let told = told(library, function, version);
        assert_said(&[(variable, Some(library))], &[&told, "install a newer version"]);
    }
    Ok(())
}

/// A call that needs room of its own.
#[test]
#[ignore = "run by the next, in an environment of its own"]
fn an_exchange_in_place() {
    let ended = Spmd::new(3).threads().plane(Local::new()).run(|ctx| {
        let mut numbers = ctx.device()?.buffer_from(&[ctx.rank() as u32; 3000])?;
        ctx.alltoall_in_place(&mut numbers)?;
        numbers.to_vec().map(drop).map_err(Error::user)
    });
    println!("{ended:?}");
}

#[test]
fn a_call_for_which_there_is_no_room_is_told() {
    if card::stand_in() {
        // After the buffers of three ranks.
        let full = [("SPMD_STANDIN_FAIL", Some("cuMemAllocAsync:4:2"))];
        let told = said_by("an_exchange_in_place", &full);
        assert!(told.contains("the device has no room for 12000 bytes: "), "{told}");
    }
}

#[test]
#[ignore = "run by the next, in an environment of its own"]
fn the_room_of_each() -> Result<(), GpuError> {
    for ordinal in 0..Device::count()? {
        let room = Device::open(ordinal)?.memory()?.1;
        println!("card {ordinal} has {room} bytes");
    }
    match Device::open(0)?.pinned::<u8>(3_000_000) {
        Ok(_) => println!("pinned"),
        Err(error) => println!("{error:?}: {error}"),
    }
    Ok(())
}

#[test]
fn cards_have_the_room_that_they_are_given() {
    if card::stand_in() {
        let three = ("SPMD_STANDIN_CARDS", Some("3"));
        let rooms = ("SPMD_STANDIN_MEMORY", Some("5000000,7000000"));
        let pinned = ("SPMD_STANDIN_PINNED", Some("2000000"));
        let said = said_by("the_room_of_each", &[three, rooms, pinned]);
        for (card, room) in [5_000_000, 7_000_000, 7_000_000].iter().enumerate() {
            assert!(said.contains(&format!("card {card} has {room} bytes")), "{said}");
        }
        let refused = "OutOfPinnedMemory { asked: 3000000, text: \"out of memory";
        assert!(said.contains(refused) && said.contains("SPMD_SEGMENT"), "{said}");
    }
}

#[test]
#[ignore = "run by the next, in an environment of its own"]
fn a_halo() {
    let ended = Spmd::new(2).threads().plane(Local::new()).run(|ctx| {
        let grid = ctx.cartesian(&[1, 2], &[true, true])?.ok_or("it has a place for each")?;
        let mut field = ctx.device()?.zeros::<f64>(6 * 8)?;
        (0..5).try_for_each(|_| grid.exchange_halo(&mut field, &[6, 8], 1))
    });
    println!("{}", ended.map_or_else(|error| error.to_string(), |_| "all is well".into()));
}

/// Columns are rows of few bytes, which the driver copies at once.
#[test]
fn a_copy_of_rows_that_fails_is_told() {
    if card::stand_in() {
        assert!(said_by("a_halo", &[]).contains("all is well"));
        let lost = [("SPMD_STANDIN_FAIL", Some("cuMemcpy2DAsync_v2:5:719"))];
        let told = said_by("a_halo", &lost);
        assert!(told.contains("the device is lost in"), "{told}");
        let refused = [("SPMD_STANDIN_FAIL", Some("cuMemcpy2DAsync_v2:5:1"))];
        let told = said_by("a_halo", &refused);
        assert!(told.contains("refused cuMemcpy2DAsync: invalid argument"), "{told}");
    }
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
        // A code that CUDA 12.0 did not have.
        ("cuLaunchKernel:7:721", &lost),
        ("cuStreamSynchronize:9:999", &lost),
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
