//! Alltoall, reduce-scatter and scan against plain oracles: every placement, size and algorithm.

mod common;

use common::{Sample, buffer, everywhere, folded, some};
use spmd_collectives::{Alltoall, Barrier, ReduceScatter, Scan};
use spmd_core::internal::find;
use spmd_core::{BitXor, Ctx, Error, Op, Operation, Result, Spmd, Sum, strided, strided_mut};

/// Element `index` of the block that `from` sends to `to`.
fn sent<T: Sample>(from: usize, to: usize, index: usize) -> T {
    T::of(1000 * from + to, index)
}

fn alltoall<T: Sample>(ctx: &Ctx, block: usize) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let send: Vec<T> = (0..n * block).map(|i| sent(me, i / block, i % block)).collect();
    let expected: Vec<T> = (0..n * block).map(|i| sent(i / block, me, i % block)).collect();
    let mut recv = buffer::<T>(77, n * block);
    ctx.alltoall(&send, &mut recv)?;
    assert_eq!(recv, expected);
    let mut buf = send;
    ctx.alltoall_in_place(&mut buf)?;
    assert_eq!(buf, expected);
    Ok(())
}

/// Blocks of about `most` elements, some of them empty.
fn alltoallv<T: Sample>(ctx: &Ctx, most: usize) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let count = |from: usize, to: usize| (7 * from + 3 * to) % 5 * most / 4;
    let send_counts: Vec<usize> = (0..n).map(|to| count(me, to)).collect();
    let recv_counts: Vec<usize> = (0..n).map(|from| count(from, me)).collect();
    let send: Vec<T> =
        (0..n).flat_map(|to| (0..count(me, to)).map(move |i| sent(me, to, i))).collect();
    let expected: Vec<T> =
        (0..n).flat_map(|from| (0..count(from, me)).map(move |i| sent(from, me, i))).collect();
    let mut recv = buffer::<T>(77, expected.len());
    ctx.alltoallv(&send, &mut recv, &send_counts, &recv_counts)?;
    assert_eq!(recv, expected);
    let (recv, displacements) = ctx.alltoallv_vec(&send, &send_counts)?.into_parts();
    assert_eq!(recv, expected);
    assert_eq!(displacements.len(), n + 1);
    assert!((0..n).all(|from| displacements[from + 1] - displacements[from] == recv_counts[from]));
    Ok(())
}

fn reduce_scatter<T: Sample, O: Operation<T> + Copy>(ctx: &Ctx, block: usize, op: O) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let send = buffer::<T>(me, n * block);
    let expected: Vec<T> = (0..block).map(|i| folded(&op, 0, n, me * block + i)).collect();
    let mut recv = buffer::<T>(77, block);
    ctx.reduce_scatter(&send, &mut recv, op)?;
    assert_eq!(recv, expected);
    let mut buf = send.clone();
    ctx.reduce_scatter_in_place(&mut buf, op)?;
    assert_eq!(buf[..block], expected);
    assert_eq!(buf[block..], send[block..]);

    let counts: Vec<usize> = (0..n).map(|rank| rank % 3 * block).collect();
    let start: usize = counts[..me].iter().sum();
    let send = buffer::<T>(me, counts.iter().sum());
    let mut recv = buffer::<T>(77, counts[me]);
    ctx.reduce_scatterv(&send, &mut recv, &counts, op)?;
    let expected: Vec<T> = (0..counts[me]).map(|i| folded(&op, 0, n, start + i)).collect();
    assert_eq!(recv, expected);
    Ok(())
}

fn scan<T: Sample, O: Operation<T> + Copy>(ctx: &Ctx, count: usize, op: O) -> Result<()> {
    let me = ctx.rank();
    let send = buffer::<T>(me, count);
    let expected: Vec<T> = (0..count).map(|i| folded(&op, 0, me + 1, i)).collect();
    let mut recv = buffer::<T>(77, count);
    ctx.scan(&send, &mut recv, op)?;
    assert_eq!(recv, expected);
    let mut buf = send.clone();
    ctx.scan_in_place(&mut buf, op)?;
    assert_eq!(buf, expected);
    let mut recv = buffer::<T>(77, count);
    ctx.exscan(&send, &mut recv, op)?;
    let before = (0..count).map(|i| if me == 0 { T::of(77, i) } else { folded(&op, 0, me, i) });
    assert_eq!(recv, before.collect::<Vec<T>>());
    assert_eq!(ctx.scan_value(T::of(me, 5), op)?, folded(&op, 0, me + 1, 5));
    let before = (me > 0).then(|| folded(&op, 0, me, 5));
    assert_eq!(ctx.exscan_value(T::of(me, 5), op)?, before);
    Ok(())
}

/// Every call on `count` elements a rank, or about as many.
fn all_calls(ctx: &Ctx, count: usize) -> Result<()> {
    let block = if count > 10 { count / ctx.size() } else { count };
    alltoall::<f64>(ctx, block)?;
    alltoall::<u8>(ctx, block)?;
    alltoall::<bool>(ctx, block)?;
    alltoallv::<[f32; 3]>(ctx, block)?;
    alltoallv::<bool>(ctx, block)?;
    alltoallv::<i32>(ctx, block)?;
    reduce_scatter::<f64, _>(ctx, block, Sum)?;
    reduce_scatter::<u8, _>(ctx, block, Sum)?;
    reduce_scatter::<bool, _>(ctx, block, BitXor)?;
    scan::<f32, _>(ctx, count, Sum)?;
    scan::<i32, _>(ctx, count, Op::new(|a: i32, b: i32| a.wrapping_mul(3) ^ b).non_commutative())?;
    scan::<bool, _>(ctx, count, BitXor)?;
    scan::<[f32; 3], _>(ctx, count, Sum)
}

const COUNTS: [usize; 5] = [0, 1, 3, 1000, 5000];

#[test]
fn every_size_gives_what_the_oracle_gives() -> Result<()> {
    everywhere(|block| block, |ctx| COUNTS.iter().try_for_each(|count| all_calls(ctx, *count)))
}

#[test]
fn many_elements() -> Result<()> {
    for n in [2, 3, 7] {
        Spmd::new(n).threads().run(|ctx| all_calls(ctx, 40_000))?;
        Spmd::new(n).virtual_ranks().run(|ctx| all_calls(ctx, 40_000))?;
    }
    let many = |n| Spmd::new(n).virtual_ranks().run(|ctx| all_calls(ctx, 40_000)).map(drop);
    some(&[33]).try_for_each(many)
}

#[test]
fn every_algorithm_gives_the_same() -> Result<()> {
    for algorithm in ["flat", "doubling", "chunked"] {
        let forced = |block: Spmd| {
            let calls = ["alltoall", "alltoallv", "reduce_scatter", "reduce_scatterv"];
            let calls = calls.iter().chain(&["scan", "exscan"]);
            let able = calls.filter_map(|call| find(call, algorithm).ok());
            able.fold(block, |block, (call, algorithm)| block.force(call, algorithm))
        };
        everywhere(forced, |ctx| {
            [0, 1, 3, 100].iter().try_for_each(|count| all_calls(ctx, *count))
        })?;
    }
    Ok(())
}

#[test]
fn buffers_with_gaps() -> Result<()> {
    everywhere(
        |block| block,
        |ctx| {
            let (me, n) = (ctx.rank(), ctx.size());
            let send = buffer::<i32>(me, 2 * n);
            let mut recv = vec![-1; 3 * n];
            ctx.alltoall(&strided(&send, n, 1, 2)?, &mut strided_mut(&mut recv, n, 1, 3)?)?;
            for from in 0..n {
                assert_eq!(recv[3 * from], i32::of(from, 2 * me));
                assert_eq!(recv[3 * from + 1..3 * from + 3], [-1, -1]);
            }
            let mut before = vec![-1; 4];
            ctx.exscan(&[1, 2], &mut strided_mut(&mut before, 2, 1, 2)?, Sum)?;
            let me = me as i32;
            let expected = if me == 0 { [-1; 4] } else { [me, -1, 2 * me, -1] };
            assert_eq!(before, expected);
            Ok(())
        },
    )
}

#[test]
fn one_element_for_each_of_thousands() -> Result<()> {
    let block = || Spmd::new(1024).virtual_ranks().stack_size(128 << 10);
    block().run(|ctx| alltoall::<u8>(ctx, 1))?;
    block().run(|ctx| scan::<f32, _>(ctx, 3, Sum))?;
    Spmd::new(4096).virtual_ranks().stack_size(128 << 10).run(|ctx| {
        assert_eq!(ctx.scan_value(1u32, Sum)?, ctx.rank() as u32 + 1);
        Ok(())
    })?;
    Ok(())
}

/// The errors of all ranks.
fn errors(n: usize, body: impl Fn(&Ctx) -> Result<()> + Sync) -> Vec<Option<String>> {
    let seen: Vec<_> = (0..n).map(|_| std::sync::Mutex::new(None)).collect();
    let _ = Spmd::new(n).threads().run(|ctx| {
        let result = body(ctx);
        *seen[ctx.rank()].lock().unwrap() = result.as_ref().err().map(|error| error.to_string());
        result
    });
    seen.into_iter().map(|seen| seen.into_inner().unwrap()).collect()
}

#[test]
fn counts_that_differ_are_an_error_on_every_rank() {
    for count in [1, 5000] {
        let all = errors(3, |ctx| {
            let mut recv_counts = vec![count; 3];
            recv_counts[1] += usize::from(ctx.rank() == 2);
            let mut recv = vec![0; recv_counts.iter().sum()];
            ctx.alltoallv(&vec![7; 3 * count], &mut recv, &[count; 3], &recv_counts)
        });
        for error in all {
            let error = error.expect("an error on every rank");
            assert!(error.contains("counts") && error.contains("exchange.rs"), "{error}");
        }
        let all = errors(3, |ctx| {
            let mut counts = vec![count; 3];
            if ctx.rank() == 1 {
                counts = vec![count - 1, count + 1, count];
            }
            let mut recv = vec![0; counts[ctx.rank()]];
            ctx.reduce_scatterv(&vec![7; 3 * count], &mut recv, &counts, Sum)
        });
        for error in all {
            let error = error.expect("an error on every rank");
            assert!(error.contains("counts"), "{error}");
        }
    }
}

#[test]
fn lengths_are_checked_before_a_byte_moves() -> Result<()> {
    Spmd::new(2).threads().run(|ctx| {
        let length = |result: Result<()>| assert!(matches!(result, Err(Error::Length(_))));
        let mut recv = [9; 2];
        length(ctx.alltoall(&[1, 2, 3], &mut [0; 3]));
        length(ctx.alltoall(&[1, 2, 3, 4], &mut recv));
        length(ctx.alltoall_in_place(&mut [0; 3]));
        length(ctx.alltoallv(&[1, 2], &mut recv, &[1, 2], &[1, 1]));
        length(ctx.alltoallv(&[1, 2], &mut recv, &[1, 1], &[2, 1]));
        length(ctx.alltoallv(&[1, 2], &mut recv, &[2], &[1, 1]));
        let overflow = ctx.alltoallv(&[1, 2], &mut recv, &[usize::MAX, 3], &[1, 1]);
        assert!(matches!(overflow, Err(Error::Argument(_))));
        length(ctx.reduce_scatter(&[1, 2], &mut recv, Sum));
        length(ctx.reduce_scatterv(&[1, 2], &mut recv, &[1, 1], Sum));
        length(ctx.reduce_scatter_in_place(&mut [1, 2, 3], Sum));
        length(ctx.scan(&[1], &mut recv, Sum));
        length(ctx.exscan(&[1], &mut recv, Sum));
        assert_eq!(recv, [9; 2]);
        ctx.barrier()
    })?;
    Ok(())
}

#[test]
fn a_panic_in_an_operation_reaches_all() {
    let broken = Op::new(|a: i32, b: i32| if b == 40 { panic!("no {a} and {b}") } else { a + b });
    for count in [1, 30_000] {
        let all = errors(4, |ctx| {
            let mut recv = vec![0; count];
            ctx.scan(&vec![10 * (ctx.rank() as i32 + 1); count], &mut recv, broken)
        });
        assert!(all.iter().flatten().all(|error| error.contains("and 40")), "{all:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn processes_through_staging_areas() -> Result<()> {
    let name = "processes_through_staging_areas";
    for n in [2, 3] {
        common::processes(name, n, &[("SPMD_SEGMENT", "1024"), ("SPMD_TIMEOUT", "60")], |ctx| {
            [0, 1, 3, 1000].iter().try_for_each(|count| all_calls(ctx, *count))
        })?;
    }
    Ok(())
}
