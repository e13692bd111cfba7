//! The plane `nccl` and parts of a communicator: joined by `ncclCommSplit` where that has been joined, else
//! by an id of their own. On stand-in cards, which fail on demand where the other way would be taken.

use spmd::prelude::*;
use spmd_gpu::{Nccl, OnDevice, planes};

use crate::cards::{nccl, processes, processes_over_mpi, threads};
use crate::{card, support};

/// The ranks of a communicator as they are numbered in the world, which its devices tell each other.
fn members(comm: &Comm) -> Result<Vec<usize>> {
    let device = comm.device()?;
    let mine = device.buffer_from(&[comm.world_rank(comm.rank()) as u64])?;
    let mut all = device.zeros::<u64>(comm.size())?;
    comm.allgather(&mine, &mut all)?;
    Ok(all.to_vec()?.into_iter().map(|rank| rank as usize).collect())
}

/// Halves of the ranks but the last, in reverse order; these once more, in their old order; a grid, a host.
fn split_all(ctx: &Ctx) -> Result<()> {
    let (me, n, device) = (ctx.rank(), ctx.size(), ctx.device()?);
    for _ in 0..3 {
        let mut ranks = device.buffer_from(&vec![me as u64; 20_000])?;
        ctx.allreduce_in_place(&mut ranks, Sum)?;
        // The device still works on that.
        let color = (me + 1 < n).then_some(me as u32 % 2);
        let half = ctx.split(color, -(me as i32))?;
        assert_eq!(half.is_some(), me + 1 < n);
        if let Some(half) = half {
            let mut its: Vec<usize> = (0..n - 1).rev().filter(|it| it % 2 == me % 2).collect();
            assert_eq!(members(&half)?, its);
            let again = half.split(Some(7), -(half.rank() as i32))?.expect("it has a color");
            drop(half);
            its.reverse();
            assert_eq!(members(&again)?, its);
            let mut sums = device.buffer_from(&vec![me as u64; 20_000])?;
            again.allreduce_in_place(&mut sums, Sum)?;
            assert_eq!(sums.to_vec()?, vec![its.iter().sum::<usize>() as u64; 20_000]);
        }
        assert_eq!(ranks.to_vec()?, vec![(n * (n - 1) / 2) as u64; 20_000]);
        assert_eq!(members(ctx)?, (0..n).collect::<Vec<_>>());
    }
    if let Some(grid) = ctx.cartesian(&[2, n / 2], &[false, true])? {
        assert_eq!(members(&grid)?, (0..n / 2 * 2).collect::<Vec<_>>());
    }
    members(&ctx.split_host()?).map(drop)
}

fn told(ended: Result<Vec<()>>) -> Result<()> {
    ended.map(drop).inspect_err(|error| println!("{error}"))
}

#[test]
#[ignore = "run by the others"]
fn splits() -> Result<()> {
    told(spmd::run_on_planes(&[Nccl::new()], |ctx| {
        members(ctx)?;
        split_all(ctx)?;
        println!("rank {} is right", ctx.rank());
        Ok(())
    }))
}

/// The same where planes serve whom NCCL does not.
#[test]
#[ignore = "run by the others"]
fn splits_on_any_plane() -> Result<()> {
    told(spmd::run_on_planes(&planes(), |ctx| {
        split_all(ctx)?;
        println!("rank {} is right", ctx.rank());
        Ok(())
    }))
}

/// Parts of a communicator that makes no calls on devices itself, and a duplicate of one that does.
#[test]
#[ignore = "run by the others"]
fn not_split() -> Result<()> {
    told(spmd::run_on_planes(&[Nccl::new()], |ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        for _ in 0..3 {
            let half = ctx.split(Some(me as u32 % 2), 0)?.expect("each has a color");
            let its: Vec<usize> = (0..n).filter(|it| it % 2 == me % 2).collect();
            assert_eq!(members(&half)?, its);
        }
        let all: Vec<usize> = (0..n).collect();
        assert_eq!(members(ctx)?, all);
        assert_eq!(members(&ctx.dup()?)?, all);
        println!("rank {me} is right");
        Ok(())
    }))
}

fn is_right(ran: &support::Ran, ranks: usize) {
    let right = (0..ranks).all(|rank| ran.out.contains(&format!("rank {rank} is right")));
    assert!(ran.code == Some(0) && right, "{ran:?}");
}

const FIVE: (&str, &str) = ("SPMD_RANKS", "5");

#[test]
fn parts_come_from_a_split() {
    if !card::stand_in() {
        return;
    }
    // No communicator is made of an id but the first: one call in each process, five in one of five ranks.
    is_right(
        &threads("split::splits", &[FIVE, ("SPMD_STANDIN_FAIL", "ncclCommInitRankConfig:6:2")]),
        5,
    );
    is_right(
        &processes(4, "split::splits", &[("SPMD_STANDIN_FAIL", "ncclCommInitRankConfig:2:2")]),
        4,
    );
}

#[test]
fn parts_come_from_a_split_over_mpi() {
    if !card::stand_in() {
        return;
    }
    let fails = ("SPMD_STANDIN_FAIL", "ncclCommInitRankConfig:2:2");
    processes_over_mpi(4, "split::splits", &[fails]).iter().for_each(|ran| is_right(ran, 4));
}

#[test]
fn other_parts_have_ids_of_their_own() {
    if !card::stand_in() {
        return;
    }
    let no_split = ("SPMD_STANDIN_FAIL", "ncclCommSplit:1:2");
    is_right(&threads("split::not_split", &[FIVE, no_split]), 5);
    is_right(&processes(3, "split::not_split", &[no_split]), 3);
    let lacks = card::libraries().join("without-ncclCommSplit/libnccl.so.2");
    let without = ("SPMD_NCCL_LIB", lacks.to_str().expect("a path of text"));
    is_right(&threads("split::splits", &[FIVE, without]), 5);
    is_right(&processes(4, "split::splits", &[without]), 4);
    // Ranks that share a card, which NCCL does not join.
    is_right(
        &threads("split::splits_on_any_plane", &[FIVE, no_split, ("SPMD_STANDIN_CARDS", "1")]),
        5,
    );
}

/// Of whoever fails in it, at once or later, the others learn: they wait for it in NCCL.
#[test]
fn a_split_that_fails_is_told() {
    if !card::stand_in() {
        return;
    }
    let fails = |text: &str, ran: support::Ran| {
        let said = format!("{}{}", ran.out, ran.err);
        assert!(ran.code != Some(0) && said.contains(text), "no '{text}': {ran:?}");
    };
    for (how, text) in [
        ("ncclCommSplit:2:2", "ncclCommSplit: unhandled system error"),
        ("ncclCommSplit:5:6", "ncclCommSplit: remote process exited"),
        ("ncclCommSplit later:2:6", "ncclCommSplit: remote process exited"),
    ] {
        fails(text, threads("split::splits", &[FIVE, ("SPMD_STANDIN_FAIL", how)]));
    }
    fails("rank 1", processes(4, "split::splits", &[("SPMD_STANDIN_KILL", "1")]));
    // One that is in no part.
    fails("rank 3", processes(4, "split::splits", &[("SPMD_STANDIN_KILL", "3")]));
}

#[test]
fn one_rank_with_a_gpu() -> Result<()> {
    if nccl() {
        Spmd::new(1).threads().plane(Nccl::new()).run(|ctx| {
            members(ctx)?;
            let whole = ctx.split(Some(0), 0)?.expect("it has a color");
            assert_eq!(members(&whole)?, [0]);
            assert!(ctx.split(None, 0)?.is_none());
            members(ctx)
        })?;
    }
    Ok(())
}
