//! Ranks with a GPU each that an MPI launcher starts, and device buffers that NCCL alone may carry: on
//! stand-in cards, with the library and the launcher of MPICH, and of Intel MPI where a launcher is asked.

#[path = "support/card.rs"]
mod card;
mod support;

use std::process::Command;

use spmd::prelude::*;
use spmd_gpu::{Device, Local, OnDevice, Staged, planes};
use support::{Mpi, Ran, finish};

/// Starts a test of this file as each rank of a job, on a host of so many cards.
fn ranks(mut job: Command, test: &str, cards: usize) -> Ran {
    job.arg(std::env::current_exe().expect("a test knows its own path")).arg(test);
    job.args(["--exact", "--ignored", "--nocapture", "--quiet"]);
    finish(job.env("SPMD_STANDIN_CARDS", cards.to_string()))
}

/// The same under an MPI launcher, each with a GPU; a job that hangs ends with status 124.
fn ranks_under(mpi: &Mpi, options: &[&str], test: &str, cards: usize) -> Ran {
    let mut job = mpi.spmdrun(&["--as", "gpus", "--transport", "mpi", "--timeout", "60"]);
    job.args(options);
    ranks(job, test, cards)
}

#[test]
#[ignore = "run by the others, as a rank"]
fn shows_its_card() -> Result<()> {
    spmd::run_on_planes(&[Staged::new()], |ctx| {
        let device = ctx.device()?;
        let mut sum = device.buffer_from(&[ctx.rank(); 1000])?;
        ctx.allreduce_in_place(&mut sum, Sum)?;
        assert_eq!(sum.to_vec()?, [ctx.size() * (ctx.size() - 1) / 2; 1000]);
        let (rank, size, name) = (ctx.rank(), ctx.size(), device.name()?);
        println!("rank {rank} of {size} has {name} of {}", Device::count()?);
        Ok(())
    })
    .map(drop)
}

#[test]
fn each_rank_has_a_gpu_of_its_host() {
    if !card::stand_in() {
        return;
    }
    // As many ranks as there are cards; those that were named; some a card.
    let cases: [(&[&str], &[usize]); 3] = [
        (&[], &[0, 1, 2]),
        (&["--gpus", "0,2"], &[0, 2]),
        (&["--ranks-per-gpu", "2", "-n", "5"], &[0, 0, 1, 1, 2]),
    ];
    for mpi in Mpi::all() {
        for (options, cards) in cases {
            let ran = ranks_under(&mpi, options, "shows_its_card", 3);
            let size = cards.len();
            let told = |rank: usize, card: usize| {
                format!("rank {rank} of {size} has stand-in card {card} (no GPU) of 1")
            };
            let all = cards.iter().enumerate().all(|(rank, at)| ran.out.contains(&told(rank, *at)));
            assert!(ran.code == Some(0) && all, "{} {options:?}: {ran:?}", mpi.name);
        }
    }
}

/// Told once, with the host, and nobody waits for ever.
#[test]
fn too_few_gpus_on_a_host() {
    if !card::stand_in() {
        return;
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it");
    let host = host.trim();
    let cases: [(&[&str], usize, &[&str]); 3] = [
        (&["-n", "4"], 3, &["4 ranks need 4 GPUs, and there are 3; start at most 3", "-gpu 2"]),
        (&["-n", "2"], 0, &["the driver shows no GPU here", "CUDA_VISIBLE_DEVICES"]),
        (&["-n", "2", "--gpus", "1-5"], 2, &["no GPU 2", "are 0 to 1"]),
    ];
    for mpi in Mpi::all() {
        for (options, cards, words) in cases {
            let ran = ranks_under(&mpi, options, "shows_its_card", cards);
            assert_eq!(ran.code, Some(1), "{} {options:?}: {ran:?}", mpi.name);
            let line = format!("spmdrun: a rank could not be started: on {host}: --");
            assert_eq!(ran.err.matches(&line).count(), 1, "{} {options:?}: {ran:?}", mpi.name);
            for word in words {
                assert!(ran.err.contains(word), "{} {options:?}: {word}: {ran:?}", mpi.name);
            }
        }
    }
}

#[test]
#[ignore = "run by the others, as a rank"]
fn makes_calls() -> Result<()> {
    spmd::run_on_planes(&planes(), |ctx| {
        assert!(ctx.describe().ends_with(" (on GPUs nccl alone)"), "{}", ctx.describe());
        let (device, me, n) = (ctx.device()?, ctx.rank(), ctx.size());
        // What is on the host goes as ever.
        assert_eq!(ctx.scan_value(1, Sum)?, me + 1);
        let mut numbers = device.buffer_from(&vec![me as u32; 1000])?;
        let told = |what: &str, ended: Result<()>| match ended {
            Ok(()) => println!("rank {me}: {what}: done"),
            Err(error) => println!("rank {me}: {what}: {error}"),
        };
        let sum = ctx.allreduce_in_place(&mut numbers, Sum);
        if sum.is_ok() {
            assert_eq!(numbers.to_vec()?, vec![(n * (n - 1) / 2) as u32; 1000]);
        }
        told("sum", sum);
        told("broadcast", ctx.broadcast(&mut numbers, 0));
        told("scan", ctx.scan_in_place(&mut numbers, Sum));
        let first = Op::new(|a: u32, _: u32| a);
        told("own operation", ctx.allreduce_in_place(&mut numbers, first));
        let line = ctx.cartesian(&[n], &[true])?.ok_or("it has a place for all")?;
        let mut around = device.zeros::<u32>(2000)?;
        told("neighbours", line.neighbor_allgather(&numbers, &mut around));
        let started = ctx.allreduce_start(numbers, device.zeros(1000)?, Sum);
        told("started", started.and_then(|it| it.wait()).map(drop));
        Ok(())
    })
    .map(drop)
}

/// `makes_calls` tells of each, on all ranks, what it has come to.
#[track_caller]
fn come_to(ran: &Ran, size: usize, ends: &[(&str, &str)]) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for rank in 0..size {
        for (what, words) in ends {
            let begin = format!("rank {rank}: {what}: ");
            let line = ran.out.lines().find_map(|line| line.split_once(&begin)).map(|it| it.1);
            let line = line.unwrap_or_else(|| panic!("nothing of {what} on {rank}: {ran:?}"));
            assert!(line.contains(words), "rank {rank}, {what}: '{words}' is not in: {line}");
            let alone = "SPMD_TRANSPORT=nccl leaves calls on devices to the plane nccl alone";
            let refused = line.contains(alone) && line.contains("without --transport nccl");
            assert!(refused || *words == "done", "rank {rank}, {what}: {line}");
        }
    }
}

const SERVED: [(&str, &str); 6] = [
    ("sum", "done"),
    ("broadcast", "done"),
    ("scan", "nccl: it has no scan, and folds numbers"),
    ("own operation", "with Sum, Prod, Min and Max alone"),
    ("neighbours", "nccl: it has no calls of neighbours in a grid"),
    ("started", "nccl: it serves no started calls"),
];

#[test]
fn nccl_alone_carries_device_buffers() {
    if !card::stand_in() {
        return;
    }
    for kind in ["gpus", "threads"] {
        let job = support::spmdrun(&["--as", kind, "--transport", "nccl", "-n", "2"]);
        come_to(&ranks(job, "makes_calls", 2), 2, &SERVED);
    }
    // By the variable, and where MPI joins the processes.
    let mut job = support::spmdrun(&["--as", "gpus", "-n", "2"]);
    job.env("SPMD_TRANSPORT", "nccl");
    come_to(&ranks(job, "makes_calls", 2), 2, &SERVED);
    for mpi in Mpi::all().iter().filter(|mpi| mpi.name == "mpich") {
        let options = ["--as", "gpus", "--transport", "nccl", "--host", "localhost:2"];
        come_to(&ranks(mpi.spmdrun(&options), "makes_calls", 2), 2, &SERVED);
        let given = ["-n", "2", "--env", "SPMD_TRANSPORT=nccl"];
        come_to(&ranks_under(mpi, &given, "makes_calls", 2), 2, &SERVED);
    }
}

#[test]
fn what_nccl_alone_cannot_do_is_told() {
    if !card::stand_in() {
        return;
    }
    // Fewer cards than ranks, which others would share.
    let shared = "nccl: rank 1 has the same GPU as another";
    let shared = ["sum", "broadcast", "scan", "own operation"].map(|what| (what, shared));
    let job = support::spmdrun(&["--as", "threads", "--transport", "nccl", "-n", "2"]);
    come_to(&ranks(job, "makes_calls", 1), 2, &shared);
    let options = ["--as", "gpus", "--ranks-per-gpu", "2", "--transport", "nccl", "-n", "2"];
    come_to(&ranks(support::spmdrun(&options), "makes_calls", 1), 2, &shared);
    let job = support::spmdrun(&["--as", "virtual", "--transport", "nccl", "-n", "2"]);
    let wait = "nccl: virtual ranks cannot wait for it";
    come_to(&ranks(job, "makes_calls", 2), 2, &[("sum", wait), ("broadcast", wait)]);
    let mut job = support::spmdrun(&["--as", "gpus", "--transport", "nccl", "-n", "2"]);
    job.env("SPMD_REPRODUCIBLE", "1");
    let order = "nccl: it folds in an order of its own, which SPMD_REPRODUCIBLE=1 forbids";
    come_to(&ranks(job, "makes_calls", 2), 2, &[("sum", order), ("broadcast", "done")]);
    let job = support::spmdrun(&["--as", "threads", "--transport", "nccl", "-n", "2"]);
    let none = "the block has no plane 'nccl' (`spmd_gpu::planes()` has all)";
    come_to(&ranks(job, "has_other_planes", 1), 2, &[("sum", none)]);
}

#[test]
#[ignore = "run by the others, as a rank"]
fn has_other_planes() -> Result<()> {
    spmd::run_on_planes(&[Local::new(), Staged::new()], |ctx| {
        let mut numbers = ctx.device()?.zeros::<u32>(10)?;
        let error = ctx.allreduce_in_place(&mut numbers, Sum).expect_err("NCCL alone may");
        println!("rank {}: sum: {error}", ctx.rank());
        Ok(())
    })
    .map(drop)
}
