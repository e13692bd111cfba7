//! Ranks that are processes on one device, of which the first one opens the memory of the others and
//! keeps it open.

use spmd::prelude::*;
use spmd_gpu::{DeviceBuffer, Local, OnDevice, Staged};

use crate::card::{gpu, on_one_card};

#[test]
#[ignore = "run by a_process_that_is_killed_stops_the_others, as one of them"]
fn process_beside_a_killed_one() -> Result<()> {
    let variable = |name| std::env::var(name).map_err(|error| error.to_string());
    let number = |name| variable(name)?.parse().map_err(|_| format!("{name} is a number"));
    let (lost, after) = (number("SPMD_TEST_LOST")?, number("SPMD_TEST_AFTER")?);
    let ended = spmd::run_on_planes(&[Local::new(), Staged::new()], |ctx| {
        let device = ctx.device()?;
        let [mut large, mut small] = [device.zeros::<u64>(100_000)?, device.zeros::<u64>(3)?];
        for turn in 0.. {
            // Anywhere in a call.
            if turn == 3 && ctx.rank() as u64 == lost {
                std::thread::spawn(move || {
                    std::thread::sleep(std::time::Duration::from_micros(after));
                    std::process::abort();
                });
            }
            ctx.allreduce_in_place(&mut large, Max)?;
            if turn % 3 == 0 {
                // By way of the host, for which they wait for the device.
                ctx.allreduce_in_place(&mut small, Max)?;
            }
        }
        Ok(())
    });
    let error = ended.expect_err("a rank is gone");
    println!("told: {error}");
    Err(error)
}

#[test]
fn a_process_that_is_killed_stops_the_others() {
    if !gpu() {
        return;
    }
    let mut chance = fastrand::Rng::with_seed(7);
    for turn in 0..8 {
        let (lost, after) = ((turn % 4).to_string(), chance.u32(0..15_000).to_string());
        let changes = [("SPMD_TEST_LOST", &*lost), ("SPMD_TEST_AFTER", &*after)];
        let (status, said) = on_one_card("processes::process_beside_a_killed_one", 4, &changes);
        let told = said.matches("told: ").count();
        let named = said.contains(&format!("rank {lost}"));
        assert!(status != Some(0) && told == 3 && named, "{changes:?}: {status:?}: {said}");
    }
}

/// What the ranks have, each a number of its own, summed.
fn sums_up(comm: &Comm, mine: &DeviceBuffer<u64>, sum: &mut DeviceBuffer<u64>) -> Result<()> {
    comm.allreduce(mine, sum, Sum)?;
    let n = comm.size() as u64;
    assert_eq!(sum.to_vec()?, vec![n * (n + 1) / 2; mine.len()]);
    Ok(())
}

#[test]
#[ignore = "run by memory_is_opened_once, as one of its ranks"]
fn rank_that_uses_its_memory_often() -> Result<()> {
    spmd::run_on_planes(&[Local::new()], |ctx| {
        let device = ctx.device()?;
        let mine = device.buffer_from(&vec![ctx.rank() as u64 + 1; 5000])?;
        for _ in 0..30 {
            // The same memory each time: nobody else has asked for as much.
            let mut sum = device.zeros::<u64>(5000)?;
            sums_up(ctx, &mine, &mut sum)?;
            sums_up(&ctx.dup()?, &mine, &mut sum)?;
        }
        println!("rank {} is right", ctx.rank());
        Ok(())
    })
    .map(drop)
}

#[test]
fn memory_is_opened_once() {
    if !gpu() {
        return;
    }
    // Two pieces of memory of each of the two others; on a stand-in card one more is refused.
    let one_more = ("SPMD_STANDIN_FAIL", "cuIpcOpenMemHandle_v2:5:1");
    let (status, said) = on_one_card("processes::rank_that_uses_its_memory_often", 3, &[one_more]);
    let right = (0..3).all(|rank| said.contains(&format!("rank {rank} is right")));
    assert!(status == Some(0) && right, "{status:?}: {said}");
}

#[test]
#[ignore = "run by memory_that_is_left_comes_back, as one of its ranks"]
fn rank_that_drops_its_memory() -> Result<()> {
    spmd::run_on_planes(&[Local::new()], |ctx| {
        let (device, me) = (ctx.device()?, ctx.rank() as u64 + 1);
        let (before, _) = device.memory()?;
        // Of another size each time, so that none gets what another one has left.
        for turn in 0..40 {
            let mine = device.buffer_from(&vec![me; (1 << 19) + turn])?;
            sums_up(ctx, &mine, &mut device.zeros(mine.len())?)?;
        }
        // More than are closed in one call, and more than stay open.
        let many = || (0..300).map(|at| device.buffer_from(&vec![me; 1000 + at]));
        let mut many = many().collect::<Result<Vec<_>, _>>()?;
        for _ in 0..2 {
            for pair in many.as_chunks_mut().0 {
                let [mine, sum] = pair;
                ctx.allreduce(&mine.slice(0..1000), &mut sum.slice_mut(0..1000), Sum)?;
            }
        }
        drop(many);
        // What these leave is all that is left.
        for _ in 0..3 {
            let mine = device.buffer_from(&vec![me; 1000])?;
            sums_up(ctx, &mine, &mut device.zeros(1000)?)?;
        }
        let (after, _) = device.memory()?;
        // Of a card, others take some as well.
        assert!(after + (32 << 20) > before, "{before} bytes were free, and {after} are");
        if device.name()?.contains("stand-in") {
            assert!(after + (64 << 10) > before, "{before} bytes were free, and {after} are");
        }
        println!("rank {} is right", ctx.rank());
        Ok(())
    })
    .map(drop)
}

#[test]
fn memory_that_is_left_comes_back() {
    if !gpu() {
        return;
    }
    let (status, said) = on_one_card("processes::rank_that_drops_its_memory", 3, &[]);
    let right = (0..3).all(|rank| said.contains(&format!("rank {rank} is right")));
    assert!(status == Some(0) && right, "{status:?}: {said}");
}
