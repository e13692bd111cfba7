//! The plane `nccl` where ranks meet later than in the call, on stand-in cards.

use std::sync::Arc;

use spmd::prelude::*;
use spmd_core::internal::Plane;
use spmd_gpu::{DeviceBuffer, Nccl, OnDevice, Staged};
use spmd_matrix::cases_on_device;

use crate::card;
use crate::cards::{processes, processes_over_mpi, threads};

/// Ranks that make other calls do so on stand-in cards alone.
fn unchecked() -> Arc<dyn Plane> {
    // SAFETY: the ranks of these tests make the same calls, or their devices are stand-in cards, which write
    // no more than each rank has room for.
    unsafe { Nccl::new_unchecked() }
}

#[test]
#[ignore = "run by the others"]
fn conformance_of_threads() -> Result<()> {
    for ranks in [1, 2, 3] {
        let block = Spmd::new(ranks).threads().segment(1024).plane(unchecked());
        block.plane(Staged::new()).run(|ctx| cases_on_device(ctx, false))?;
    }
    println!("all is well");
    Ok(())
}

#[test]
#[ignore = "run by the others"]
fn conformance_of_processes() -> Result<()> {
    spmd::run_on_planes(&[unchecked(), Staged::new()], |ctx| {
        cases_on_device(ctx, false)?;
        println!("rank {} is right", ctx.rank());
        Ok(())
    })
    .map(drop)
}

#[test]
fn every_collective_is_right() {
    if !card::stand_in() {
        return;
    }
    let ran = threads("unchecked::conformance_of_threads", &[]);
    assert!(ran.code == Some(0) && ran.out.contains("all is well"), "{ran:?}");
    let ran = processes(3, "unchecked::conformance_of_processes", &[]);
    let right = (0..3).all(|rank| ran.out.contains(&format!("rank {rank} is right")));
    assert!(ran.code == Some(0) && right, "{ran:?}");
}

#[test]
fn every_collective_is_right_over_mpi() {
    if !card::stand_in() {
        return;
    }
    for ran in processes_over_mpi(3, "unchecked::conformance_of_processes", &[]) {
        let right = (0..3).all(|rank| ran.out.contains(&format!("rank {rank} is right")));
        assert!(ran.code == Some(0) && right, "{ran:?}");
    }
}

/// Rank 0 makes so many calls before it lets the others begin with theirs.
fn ahead(ctx: &Ctx, calls: usize) -> Result<DeviceBuffer<u64>> {
    let mut ones = ctx.device()?.buffer_from(&[1u64; 1000])?;
    let mut sum = ctx.device()?.zeros::<u64>(1000)?;
    ctx.allreduce(&ones, &mut sum, Sum)?;
    if ctx.rank() > 0 {
        ctx.recv(&mut [0u8], 0, 7)?;
    }
    for _ in 0..calls {
        ctx.broadcast(&mut ones, 0)?;
    }
    if ctx.rank() == 0 {
        (1..ctx.size()).try_for_each(|rank| ctx.send(&[1u8], rank, 7))?;
    }
    ctx.allreduce(&ones, &mut sum, Sum)?;
    Ok(sum)
}

/// Up to 64 calls that others have not come to.
#[test]
#[ignore = "run by the others"]
fn ahead_of_the_others() -> Result<()> {
    let calls = std::env::var("SPMD_TEST_CALLS").expect("it is set").parse().expect("a number");
    let ended = spmd::run_on_planes(&[unchecked()], |ctx| {
        let sum = ahead(ctx, calls)?;
        assert_eq!(sum.to_vec()?, [ctx.size() as u64; 1000]);
        println!("rank {} is right", ctx.rank());
        Ok(())
    });
    ended.inspect_err(|error| println!("{error}")).map(drop)
}

#[test]
fn a_call_waits_for_nobody_up_to_the_bound() {
    if !card::stand_in() {
        return;
    }
    let three = ("SPMD_RANKS", "3");
    for calls in ["1", "64"] {
        let changes = [("SPMD_TEST_CALLS", calls), three];
        for ran in [
            threads("unchecked::ahead_of_the_others", &changes),
            processes(3, "unchecked::ahead_of_the_others", &changes),
        ] {
            let right = (0..3).all(|rank| ran.out.contains(&format!("rank {rank} is right")));
            assert!(ran.code == Some(0) && right, "{calls}: {ran:?}");
        }
    }
    // The call after them waits for ranks that wait for this one.
    let ran = threads("unchecked::ahead_of_the_others", &[("SPMD_TEST_CALLS", "65"), three]);
    assert!(ran.code != Some(0) && ran.out.contains("broadcast of 1000 u64"), "{ran:?}");
    assert!(ran.out.contains("recv"), "{ran:?}");
}

/// The ranks do not do what they have promised, or one of them is lost.
#[test]
#[ignore = "run by the others"]
fn broken() -> Result<()> {
    let how = std::env::var("SPMD_TEST_LOST").expect("it is set");
    let ended = spmd::run_on_planes(&[unchecked()], |ctx| {
        let other = ctx.rank() == 1;
        let device = ctx.device()?;
        let mut numbers = device.buffer_from(&vec![1u32; 1_000_000])?;
        ctx.allreduce_in_place(&mut numbers, Sum)?;
        match how.as_str() {
            "fails" if other => return Err("it has had enough".into()),
            "panics" if other => panic!("it has had enough"),
            "killed" if other => std::process::abort(),
            "leaves" if other => return Ok(()),
            "waits" if other => ctx.recv(&mut [0u8], 0, 7).map(drop)?,
            "calls another" if other => ctx.broadcast(&mut numbers, 0)?,
            "on the host" if other => ctx.barrier()?,
            "another type" if other => {
                let mut numbers = device.buffer_from(&vec![1f32; 1_000_000])?;
                ctx.allreduce_in_place(&mut numbers, Sum)?;
            }
            "counts" => {
                let mine = device.buffer_from(&[1u16; 5])?;
                let more = usize::from(ctx.rank() == 0);
                let mut all = device.zeros::<u16>(15 + more)?;
                ctx.allgatherv(&mine, &mut all, &[5, 5, 5 + more])?;
            }
            _ => ctx.allreduce_in_place(&mut numbers, Sum)?,
        }
        numbers.to_vec()?;
        Ok(())
    });
    let error = ended.expect_err("a rank is lost");
    println!("rank told: {error}");
    Err(error)
}

#[test]
fn what_ranks_do_otherwise_is_told() {
    if !card::stand_in() {
        return;
    }
    for (how, texts) in [
        ("fails", &["it has had enough"][..]),
        ("panics", &["it has had enough"]),
        ("killed", &["rank 1"]),
        ("leaves", &["ended its block", "allreduce_in_place of 1000000 u32 with Sum"]),
        ("waits", &["recv", "allreduce_in_place of 1000000 u32 with Sum"]),
        ("calls another", &["different calls", "broadcast of 1000000 u32"]),
        ("on the host", &["barrier", "allreduce_in_place of 1000000 u32 with Sum"]),
        ("another type", &["1000000 u32 with Sum", "1000000 f32 with Sum"]),
        ("counts", &["different counts"]),
    ] {
        let ran = processes(3, "unchecked::broken", &[("SPMD_TEST_LOST", how)]);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(ran.code != Some(0), "{how}: {ran:?}");
        assert!(texts.iter().all(|text| said.contains(text)), "{how}: {ran:?}");
        if how != "killed" {
            let ran = threads("unchecked::broken", &[("SPMD_TEST_LOST", how), ("SPMD_RANKS", "3")]);
            assert!(ran.code != Some(0), "{how}: {ran:?}");
            assert!(texts.iter().all(|text| ran.out.contains(text)), "{how}: {ran:?}");
        }
    }
}
