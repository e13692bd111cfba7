//! What a program is told that is linked with its MPI (the feature `mpi`), and how `spmdrun` starts
//! it.

#![cfg(all(target_os = "linux", feature = "mpi"))]

mod support;

use spmd::prelude::*;
use support::{Mpi, cluster, finish, is_mpi_process, spmdrun_self};

/// As in `tests/mpi.rs`: the same program, by its own launcher.
fn mpi() -> Mpi {
    Mpi::all().remove(0)
}

#[test]
fn spmdrun_finds_the_launcher_of_the_library() -> Result<()> {
    let test = "spmdrun_finds_the_launcher_of_the_library";
    if is_mpi_process() {
        return run(|ctx| {
            let sum = ctx.allreduce_value(ctx.rank() + 1, Sum)?;
            if ctx.rank() == 0 {
                println!("\nthe sum of {} is {sum}", ctx.size());
            }
            Ok(())
        })
        .map(drop);
    }
    let mut job = spmdrun_self(test, 3);
    let ran = finish(job.env("SPMD_TRANSPORT", "mpi"));
    assert!(ran.code == Some(0) && ran.out.contains("the sum of 3 is 6"), "{ran:?}");
    Ok(())
}

/// More elements than MPI is told of at once: with counts of 32 bits, 2³¹; here 100.
#[test]
fn large_counts() -> Result<()> {
    for place in [(2, 1, "threads"), (3, 1, "threads"), (2, 2, "threads")] {
        cluster("large_counts", &mpi(), place, &[("SPMD_MPI_COUNT", "100")], large)?;
    }
    Ok(())
}

fn large(ctx: &Ctx) -> Result<()> {
    const N: usize = 1001;
    let (rank, size) = (ctx.rank(), ctx.size());
    let of = |rank: usize| -> Vec<u32> { (0..N).map(|i| (rank * N + i) as u32).collect() };
    let all: Vec<u32> = (0..size).flat_map(of).collect();
    let sum: Vec<u32> = (0..N).map(|i| (0..size).map(|rank| of(rank)[i]).sum()).collect();

    let mut data = if rank == 1 { of(1) } else { vec![0; N] };
    ctx.broadcast(&mut data, 1)?;
    assert_eq!(data, of(1));

    let mut every = vec![0; size * N];
    ctx.allgather(&of(rank), &mut every)?;
    assert_eq!(every, all);
    ctx.alltoall(&all, &mut every)?;
    assert_eq!(every, vec![all[rank * N..][..N].to_vec(); size].concat());
    let mut every = vec![0; if rank == 0 { size * N } else { 0 }];
    ctx.gather(&of(rank), &mut every, 0)?;
    assert!(rank != 0 || every == all);
    let mut own = vec![0; N];
    ctx.scatter(if rank == 0 { &all[..] } else { &[] }, &mut own, 0)?;
    assert_eq!(own, of(rank));

    let mut folded = vec![0; N];
    ctx.allreduce(&of(rank), &mut folded, Sum)?;
    assert_eq!(folded, sum);
    let mut folded = of(rank);
    ctx.reduce_in_place(&mut folded, Sum, 0)?;
    assert_eq!(folded, if rank == 0 { sum.clone() } else { of(rank) });
    let mut part = vec![0; N];
    ctx.reduce_scatter(&all, &mut part, Sum)?;
    assert_eq!(part, of(rank).iter().map(|x| x * size as u32).collect::<Vec<_>>());
    let mut folded = vec![0; N];
    ctx.scan(&of(rank), &mut folded, Sum)?;
    let before = |i: usize| (0..=rank).map(|rank| of(rank)[i]).sum::<u32>();
    assert_eq!(folded, (0..N).map(before).collect::<Vec<_>>());

    // Larger than a packet: a payload.
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    let sent = vec![rank as u64; 50_000];
    let mut came = vec![0u64; 50_000];
    ctx.sendrecv(&sent, next, 0, &mut came, last, 0)?;
    assert_eq!(came, vec![last as u64; 50_000]);

    // In units that all blocks are made of; without one, an error before anything is sent.
    let counts: Vec<usize> = (0..size).map(|rank| 1000 * (rank + 1)).collect();
    let mine = vec![rank as u8; 1000 * size];
    let mut every = vec![0; counts.iter().sum()];
    ctx.allgatherv(&mine[..counts[rank]], &mut every, &counts)?;
    let expected = counts.iter().enumerate().flat_map(|(rank, n)| vec![rank as u8; *n]);
    assert_eq!(every, expected.collect::<Vec<_>>());
    let counts: Vec<usize> = (0..size).map(|rank| 1000 + rank).collect();
    let mut every = vec![0; counts.iter().sum()];
    let odd = ctx.allgatherv(&mine[..counts[rank]], &mut every, &counts);
    assert!(odd.unwrap_err().to_string().contains("reach over"));
    Ok(())
}
