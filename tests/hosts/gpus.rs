//! Ranks with GPUs on several hosts: stand-in cards, of which each host has some of its own.

use std::fs;
use std::path::Path;

use spmd::prelude::*;
use spmd_gpu::{Device, Nccl, OnDevice, Staged, planes};
use spmd_matrix::{cases_on_device, full};

use crate::net::NAMES;
use crate::support::{self, Ran, again, finish, is_mpi_process, spmdrun_path};
use crate::world::World;

/// What `--full` runs exhaustively.
const TWO_EACH: [usize; 2] = [2, 2];

/// A job with so many ranks on each host, which has so many cards; each rank runs the test `program`.
fn run(
    world: &World,
    card: &Path,
    (ranks, cards): (&[usize], usize),
    options: &[&str],
    program: &str,
) -> Ran {
    let file = world.hosts.folder().join("hostfile");
    let lines = NAMES.iter().zip(ranks).map(|(name, ranks)| format!("{name} slots={ranks}\n"));
    fs::write(&file, lines.collect::<String>()).expect("our own folder");
    let mut job = world.command(spmdrun_path());
    // A kernel takes a C++ compiler's time.
    let limit = if full() { "2000" } else { "200" };
    job.args(["--timeout", limit, "--hostfile"]).arg(file).args(options);
    job.env("SPMD_SEGMENT", "1024");
    if *ranks != TWO_EACH {
        // All types all the same, but not each with all lengths: that takes a quarter of an hour.
        job.env("SPMD_TEST_FULL", "0");
    }
    support::give_cards(&mut job, card, cards);
    finish(&mut again(job, &format!("gpus::{program}")))
}

/// On two hosts of two ranks each, and of others, so many of which share a card: the ranks say that all is well.
fn on_two_hosts(share: usize, options: &[&str], program: &str) {
    let Some(card) = support::stand_in() else { return };
    let more: &[[usize; 2]] = if full() { &[[1, 1], [2, 1], [4, 4]] } else { &[] };
    for world in World::each(2) {
        for ranks in more.iter().chain([&TWO_EACH]) {
            let cards = ranks[0].div_ceil(share);
            let ran = run(&world, &card, (ranks, cards), options, program);
            let mut numbers = 0..ranks[0] + ranks[1];
            let right = numbers.all(|rank| ran.out.contains(&format!("rank {rank} is right")));
            assert!(ran.code == Some(0) && right, "{} {program}: {ran:?}", world.mpi.name);
            assert_eq!(world.hosts.running(), []);
        }
    }
}

/// The digits of this host's name, with which the UUIDs of its cards begin.
fn own_digits() -> Result<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(name.trim().bytes().take(4).map(|byte| format!("{byte:02x}")).collect())
}

#[test]
#[ignore = "run by the others, as a rank"]
fn joined() -> Result<()> {
    if !is_mpi_process() {
        return Ok(());
    }
    let shown = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    assert_eq!(Device::count()?, 1);
    // By NCCL alone, and by all.
    spmd::run_on_planes(&[Nccl::new()], |ctx| {
        let own = format!("GPU-{}-", own_digits()?);
        let last = format!("{:02x}", ctx.split_host()?.rank());
        assert!(shown.starts_with(&own) && shown.ends_with(&last), "{shown} of {own}");
        let mut sum = ctx.device()?.buffer_from(&vec![ctx.rank() as u32; 20_000])?;
        ctx.allreduce_in_place(&mut sum, Sum)?;
        let n = ctx.size() as u32;
        assert_eq!(sum.to_vec()?, vec![n * (n - 1) / 2; 20_000]);
        Ok(())
    })?;
    spmd::run_on_planes(&planes(), |ctx| {
        cases_on_device(ctx, ctx.size() != 4)?;
        println!("rank {} is right", ctx.rank());
        Ok(())
    })
    .map(drop)
}

/// Each rank has a card of its host, and NCCL joins them.
#[test]
fn a_card_of_its_host_for_each_rank() {
    on_two_hosts(1, &["--as", "gpus"], "joined");
}

#[test]
#[ignore = "run by the others, as a rank"]
fn staged() -> Result<()> {
    if !is_mpi_process() {
        return Ok(());
    }
    spmd::run_on_planes(&[Staged::new()], |ctx| {
        cases_on_device(ctx, ctx.size() != 4)?;
        // Sums of which no two orders give the same bits, and what the host makes of them.
        let own: Vec<f32> = (0..10_000).map(|at| 1.0 / (1 + at + 7 * ctx.rank()) as f32).collect();
        let mut sum = vec![0.0; own.len()];
        ctx.allreduce(&own, &mut sum, Sum)?;
        let (device, mut prefix) = (ctx.device()?, own.clone());
        let mine = device.buffer_from(&own)?;
        let mut on_device = device.zeros::<f32>(own.len())?;
        ctx.allreduce(&mine, &mut on_device, Sum)?;
        let bits = |numbers: &[f32]| numbers.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&on_device.to_vec()?), bits(&sum));
        ctx.scan_in_place(&mut prefix, Sum)?;
        ctx.scan(&mine, &mut on_device, Sum)?;
        assert_eq!(bits(&on_device.to_vec()?), bits(&prefix));
        println!("rank {} is right", ctx.rank());
        Ok(())
    })
    .map(drop)
}

/// By way of the hosts, whose ranks share a card each; to the last bit.
#[test]
fn by_way_of_the_hosts() {
    let options = ["--as", "gpus", "--ranks-per-gpu", "2", "--env", "SPMD_REPRODUCIBLE=1"];
    on_two_hosts(2, &options, "staged");
}

#[test]
#[ignore = "run by the next, as a rank"]
fn killed() -> Result<()> {
    if !is_mpi_process() {
        return Ok(());
    }
    spmd::run_on_planes(&planes(), |ctx| {
        let mut numbers = ctx.device()?.buffer_from(&[1.0f32; 20_000])?;
        for turn in 0.. {
            if (turn, ctx.rank()) == (5, 2) {
                std::process::abort();
            }
            ctx.allreduce_in_place(&mut numbers, Max)?;
        }
        Ok(())
    })
    .map(drop)
}

/// On the other host, between calls that the others' devices wait in.
#[test]
fn a_rank_with_a_card_is_killed() {
    let Some(card) = support::stand_in() else { return };
    for world in World::each(2) {
        let ran = run(&world, &card, (&TWO_EACH, 2), &["--as", "gpus"], "killed");
        let said = format!("{}{}", ran.out, ran.err);
        let told = ["rank 2 failed", "RUNNING AT beta"].iter().any(|text| said.contains(text));
        assert!(![Some(0), Some(124)].contains(&ran.code) && told, "{}: {ran:?}", world.mpi.name);
        assert_eq!(world.hosts.running(), []);
    }
}

/// Some other host has less than its ranks need: that is told with its name, and ends all.
#[test]
fn a_host_of_too_few_cards() {
    let Some(card) = support::stand_in() else { return };
    for world in World::each(2) {
        let ran = run(&world, &card, (&[1, 2], 1), &["--as", "gpus"], "joined");
        let said = format!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        let told =
            "could not be started: on beta: --as gpus: 2 ranks need 2 GPUs, and there are 1; ";
        assert!(said.contains(told) && said.contains("--ranks-per-gpu 2"), "{ran:?}");
        assert_eq!(world.hosts.running(), []);
    }
}

#[test]
#[ignore = "run by the others, as a rank"]
fn in_turn() -> Result<()> {
    if !is_mpi_process() {
        return Ok(());
    }
    spmd::run(|ctx| {
        let number = ctx.device()?.ordinal();
        assert_eq!(number as usize, ctx.split_host()?.rank());
        // On whatever communicator it is asked for.
        let turned = ctx.split(Some(0), -(ctx.rank() as i32))?.ok_or("each has a color")?;
        assert_eq!(turned.device()?.ordinal(), number);
        println!("rank {} is right", ctx.rank());
        Ok(())
    })
    .map(drop)
}

/// Where a process sees all of its host's.
#[test]
fn cards_in_turn_on_each_host() {
    let Some(card) = support::stand_in() else { return };
    for world in World::each(2) {
        let ran = run(&world, &card, (&[1, 2], 2), &["--as", "processes"], "in_turn");
        let right = (0..3).all(|rank| ran.out.contains(&format!("rank {rank} is right")));
        assert!(ran.code == Some(0) && right, "{}: {ran:?}", world.mpi.name);
    }
}
