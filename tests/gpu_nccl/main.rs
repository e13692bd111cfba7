//! The plane `nccl`: ranks with a GPU each, in processes of their own environment, on stand-in cards.
//! The stand-in's folds have the order of `spmd`, so that results are compared to the last bit.

#[path = "../support/card.rs"]
mod card;
#[path = "../support/cards.rs"]
mod cards;
#[path = "../support/on_device.rs"]
mod on_device;
mod split;
#[path = "../support/mod.rs"]
mod support;
mod unchecked;

use std::process::Command;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use spmd::prelude::*;
use spmd_gpu::{Nccl, OnDevice, Staged, planes, probe};
use spmd_matrix::{cases_on_device, full};

use cards::{NAMED, nccl, processes, processes_over_mpi, threads};

/// A sum that NCCL alone carries out.
fn sum(ctx: &Ctx, turn: usize) -> Result<()> {
    let mut numbers = ctx.device()?.buffer_from(&vec![(ctx.rank() + turn) as u32; 20_000])?;
    ctx.allreduce_in_place(&mut numbers, Sum)?;
    let n = ctx.size();
    assert_eq!(numbers.to_vec()?, vec![(n * (n - 1) / 2 + n * turn) as u32; 20_000]);
    Ok(())
}

#[test]
#[ignore = "run by the others"]
fn conformance_of_threads() -> Result<()> {
    for ranks in if full() { vec![1, 2, 3, 4, 8] } else { vec![1, 2, 3, 4] } {
        let block = || Spmd::new(ranks).threads().segment(1024).plane(Nccl::new());
        block().run(|ctx| sum(ctx, 1))?;
        block().plane(Staged::new()).run(|ctx| cases_on_device(ctx, ranks == 3))?;
    }
    println!("all is well");
    Ok(())
}

#[test]
#[ignore = "run by the others"]
fn conformance_of_processes() -> Result<()> {
    spmd::run_on_planes(&[Nccl::new()], |ctx| sum(ctx, 1))?;
    spmd::run_on_planes(&planes(), |ctx| {
        cases_on_device(ctx, false)?;
        // By way of the host: the plane has none of its own.
        on_device::go_on(ctx)?;
        let found = ctx.describe();
        assert!(found.contains("nccl (used), "), "{found}");
        println!("rank {} is right", ctx.rank());
        Ok(())
    })
    .map(drop)
}

/// With what there is since 2.28, and without.
const VERSIONS: [&str; 2] = ["22805", "21805"];

fn threads_are_right(version: &str) {
    if card::stand_in() {
        let ran = threads("conformance_of_threads", &[("SPMD_STANDIN_NCCL", version)]);
        assert!(ran.code == Some(0) && ran.out.contains("all is well"), "{version}: {ran:?}");
    }
}

#[test]
fn every_collective_of_threads_is_right() {
    threads_are_right(VERSIONS[0]);
}

#[test]
fn every_collective_of_threads_is_right_in_groups() {
    threads_are_right(VERSIONS[1]);
}

#[test]
fn every_collective_of_processes_is_right() {
    if !card::stand_in() {
        return;
    }
    for version in VERSIONS {
        let changes = [("SPMD_STANDIN_NCCL", version)];
        for ranks in if full() { vec![1, 2, 3, 4, 8] } else { vec![3] } {
            let ran = processes(ranks, "conformance_of_processes", &changes);
            let right = (0..ranks).all(|rank| ran.out.contains(&format!("rank {rank} is right")));
            assert!(ran.code == Some(0) && right, "{version}: {ran:?}");
        }
    }
}

#[test]
fn every_collective_is_right_over_mpi() {
    if !card::stand_in() {
        return;
    }
    for ran in processes_over_mpi(3, "conformance_of_processes", &[]) {
        let right = (0..3).all(|rank| ran.out.contains(&format!("rank {rank} is right")));
        assert!(ran.code == Some(0) && right, "{ran:?}");
    }
}

#[test]
#[ignore = "run by the others"]
fn sums() -> Result<()> {
    let ended =
        spmd::run_on_planes(&[Nccl::new()], |ctx| (0..20).try_for_each(|turn| sum(ctx, turn)));
    if let Err(error) = &ended {
        println!("{error}");
    }
    ended.map(drop)
}

#[test]
#[ignore = "run by the others"]
fn own_operation() -> Result<()> {
    let first = Op::new(|a: i32, _: i32| a);
    let ended = Spmd::new(2)
        .threads()
        .plane(Nccl::new())
        .run(|ctx| ctx.allreduce_in_place(&mut ctx.device()?.zeros::<i32>(3)?, first));
    println!("{}", ended.as_ref().expect_err("no plane has it"));
    ended.map(drop)
}

#[test]
fn one_rank_with_a_gpu() -> Result<()> {
    if !nccl() {
        return Ok(());
    }
    let block = Spmd::new(1).threads().segment(1024).plane(Nccl::new());
    block.clone().run(|ctx| sum(ctx, 1))?;
    block.plane(Staged::new()).run(|ctx| cases_on_device(ctx, true))?;
    // SAFETY: no other rank could call anything else.
    let unchecked = unsafe { Nccl::new_unchecked() };
    Spmd::new(1)
        .threads()
        .plane(unchecked)
        .run(|ctx| (0..100).try_for_each(|turn| sum(ctx, turn)))?;
    Ok(())
}

#[test]
#[ignore = "run by the others"]
fn shared_card() -> Result<()> {
    spmd::run_on_planes(&[Nccl::new()], |ctx| {
        (0..5).try_for_each(|turn| sum(ctx, turn))?;
        println!("rank {} is right", ctx.rank());
        Ok(())
    })
    .map(drop)
}

/// NCCL of 2.30 lets processes share a GPU, if it is told to.
#[test]
fn two_processes_with_a_gpu() {
    if !nccl() {
        return;
    }
    let found = probe().nccl.expect("it is there").version;
    let on_stand_in = spmd_gpu::Device::open(0).and_then(|device| device.name());
    let on_stand_in = on_stand_in.is_ok_and(|name| name.contains("stand-in"));
    if found < (2, 30) && !on_stand_in {
        return println!("SKIPPED: NCCL {found:?} has no ranks that share a GPU, as 2.30 has");
    }
    let own = std::env::current_exe().expect("a test knows its own path");
    // Where all was made elsewhere, the launcher lies beside the tests.
    let beside = own.with_file_name("spmdrun");
    let mut job = match beside.exists() {
        true => Command::new(beside),
        false => support::spmdrun(&[]),
    };
    job.args(["-n", "2", "--as", "processes", "--timeout", "100"]).arg(own);
    job.arg("shared_card").args(NAMED).env("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    job.env("NCCL_NVLS_ENABLE", "0").env("NCCL_MAX_CTAS", "4");
    let ran = support::finish(&mut job);
    let right = (0..2).all(|rank| ran.out.contains(&format!("rank {rank} is right")));
    assert!(ran.code == Some(0) && right, "{ran:?}");
}

/// Each says what is missing, and what to do.
#[test]
fn what_cannot_be_joined_is_told() {
    if !card::stand_in() {
        return;
    }
    let told = |ran: support::Ran, texts: &[&str]| {
        for text in texts {
            assert!(ran.code != Some(0) && ran.out.contains(text), "no '{text}': {ran:?}");
        }
    };
    let missing = ["NCCL is not installed", "/nowhere/libnccl.so", "gpu_nccl/main.rs", "Staged"];
    told(processes(3, "sums", &[("SPMD_NCCL_LIB", "/nowhere/libnccl.so")]), &missing);
    let old = ["is NCCL 2.17, and 2.18 is needed", "install a newer one"];
    told(processes(3, "sums", &[("SPMD_STANDIN_NCCL", "21700")]), &old);
    let shared = ["rank 1 has the same GPU as another", "--as gpus"];
    told(threads("sums", &[("SPMD_RANKS", "2"), ("SPMD_STANDIN_CARDS", "1")]), &shared);
    let changes = [("SPMD_RANKS", "2"), ("SPMD_AS", "virtual")];
    told(threads("sums", &changes), &["virtual ranks cannot wait for it"]);
    told(
        threads("own_operation", &[]),
        &["nccl: it has no scan", "with Sum, Prod, Min and Max alone"],
    );
    let fails = [("SPMD_STANDIN_FAIL", "ncclCommInitRankConfig:1:2")];
    told(processes(3, "sums", &fails), &["ncclCommInitRankConfig: unhandled system error"]);
}

/// One that ends in the middle of a call that the others' devices wait for.
#[test]
#[ignore = "run by the others"]
fn lost() -> Result<()> {
    let how = std::env::var("SPMD_TEST_LOST").expect("it is set");
    let ended = spmd::run_on_planes(&[Nccl::new()], |ctx| {
        let is_lost = ctx.rank() == 1;
        sum(ctx, 0)?;
        let device = ctx.device()?;
        let mut numbers = device.buffer_from(&vec![1u32; 1_000_000])?;
        match how.as_str() {
            "fails" if is_lost => return Err("it has had enough".into()),
            "panics" if is_lost => panic!("it has had enough"),
            "calls another" if is_lost => ctx.broadcast(&mut numbers, 0)?,
            "loses its device" if is_lost => {
                // The others wait for what it has lost, and it for them.
                card::hold(&device);
                ctx.allreduce_in_place(&mut numbers, Sum)?;
                assert!(device.memory().is_err());
                ctx.barrier()?;
            }
            // The others' devices wait for it, and NCCL says that it is gone.
            "its peer" if is_lost => {
                let go = card::hold(&device);
                ctx.allreduce_in_place(&mut numbers, Sum)?;
                let stopped = ctx.barrier();
                go.store(1, Release);
                stopped?;
            }
            "waits" if is_lost => ctx.recv(&mut [0u8], 0, 7).map(drop)?,
            _ => ctx.allreduce_in_place(&mut numbers, Sum)?,
        }
        if how == "killed" && is_lost {
            std::process::abort();
        }
        numbers.to_vec()?;
        Ok(())
    });
    let error = ended.expect_err("a rank is lost");
    println!("rank told: {error}");
    Err(error)
}

/// The driver waits for the device in functions that look after no rank.
const PAGEABLE: (&str, &str) = ("SPMD_STANDIN_PAGEABLE", "waits");

#[test]
fn a_lost_rank_ends_the_wait_for_the_device() {
    if !card::stand_in() {
        return;
    }
    for (how, text) in [
        ("fails", "it has had enough"),
        ("panics", "it has had enough"),
        ("calls another", "different calls"),
        ("waits", "wait"),
        ("killed", "rank 1"),
        ("its peer", "remote process exited"),
        ("loses its device", "rank 1 failed"),
    ] {
        let fails = match how {
            "its peer" => "ncclCommGetAsyncError at work:3:6",
            _ => "cuMemGetInfo_v2:1:719",
        };
        let fails = ("SPMD_STANDIN_FAIL", fails);
        let ran = processes(3, "lost", &[("SPMD_TEST_LOST", how), PAGEABLE, fails]);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(ran.code != Some(0) && said.contains(text), "{how}: {ran:?}");
        if !["killed", "its peer", "loses its device"].contains(&how) {
            let ran = threads("lost", &[("SPMD_TEST_LOST", how), ("SPMD_RANKS", "3")]);
            assert!(ran.code != Some(0) && ran.out.contains(text), "{how}: {ran:?}");
        }
    }
}

#[test]
#[ignore = "run by the next, as a rank"]
fn makes_a_mistake() -> Result<()> {
    on_device::make_named(&[Nccl::new()])
}

#[test]
fn mistakes_are_reported() {
    if !card::stand_in() {
        return;
    }
    for (mistake, texts) in on_device::MISTAKES {
        let ran = processes(3, "makes_a_mistake", &[(on_device::MISTAKE, mistake)]);
        on_device::assert_told(mistake, texts, (ran.code, &format!("{}{}", ran.out, ran.err)));
    }
}

/// Ranks that do not agree on what one sends to the other.
#[test]
#[ignore = "run by the others"]
fn counts() -> Result<()> {
    let block = Spmd::new(3).threads().timeout(Duration::from_secs(60)).plane(Nccl::new());
    let ended = block.run(|ctx| {
        let device = ctx.device()?;
        let mine = device.buffer_from(&[1u16; 5])?;
        let mut all = device.zeros::<u16>(15 + usize::from(ctx.rank() == 0))?;
        let counts = [5, 5, 5 + usize::from(ctx.rank() == 0)];
        ctx.allgatherv(&mine, &mut all, &counts)
    });
    println!("{}", ended.expect_err("they differ"));
    Ok(())
}

#[test]
fn different_counts_are_told() {
    if card::stand_in() {
        let ran = threads("counts", &[]);
        assert!(ran.out.contains("different counts"), "{ran:?}");
    }
}
