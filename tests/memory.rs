//! How much memory worlds take.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;

use spmd::prelude::*;

mod support;

use support::{finish, is_process_rank, spmdrun_self};

/// The largest that this process has been, in bytes.
fn peak() -> u64 {
    of_this_process("VmHWM:")
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    of_this_process("VmRSS:")
}

fn of_this_process(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find(|line| line.starts_with(what)).expect("the kernel tells");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

/// Runs a test once more in a process of its own, whose memory nothing else changes. Whether this
/// is not that process.
fn runs_apart(test: &str) -> bool {
    const CHILD: &str = "TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    let mut command = Command::new(std::env::current_exe().expect("a test knows its path"));
    let ran = finish(command.args([test, "--exact", "--nocapture"]).env(CHILD, "1"));
    print!("{}", ran.out);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    true
}

#[test]
fn many_virtual_ranks() {
    if runs_apart("many_virtual_ranks") {
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

/// Bytes that a send may take that is not gone at once, and a receive, besides their buffers.
const SEND: u64 = 16 << 10;
const RECEIVE: u64 = 1 << 10;

/// What a process may take besides.
const BESIDES: u64 = 16 << 20;

/// 10,000 sends of 1 MiB of one buffer, none of which is received before all have been started;
/// then they are received in batches.
fn many_large_sends(ctx: &Ctx) -> Result<()> {
    const MANY: u32 = 10_000;
    const BATCH: u32 = 16;
    let before = resident();
    if ctx.rank() == 0 {
        let data = vec![7u8; 1 << 20];
        ctx.requests(|requests| {
            (0..MANY).try_for_each(|tag| requests.isend(&data, 1, tag).map(drop))?;
            let taken = resident().saturating_sub(before);
            println!("{MANY} sends: {} KiB each", (taken >> 10) / u64::from(MANY));
            assert!(taken < u64::from(MANY) * SEND + BESIDES, "{} MiB", taken >> 20);
            ctx.send(&[taken], 1, MANY)
        })?;
        return ctx.barrier();
    }
    ctx.recv(&mut [0u64], 0, MANY)?;
    let started = resident();
    let mut rooms = vec![vec![0u8; 1 << 20]; BATCH as usize];
    for first in (0..MANY).step_by(BATCH as usize) {
        let receives = rooms.drain(..).zip(first..).map(|(room, tag)| ctx.irecv(room, 0, tag));
        let received = wait_all(receives.collect::<Result<Vec<_>>>()?)?;
        rooms = received.into_iter().map(|(room, _)| room).collect();
        assert!(rooms.iter().all(|room| room[0] == 7 && room[room.len() - 1] == 7));
    }
    let taken = resident().saturating_sub(started);
    assert!(taken < (u64::from(BATCH) << 20) + BESIDES, "{} MiB", taken >> 20);
    ctx.barrier()
}

/// 100,000 receives of which none has its message yet, whose buffers are empty.
fn many_receives(ctx: &Ctx) -> Result<()> {
    const MANY: u32 = 100_000;
    if ctx.rank() == 1 {
        ctx.barrier()?;
        return (0..MANY).try_for_each(|tag| ctx.send(&[0u8; 0], 0, tag));
    }
    let before = resident();
    let receives = (0..MANY).map(|tag| ctx.irecv([0u8; 0], 1, tag));
    let receives = receives.collect::<Result<Vec<_>>>()?;
    let taken = resident().saturating_sub(before);
    println!("{MANY} receives: {} bytes each", taken / u64::from(MANY));
    assert!(taken < u64::from(MANY) * RECEIVE + BESIDES, "{} MiB", taken >> 20);
    ctx.barrier()?;
    wait_all(receives).map(drop)
}

/// Requests in scopes that panic, and those that are dropped, cancelled and in scopes that give an
/// error, round after round: after the first ones they take no more memory.
fn requests_that_nobody_waits_for(ctx: &Ctx) -> Result<()> {
    // A panic ends all that its rank has started: the scopes that panic come first.
    for abandon in [panicking, abandoned] {
        let mut after_first = 0;
        for round in 0..8 {
            abandon(ctx)?;
            ctx.barrier()?;
            if round == 2 {
                after_first = resident();
            }
        }
        let taken = resident().saturating_sub(after_first);
        println!("requests of five rounds leave {} KiB", taken >> 10);
        assert!(taken < 4 << 20, "{} KiB", taken >> 10);
    }
    Ok(())
}

fn panicking(ctx: &Ctx) -> Result<()> {
    for tag in 0..1000 {
        let mut room = vec![0u8; 20_000];
        let ended = catch_unwind(AssertUnwindSafe(|| {
            ctx.requests(|requests| -> Result<()> {
                drop(requests.irecv(&mut room, 1 - ctx.rank(), tag)?);
                resume_unwind(Box::new("deliberate"))
            })
        }));
        assert!(ended.is_err(), "{ended:?}");
    }
    Ok(())
}

fn abandoned(ctx: &Ctx) -> Result<()> {
    let (other, many) = (1 - ctx.rank(), 1000);
    for tag in 0..many {
        let count = [10, 20_000][tag as usize % 2];
        let sent = ctx.isend(vec![tag; count], other, tag)?;
        let received = ctx.irecv(vec![0u32; count], other, tag)?;
        match tag % 3 {
            0 => drop((sent, received)),
            1 => assert_eq!(received.wait()?.0[0], tag),
            _ => assert_eq!(received.wait()?.0, sent.wait()?),
        }
        let mut room = vec![0u8; 20_000];
        let ended = ctx.requests(|requests| -> Result<()> {
            drop(requests.irecv(&mut room, other, 2 * many + tag)?);
            Err("deliberate".into())
        });
        assert!(ended.is_err());
        let (back, status) = ctx.irecv(room, other, many + tag)?.cancel()?;
        assert!(back.len() == 20_000 && status.is_none());
    }
    Ok(())
}

/// Runs on threads, virtual ranks and processes what looks at the memory of its process.
fn apart_and_everywhere(test: &str, body: fn(&Ctx) -> Result<()>) {
    if is_process_rank() {
        run(body).unwrap();
        return;
    }
    if runs_apart(test) {
        let ran = finish(&mut spmdrun_self(test, 2));
        print!("{}", ran.out);
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        return;
    }
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        block.run(body).unwrap();
    }
}

#[test]
fn ten_thousand_sends_of_a_mebibyte() {
    apart_and_everywhere("ten_thousand_sends_of_a_mebibyte", many_large_sends);
}

#[test]
fn a_hundred_thousand_receives_that_wait() {
    apart_and_everywhere("a_hundred_thousand_receives_that_wait", many_receives);
}

#[test]
fn requests_leave_nothing_behind() {
    apart_and_everywhere("requests_leave_nothing_behind", requests_that_nobody_waits_for);
}
