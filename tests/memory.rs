//! How much memory worlds take.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use spmd::prelude::*;

mod support;

use support::{finish, is_process_rank, spmdrun_self};

/// The largest that this process has been, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel tells");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

/// Runs in a process of its own, whose peak nothing else raises.
#[test]
fn many_virtual_ranks() {
    const CHILD: &str = "TEST_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its path"));
        let ran =
            finish(command.args(["many_virtual_ranks", "--exact", "--nocapture"]).env(CHILD, "1"));
        print!("{}", ran.out);
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        return;
    }
    let sums = Spmd::new(4096).virtual_ranks().run(|ctx| {
        ctx.barrier()?;
        let mut data = [ctx.rank() as f64; 64];
        ctx.allreduce_in_place(&mut data, Sum)?;
        ctx.sendrecv(&[1], (ctx.rank() + 1) % 4096, 0, &mut [0], ANY, ANY)?;
        ctx.allreduce_value(ctx.rank(), Sum)
    });
    assert_eq!(sums.unwrap(), [4096 * 4095 / 2; 4096]);
    println!("4096 virtual ranks: {} MiB", peak() >> 20);
    assert!(peak() < 1 << 30, "{} MiB", peak() >> 20);
}

/// Bytes that the arena of this job takes, as the launcher's descriptor shows them.
fn arena_bytes() -> u64 {
    let launcher = std::os::unix::process::parent_id();
    let descriptors = fs::read_dir(format!("/proc/{launcher}/fd")).expect("the launcher is ours");
    let arenas = descriptors.flatten().map(|entry| entry.path()).filter(|path| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:spmd"))
    });
    let bytes: Vec<u64> =
        arenas.map(|path| fs::metadata(path).expect("it is open").blocks() * 512).collect();
    assert_eq!(bytes.len(), 1, "one arena");
    bytes[0]
}

#[test]
fn many_process_ranks() {
    if !is_process_rank() {
        let ran = finish(&mut spmdrun_self("many_process_ranks", 64));
        print!("{}", ran.out);
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        return;
    }
    run(|ctx| {
        ctx.barrier()?;
        let mut data = [ctx.rank() as f64; 64];
        ctx.allreduce_in_place(&mut data, Sum)?;
        ctx.broadcast(&mut data, 3)?;
        ctx.gather_value(ctx.rank(), 0)?;
        ctx.barrier()?;
        if ctx.rank() == 0 {
            let bytes = arena_bytes();
            println!("64 process ranks: {} MiB of arena", bytes >> 20);
            assert!(bytes < 64 << 20, "{} MiB", bytes >> 20);
        }
        ctx.barrier()
    })
    .unwrap();
}

/// The least that ranks need is enough for calls of every size.
#[test]
fn a_smaller_arena() {
    if !is_process_rank() {
        let ran = finish(spmdrun_self("a_smaller_arena", 3).env("SPMD_ARENA_SIZE", "1"));
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        return;
    }
    run(|ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        for len in [1, 1000, 1 << 20] {
            let mut data = vec![me as u64; len];
            ctx.allreduce_in_place(&mut data, Sum)?;
            assert!(data.iter().all(|sum| *sum == 3));
            ctx.sendrecv(&vec![me; len], (me + 1) % n, 0, &mut vec![0usize; len], (me + 2) % n, 0)?;
        }
        let shared = ctx.alloc_shared::<u8>(8 << 20)?;
        assert!(ctx.alloc_shared::<u8>(1 << 30).is_err());
        drop(shared);
        let launcher = std::os::unix::process::parent_id();
        let arena = std::env::var("SPMD_ARENA_FD").expect("the launcher's");
        let bytes = fs::metadata(format!("/proc/{launcher}/fd/{arena}")).expect("it is open").len();
        assert!(bytes < 1 << 30, "{bytes}");
        ctx.barrier()
    })
    .unwrap();
}

/// Parts of windows are given back, when all ranks have dropped them.
#[test]
fn windows_that_come_and_go() {
    if !is_process_rank() {
        let ran = finish(&mut spmdrun_self("windows_that_come_and_go", 3));
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        let before = peak();
        come_and_go(&Spmd::new(3).threads(), 1000).unwrap();
        come_and_go(&Spmd::new(3).virtual_ranks(), 1000).unwrap();
        assert!(peak() < before + (256 << 20), "{} MiB", (peak() - before) >> 20);
        return;
    }
    run(|ctx| {
        many_windows(ctx, 1000)?;
        ctx.barrier()?;
        if ctx.rank() == 0 {
            assert!(arena_bytes() < 512 << 20, "{} MiB", arena_bytes() >> 20);
        }
        ctx.barrier()
    })
    .unwrap();
}

fn come_and_go(block: &Spmd, windows: usize) -> Result<()> {
    block.clone().run(|ctx| many_windows(ctx, windows)).map(drop)
}

/// Each has 1 MiB a rank, and is dropped by the ranks when they like.
fn many_windows(ctx: &Ctx, windows: usize) -> Result<()> {
    let mut kept = Vec::new();
    for turn in 0..windows {
        let window = ctx.window::<u64>(1 << 17)?;
        window.lock_all()?;
        window.put(&vec![turn as u64; 1 << 17], (ctx.rank() + 1) % ctx.size(), 0)?;
        window.unlock_all()?;
        kept.push(window);
        if kept.len() > 4 {
            kept.remove((turn + ctx.rank()) % 5);
        }
    }
    Ok(())
}
