//! What sits inside one process: entering a block, a barrier, waiting and waking, messages.
//!
//! `cargo bench --bench inside`, or with a part of a name: `cargo bench --bench inside -- barrier`.
//! What goes on between processes, and beside MPI, is measured by `spmd-perf` and
//! `cargo xtask versus`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use spmd::prelude::*;

/// A block of thread ranks, and of virtual ranks on one worker.
fn worlds(ranks: usize) -> [(&'static str, Spmd); 2] {
    let threads = Spmd::new(ranks).bind(spmd::Bind::Cores);
    [("threads", threads), ("virtual", Spmd::new(ranks).virtual_ranks().workers(1))]
}

/// Runs `turn` so many times on all ranks, and gives the time that rank 0 took.
fn time(block: &Spmd, turns: u64, turn: impl Fn(&Ctx, u64) -> Result<()> + Sync) -> Duration {
    let times = block.clone().run(|ctx| {
        ctx.barrier()?;
        let start = Instant::now();
        for number in 0..turns {
            turn(ctx, number)?;
        }
        let took = start.elapsed();
        ctx.barrier()?;
        Ok(took)
    });
    times.expect("the ranks make the same calls")[0]
}

/// From the call of a block to its results.
fn entry(c: &mut Criterion) {
    let mut group = c.benchmark_group("entry");
    for ranks in [1, 2, 4] {
        group.bench_function(BenchmarkId::new("threads", ranks), |b| {
            b.iter(|| spmd(ranks, |ctx| Ok(ctx.rank())));
        });
    }
    for ranks in [16, 4096] {
        group.bench_function(BenchmarkId::new("virtual", ranks), |b| {
            b.iter(|| Spmd::new(ranks).virtual_ranks().run(|ctx| Ok(ctx.rank())));
        });
    }
}

fn barrier(c: &mut Criterion) {
    let mut group = c.benchmark_group("barrier");
    for ranks in [2, 16] {
        for (name, block) in worlds(ranks) {
            // Threads that share cores sleep at every step.
            if name == "threads" && ranks > 2 {
                continue;
            }
            group.bench_function(BenchmarkId::new(name, ranks), |b| {
                b.iter_custom(|turns| time(&block, turns, |ctx, _| ctx.barrier()));
            });
        }
    }
}

/// How long a rank that sleeps takes to go on: from just before the send to after the receive.
fn wake(c: &mut Criterion) {
    let mut group = c.benchmark_group("wake");
    group.sample_size(20);
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    for (name, block) in worlds(2) {
        group.bench_function(name, |b| {
            b.iter_custom(|turns| {
                let slept = block.clone().run(|ctx| {
                    let mut slept = 0;
                    for _ in 0..turns {
                        if ctx.rank() == 0 {
                            let until = now() + if name == "threads" { 300_000 } else { 0 };
                            while now() < until {
                                std::hint::spin_loop();
                            }
                            ctx.send(&[now()], 1, 0)?;
                        } else {
                            let mut sent = [0];
                            ctx.recv(&mut sent, 0, 0)?;
                            slept += now() - sent[0];
                        }
                        ctx.barrier()?;
                    }
                    Ok(slept)
                });
                Duration::from_nanos(slept.expect("each message is received")[1])
            });
        });
    }
}

/// There and back, and windows of 64 that are answered once.
fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("messages");
    for bytes in [8, 1024, 65_536] {
        for (name, block) in worlds(2) {
            group.throughput(Throughput::Bytes(2 * bytes));
            group.bench_function(BenchmarkId::new(format!("{name}/round trip"), bytes), |b| {
                b.iter_custom(|turns| {
                    let data = vec![1u8; bytes as usize];
                    time(&block, turns, |ctx, _| {
                        let mut room = data.clone();
                        if ctx.rank() == 0 {
                            ctx.send(&data, 1, 0)?;
                            ctx.recv(&mut room, 1, 0)?;
                        } else {
                            ctx.recv(&mut room, 0, 0)?;
                            ctx.send(&data, 0, 0)?;
                        }
                        black_box(room);
                        Ok(())
                    })
                });
            });
        }
    }
    for (name, block) in worlds(2) {
        group.throughput(Throughput::Elements(64));
        group.bench_function(BenchmarkId::new(format!("{name}/window"), 64), |b| {
            b.iter_custom(|turns| {
                time(&block, turns, |ctx, turn| {
                    let peer = 1 - ctx.rank();
                    let mut room = [0u64];
                    for number in 0..64 {
                        if ctx.rank() == 0 {
                            ctx.send(&[turn + number], peer, 0)?;
                        } else {
                            ctx.recv(&mut room, peer, 0)?;
                            assert_eq!(room[0], turn + number);
                        }
                    }
                    if ctx.rank() == 0 {
                        ctx.recv(&mut room, peer, 1).map(drop)
                    } else {
                        ctx.send(&room, peer, 1)
                    }
                })
            });
        });
    }
}

criterion_group!(inside, entry, barrier, wake, messages);
criterion_main!(inside);
