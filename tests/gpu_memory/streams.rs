//! Streams of ranks that are processes on one device, which wait for each other: the ranks do not.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use spmd::prelude::*;
use spmd_gpu::{Local, OnDevice};

use crate::card::{gpu, hold, on_one_card, stand_in};

const COUNT: usize = 50_000;

#[test]
#[ignore = "run by a_call_of_processes_waits_for_no_device, as one of them"]
fn rank_that_waits_for_no_device() -> Result<()> {
    spmd::run_on_planes(&[Local::new()], |ctx| {
        let (device, me, n) = (ctx.device()?, ctx.rank(), ctx.size());
        let total = (n * (n + 1) / 2) as u64;
        for late in 0..n {
            // Each brings memory that is gone when the device comes to it, but for what is kept.
            let mine = device.buffer_from(&vec![me as u64 + 1; COUNT])?;
            let mut sum = device.zeros::<u64>(COUNT)?;
            let mut twice = device.zeros::<u64>(COUNT)?;
            let mut all = device.zeros::<u64>(n * COUNT)?;
            // What the first call of memory does may wait for the device.
            ctx.allreduce(&mine, &mut sum, Sum)?;
            ctx.allreduce(&sum, &mut twice, Sum)?;
            ctx.allgather(&twice, &mut all)?;
            device.synchronize()?;
            ctx.barrier()?;
            let held = (me == late).then(|| hold(&device));
            // As many as may be under way.
            for _ in 0..32 {
                ctx.allreduce(&sum, &mut twice, Sum)?;
                ctx.allgather(&twice, &mut all)?;
            }
            drop(mine);
            // All are here, while the device of the late one has done nothing.
            ctx.barrier()?;
            if let Some(word) = held {
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    word.store(1, Release);
                });
            }
            // One more waits for the device.
            ctx.allreduce(&sum, &mut twice, Sum)?;
            assert!(held.is_none_or(|word| word.load(Acquire) == 1));
            drop(sum);
            assert_eq!(all.to_vec()?, vec![n as u64 * total; n * COUNT]);
            // A thread that waits for what the ranks' streams do, and ends.
            let seen = std::thread::scope(|scope| scope.spawn(|| twice.to_vec()).join());
            assert_eq!(seen.expect("it does not panic")?, vec![n as u64 * total; COUNT]);
        }
        println!("rank {me} is right");
        Ok(())
    })
    .map(drop)
}

#[test]
fn a_call_of_processes_waits_for_no_device() {
    if !gpu() {
        return;
    }
    let test = "streams::rank_that_waits_for_no_device";
    let (status, said) = on_one_card(test, 3, &[]);
    let right = (0..3).all(|rank| said.contains(&format!("rank {rank} is right")));
    assert!(status == Some(0) && right, "{status:?}: {said}");
}

#[test]
#[ignore = "run by a_stream_goes_on_without_a_lost_rank, as one of its ranks"]
fn rank_that_is_lost() -> Result<()> {
    let variable = |name| std::env::var(name).map_err(|error| error.to_string());
    let lost: usize = variable("SPMD_TEST_LOST")?.parse().map_err(|_| "a rank")?;
    let how = variable("SPMD_TEST_HOW")?;
    let ended = spmd::run_on_planes(&[Local::new()], |ctx| {
        let (device, me) = (ctx.device()?, ctx.rank());
        let numbers = device.buffer_from(&vec![1u64; COUNT])?;
        let mut sum = device.zeros::<u64>(COUNT)?;
        ctx.allreduce(&numbers, &mut sum, Sum)?;
        let held = (me == lost).then(|| hold(&device));
        ctx.allreduce(&numbers, &mut sum, Sum)?;
        ctx.barrier()?;
        if let Some(word) = held {
            if how == "killed" {
                std::process::abort();
            }
            if how == "device, and it waits" {
                // The others wait for what it has lost, and it for them.
                assert!(device.memory().is_err());
                ctx.barrier()?;
            }
            if how == "device" {
                // Which does nothing any more from then on.
                assert!(device.memory().is_err() && sum.to_vec().is_err());
                // The others are the first to fail, and name it all the same.
                std::thread::sleep(Duration::from_millis(50));
                return Err("its device is lost".into());
            }
            word.store(1, Release);
            return Err("it has had enough".into());
        }
        let sum = sum.to_vec();
        // A rank that fails after a call does no harm to that.
        let right = sum.as_ref().is_ok_and(|it| *it == [3; COUNT]);
        assert_eq!(right, how == "fails", "{sum:?}");
        sum?;
        ctx.barrier()
    });
    let error = ended.expect_err("a rank is gone");
    println!("told: {error}");
    Err(error)
}

/// What a communicator that is dropped has not brought is told to who waits next.
#[test]
#[ignore = "run by what_a_dropped_communicator_has_not_done_is_told, as one of its ranks"]
fn rank_that_drops_a_communicator() -> Result<()> {
    let ended = spmd::run_on_planes(&[Local::new()], |ctx| {
        let (device, me) = (ctx.device()?, ctx.rank());
        let mine = device.buffer_from(&vec![1u64; COUNT])?;
        let mut sum = device.zeros::<u64>(COUNT)?;
        let part = ctx.dup()?;
        part.allreduce(&mine, &mut sum, Sum)?;
        device.synchronize()?;
        if me == 1 {
            hold(&device);
        }
        part.allreduce(&mine, &mut sum, Sum)?;
        ctx.barrier()?;
        if me == 1 {
            std::process::abort();
        }
        drop(part);
        let told = sum.to_vec();
        assert!(told.is_err(), "{:?}", told.map(|it| it[0]));
        println!("rank {me} was told");
        Ok(())
    });
    ended.map(drop)
}

#[test]
fn what_a_dropped_communicator_has_not_done_is_told() {
    if !gpu() {
        return;
    }
    let (_, said) = on_one_card("streams::rank_that_drops_a_communicator", 3, &[]);
    let told = [0, 2].iter().all(|rank| said.contains(&format!("rank {rank} was told")));
    assert!(told, "{said}");
}

/// Those that are left go on, on a communicator of theirs.
#[test]
#[ignore = "run by ranks_that_are_left_go_on, as one of them"]
fn rank_that_is_left() -> Result<()> {
    spmd::run_on_planes(&[Local::new()], |ctx| {
        let (device, me) = (ctx.device()?, ctx.rank());
        let mine = device.buffer_from(&vec![1u64; COUNT])?;
        let mut sum = device.zeros::<u64>(COUNT)?;
        ctx.allreduce(&mine, &mut sum, Sum)?;
        if me == 1 {
            hold(&device);
            ctx.allreduce(&mine, &mut sum, Sum)?;
            ctx.barrier()?;
            std::process::abort();
        }
        ctx.allreduce(&mine, &mut sum, Sum)?;
        ctx.barrier()?;
        assert!(sum.to_vec().is_err(), "the device has not waited for rank 1");
        let left = ctx.shrink()?;
        // Of memory that is new.
        let mine = device.buffer_from(&vec![1u64; COUNT + 1])?;
        let mut sum = device.zeros::<u64>(COUNT + 1)?;
        for _ in 0..10 {
            left.allreduce(&mine, &mut sum, Sum)?;
        }
        assert_eq!(sum.to_vec()?, [3; COUNT + 1]);
        println!("rank {me} is right");
        Ok(())
    })
    .map(drop)
}

#[test]
fn ranks_that_are_left_go_on() {
    if !gpu() {
        return;
    }
    let (_, said) = on_one_card("streams::rank_that_is_left", 4, &[]);
    let right = [0, 2, 3].iter().all(|rank| said.contains(&format!("rank {rank} is right")));
    assert!(right, "{said}");
}

#[test]
fn a_stream_goes_on_without_a_lost_rank() {
    if !gpu() {
        return;
    }
    let ways = ["killed", "fails", "device", "device, and it waits"];
    let ways = if stand_in() { &ways[..] } else { &ways[..2] };
    for how in ways {
        for lost in ["0", "1", "2"] {
            let fails = ("SPMD_STANDIN_FAIL", "cuMemGetInfo_v2:1:719");
            let changes = [("SPMD_TEST_LOST", lost), ("SPMD_TEST_HOW", how), fails];
            let (status, said) = on_one_card("streams::rank_that_is_lost", 3, &changes);
            let told = said.matches("told: ").count();
            let all = if *how == "killed" { 2 } else { 3 };
            let named = said.contains(&format!("rank {lost}"));
            let right = told == all && named && !said.contains("panicked");
            assert!(status != Some(0) && right, "{how} {lost}: {status:?}: {said}");
        }
    }
}
