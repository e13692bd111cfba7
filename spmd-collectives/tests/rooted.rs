//! Broadcast, reduce, gather, allgather and scatter, in all their forms, by all their algorithms,
//! against plain loops.

mod common;

use std::fmt::Debug;
use std::sync::Mutex;

use common::some;
use spmd_collectives::{
    Allgather, Allreduce, Broadcast, Gather, Gathered, Objects, Reduce, Scatter,
};
use spmd_core::internal::find;
use spmd_core::{
    Comm, Element, Error, LogicalAnd, Max, Op, Operation, Result, Spmd, Sum, spmd, strided,
    strided_mut,
};

/// An element that is a function of rank and index.
trait Made: Element + PartialEq + Debug {
    fn made(rank: usize, index: usize) -> Self;
    /// What buffers hold before.
    fn blank() -> Self;
}

fn mixed(rank: usize, index: usize) -> usize {
    (rank + 1).wrapping_mul(0x9e37_79b9) ^ index.wrapping_mul(0x85eb_ca6b) >> 3
}

impl Made for f64 {
    fn made(rank: usize, index: usize) -> f64 {
        (mixed(rank, index) % 1009) as f64 / 7.0
    }
    fn blank() -> f64 {
        -1.0
    }
}

impl Made for i32 {
    fn made(rank: usize, index: usize) -> i32 {
        mixed(rank, index) as i32
    }
    fn blank() -> i32 {
        -1
    }
}

impl Made for u8 {
    fn made(rank: usize, index: usize) -> u8 {
        mixed(rank, index) as u8
    }
    fn blank() -> u8 {
        0xff
    }
}

impl Made for bool {
    fn made(rank: usize, index: usize) -> bool {
        !mixed(rank, index).is_multiple_of(5)
    }
    fn blank() -> bool {
        false
    }
}

impl Made for [f32; 3] {
    fn made(rank: usize, index: usize) -> [f32; 3] {
        [0, 1, 2].map(|lane| (mixed(rank, 3 * index + lane) % 257) as f32 / 3.0)
    }
    fn blank() -> [f32; 3] {
        [-1.0; 3]
    }
}

fn data<T: Made>(rank: usize, count: usize) -> Vec<T> {
    (0..count).map(|index| T::made(rank, index)).collect()
}

/// Counts that differ between ranks, some of them zero.
fn counts(n: usize, count: usize) -> Vec<usize> {
    (0..n).map(|rank| count * (rank % 3) / 2 + rank % 2 * (count > 0) as usize).collect()
}

fn joined<T: Made>(counts: &[usize]) -> Vec<T> {
    counts.iter().enumerate().flat_map(|(rank, count)| data::<T>(rank, *count)).collect()
}

fn displacements(counts: &[usize]) -> Vec<usize> {
    let mut displacements = vec![0];
    displacements.extend(counts.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    }));
    displacements
}

/// The canonical order, written down once more.
fn folded<T: Made>(op: &impl Operation<T>, ranks: std::ops::Range<usize>, index: usize) -> T {
    if ranks.len() == 1 {
        return T::made(ranks.start, index);
    }
    let middle = ranks.start + (1 << (ranks.len() - 1).ilog2());
    op.combine(folded(op, ranks.start..middle, index), folded(op, middle..ranks.end, index))
}

fn moves<T: Made>(comm: &Comm, count: usize, root: usize) -> Result<()> {
    let (n, me) = (comm.size(), comm.rank());
    let on_root = |len: usize| if me == root { len } else { 0 };

    let mut buf = if me == root { data::<T>(root, count) } else { vec![T::blank(); count] };
    comm.broadcast(&mut buf, root)?;
    assert_eq!(buf, data::<T>(root, count));
    let value = (me == root).then(|| T::made(root, 9));
    assert_eq!(comm.broadcast_value(value, root)?, T::made(root, 9));

    let mine = data::<T>(me, count);
    let all = joined::<T>(&vec![count; n]);
    let mut recv = vec![T::blank(); on_root(n * count)];
    comm.gather(&mine, &mut recv, root)?;
    assert_eq!(recv, all[..on_root(n * count)]);
    let ones = (0..n).map(|rank| T::made(rank, 5)).collect::<Vec<_>>();
    let got = comm.gather_value(T::made(me, 5), root)?;
    assert_eq!(got, (me == root).then(|| ones.clone()));

    let mut recv = vec![T::blank(); n * count];
    comm.allgather(&mine, &mut recv)?;
    assert_eq!(recv, all);
    let mut buf = vec![T::blank(); n * count];
    buf[me * count..(me + 1) * count].copy_from_slice(&mine);
    comm.allgather_in_place(&mut buf)?;
    assert_eq!(buf, all);
    assert_eq!(comm.allgather_value(T::made(me, 5))?, ones);

    let mut recv = vec![T::blank(); count];
    comm.scatter(&all[..on_root(n * count)], &mut recv, root)?;
    assert_eq!(recv, mine);

    let counts = counts(n, count);
    let mine = data::<T>(me, counts[me]);
    let all = joined::<T>(&counts);
    let known = if me == root { &counts[..] } else { &[] };
    let mut recv = vec![T::blank(); on_root(all.len())];
    comm.gatherv(&mine, &mut recv, known, root)?;
    assert_eq!(recv, all[..on_root(all.len())]);
    let got = comm.gatherv_vec(&mine, root)?;
    assert_eq!(
        got.map(Gathered::into_parts),
        (me == root).then(|| (all.clone(), displacements(&counts)))
    );

    let mut recv = vec![T::blank(); all.len()];
    comm.allgatherv(&mine, &mut recv, &counts)?;
    assert_eq!(recv, all);
    assert_eq!(comm.allgatherv_vec(&mine)?.into_parts(), (all.clone(), displacements(&counts)));

    let mut recv = vec![T::blank(); counts[me]];
    comm.scatterv(&all[..on_root(all.len())], known, &mut recv, root)?;
    assert_eq!(recv, mine);
    assert_eq!(comm.scatterv_vec(&all[..on_root(all.len())], known, root)?, mine);
    Ok(())
}

fn reductions<T: Made, O: Operation<T> + Copy>(
    comm: &Comm,
    count: usize,
    root: usize,
    op: O,
) -> Result<()> {
    let (n, me) = (comm.size(), comm.rank());
    let mine = data::<T>(me, count);
    let mut recv = vec![T::blank(); if me == root { count } else { 0 }];
    comm.reduce(&mine, &mut recv, op, root)?;
    let mut buf = mine.clone();
    comm.reduce_in_place(&mut buf, op, root)?;
    let value = comm.reduce_value(T::made(me, 2), op, root)?;
    if me == root {
        let expected: Vec<T> = (0..count).map(|index| folded(&op, 0..n, index)).collect();
        assert_eq!(recv, expected);
        assert_eq!(buf, expected);
        assert_eq!(value, Some(folded(&op, 0..n, 2)));
    } else {
        assert_eq!(buf, mine);
        assert_eq!(value, None);
    }
    Ok(())
}

fn everything(comm: &Comm, count: usize, root: usize) -> Result<()> {
    let product = Op::new(|a: i32, b: i32| a.wrapping_mul(31).wrapping_add(b)).non_commutative();
    moves::<f64>(comm, count, root)?;
    reductions::<f64, _>(comm, count, root, Sum)?;
    reductions::<i32, _>(comm, count, root, product)?;
    reductions::<bool, _>(comm, count, root, LogicalAnd)?;
    if count <= 5000 {
        moves::<i32>(comm, count, root)?;
        moves::<u8>(comm, count, root)?;
        moves::<bool>(comm, count, root)?;
        moves::<[f32; 3]>(comm, count, root)?;
        reductions::<u8, _>(comm, count, root, Max)?;
        reductions::<[f32; 3], _>(comm, count, root, Sum)?;
    }
    Ok(())
}

const CALLS: [&str; 8] =
    ["broadcast", "reduce", "gather", "gatherv", "allgather", "allgatherv", "scatter", "scatterv"];

fn forced(spmd: Spmd, algorithm: Option<&str>) -> Spmd {
    let Some(algorithm) = algorithm else { return spmd };
    let able = CALLS.iter().filter_map(|call| find(call, algorithm).ok());
    able.fold(spmd, |spmd, (call, algorithm)| spmd.force(call, algorithm))
}

fn sweep(spmd: &Spmd, n: usize, counts: &[usize]) {
    let mut roots = vec![0, n / 2, n - 1];
    roots.dedup();
    for algorithm in [None, Some("flat"), Some("tree"), Some("chunked")] {
        let block = forced(spmd.clone(), algorithm);
        // What is forced serves small data alone, but for "chunked".
        let all = [None, Some("chunked")].contains(&algorithm);
        let counts = || counts.iter().filter(|count| all || **count <= 1000);
        let outcome = block.run(|ctx| {
            for root in &roots {
                counts().try_for_each(|count| everything(ctx, *count, *root))?;
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{n} ranks, {algorithm:?}: {error}"));
    }
}

#[test]
fn threads() {
    for n in [1, 2, 3, 4, 7] {
        sweep(&Spmd::new(n).threads(), n, &[0, 1, 3, 1000]);
    }
    sweep(&Spmd::new(8).threads(), 8, &[0, 3, 1000]);
    sweep(&Spmd::new(3).threads(), 3, &[5000, 40_000]);
    sweep(&Spmd::new(20).threads(), 20, &[3, 700]);
}

#[test]
fn virtual_ranks() {
    for n in some(&[1, 2, 7, 8, 16, 20, 33]) {
        sweep(&Spmd::new(n).virtual_ranks(), n, &[0, 1, 3, 1000]);
    }
    sweep(&Spmd::new(4).virtual_ranks(), 4, &[5000, 40_000]);
}

#[test]
fn through_staging() {
    for n in some(&[1, 2, 3, 4, 7, 8, 16, 20]) {
        let block = Spmd::new(n).virtual_ranks().unreachable_buffers();
        sweep(&block.clone().segment(256), n, if n > 8 { &[0, 200] } else { &[0, 1, 3, 1000] });
    }
    let block = Spmd::new(3).unreachable_buffers();
    sweep(&block.clone().virtual_ranks(), 3, &[5000, 40_000]);
    sweep(&block.threads(), 3, &[0, 1, 3, 1000, 5000]);
}

#[test]
fn shared_buffers_are_read_in_place() -> Result<()> {
    Spmd::new(5).virtual_ranks().unreachable_buffers().segment(1024).run(|ctx| {
        let (n, me, count) = (ctx.size(), ctx.rank(), 3000);
        for root in 0..n {
            let mut buf = ctx.alloc_shared::<f64>(count)?;
            buf.copy_from_slice(&data::<f64>(me, count));
            let mut all = ctx.alloc_shared::<f64>(n * count)?;
            ctx.allgather(&buf, &mut all)?;
            assert_eq!(all[..], joined::<f64>(&[count; 5]));
            all.fill(0.0);
            ctx.gather(&buf, &mut all, root)?;
            assert!(me != root || all[..] == joined::<f64>(&[count; 5]));
            ctx.broadcast(&mut all, root)?;
            let mut part = ctx.alloc_shared::<f64>(count)?;
            ctx.scatter(&all, &mut part, root)?;
            assert_eq!(part[..], data::<f64>(me, count));
            ctx.reduce_in_place(&mut buf, Sum, root)?;
            let sum = |index| folded(&Sum, 0..n, index);
            assert!(me != root || (0..count).all(|index| buf[index] == sum(index)));
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn buffers_with_gaps() -> Result<()> {
    spmd(3, |ctx| {
        let me = ctx.rank();
        let grid = [[me, 10], [me + 3, 10]];
        let column = |grid: &[[usize; 2]; 2]| [grid[0][0], grid[1][0]];
        let mut all = vec![99; 12];
        ctx.allgather(
            &strided(grid.as_flattened(), 2, 1, 2)?,
            &mut strided_mut(&mut all, 6, 1, 2)?,
        )?;
        assert_eq!(all, [0, 99, 3, 99, 1, 99, 4, 99, 2, 99, 5, 99]);
        let mut copy = grid;
        ctx.broadcast(&mut strided_mut(copy.as_flattened_mut(), 2, 1, 2)?, 1)?;
        assert_eq!((column(&copy), copy[0][1]), ([1, 4], 10));
        let mut sum = grid;
        ctx.reduce_in_place(&mut strided_mut(sum.as_flattened_mut(), 2, 1, 2)?, Sum, 2)?;
        assert_eq!(column(&sum), if me == 2 { [3, 12] } else { [me, me + 3] });
        Ok(())
    })?;
    Ok(())
}

#[test]
fn objects() -> Result<()> {
    for n in [1, 2, 5, 20] {
        Spmd::new(n).virtual_ranks().run(|ctx| {
            let me = ctx.rank();
            let text = |rank: usize| vec![Some("x".repeat(rank * 700)); rank % 3];
            let all: Vec<_> = (0..ctx.size()).map(text).collect();
            for root in [0, ctx.size() - 1] {
                let is_root = me == root;
                let given = ctx.broadcast_object(is_root.then_some(&all), root)?;
                assert_eq!(given, all);
                assert_eq!(ctx.gather_object(&text(me), root)?, is_root.then(|| all.clone()));
                assert_eq!(ctx.scatter_object(is_root.then_some(&all[..]), root)?, all[me]);
            }
            assert_eq!(ctx.allgather_object(&text(me))?, all);
            let (next, last) = ((me + 1) % ctx.size(), (me + ctx.size() - 1) % ctx.size());
            ctx.send_object(&(me, "hello"), next, 7)?;
            let (got, status) = ctx.recv_object::<(usize, String)>(last, 7)?;
            assert_eq!((got, status.source()), ((last, "hello".to_string()), last));
            Ok(())
        })?;
    }
    Ok(())
}

/// What it writes it cannot read.
struct Forgetful;

impl serde::Serialize for Forgetful {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_u64(300)
    }
}

impl<'de> serde::Deserialize<'de> for Forgetful {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        <(String, String)>::deserialize(from).map(|_| Forgetful)
    }
}

#[test]
fn unreadable_objects_are_errors() -> Result<()> {
    spmd(2, |ctx| {
        if ctx.rank() == 0 {
            return ctx.send_object(&Forgetful, 1, 0);
        }
        let error = ctx.recv_object::<Forgetful>(0, 0).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Serialize(it) if it.call.contains("rooted.rs")));
        Ok(())
    })?;
    Ok(())
}

#[test]
fn wrong_arguments_are_errors_before_anything_moves() {
    type Wrong = fn(&Comm) -> Result<()>;
    let wrong: [(&str, Wrong); 12] = [
        ("root", |c| c.broadcast(&mut [1], 5)),
        ("root", |c| c.gather(&[1], &mut [0; 2], 2)),
        ("root", |c| c.scatterv_vec(&[1], &[1, 0], 9).map(drop)),
        ("root", |c| c.reduce_value(1, Sum, 2).map(drop)),
        ("None", |c| c.broadcast_value(None::<u8>, 0).map(drop)),
        ("receive buffer", |c| c.reduce(&[1, 2], &mut [0], Sum, 0)),
        ("receive buffer", |c| c.gather(&[1, 2], &mut [0; 3], 0)),
        ("list of counts", |c| c.gatherv(&[1, 2], &mut [0; 3], &[3], 0)),
        ("send buffer", |c| c.allgatherv(&[1, 2, 3], &mut [0; 4], &[2, 2])),
        ("receive buffer", |c| c.allgatherv(&[1, 2], &mut [0; 3], &[2, 2])),
        ("send buffer", |c| c.scatter(&[1; 5], &mut [0; 2], 0)),
        ("buffer holds 3", |c| c.allgather_in_place(&mut [0; 3])),
    ];
    for (text, call) in wrong {
        let error = spmd(2, |ctx| call(ctx)).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("rooted.rs"), "{error}");
    }
}

#[test]
fn counts_that_differ_are_told_to_all() {
    type Wrong = fn(&Comm) -> Result<()>;
    let wrong: [(&str, Wrong); 4] = [
        ("gatherv", |c| c.gatherv(&[7; 3], &mut [0; 5], &[3, 2], 0)),
        ("allgatherv", |c| {
            let sends = 2 + c.rank();
            let counts = if c.rank() == 0 { [2, 2] } else { [2, 3] };
            c.allgatherv(&vec![7; sends], &mut vec![0; counts[0] + counts[1]], &counts)
        }),
        ("scatterv", |c| c.scatterv(&[7; 5], &[3, 2], &mut [0; 3], 0)),
        ("broadcast", |c| c.broadcast(&mut vec![0; 1 + c.rank()], 0)),
    ];
    for n in [None, Some("chunked")] {
        for (name, call) in wrong {
            let block = forced(Spmd::new(2), n);
            let errors = Mutex::new(Vec::new());
            let _ = block.run(|ctx| {
                // The first rank may have gone on; it learns of it in its next call.
                let outcome = call(ctx).and_then(|()| ctx.allreduce_value(1, Sum));
                errors.lock().unwrap().push(outcome.unwrap_err().to_string());
                Ok(())
            });
            let errors = errors.into_inner().unwrap();
            assert_eq!(errors.len(), 2);
            for error in errors {
                let told = error.contains("different counts") && error.contains(name);
                assert!(told && error.contains("rooted.rs"), "{error}");
            }
        }
    }
}

#[test]
fn calls_that_pass_by_each_other_are_found_at_the_next_meeting() {
    type Wrong = fn(&Comm) -> Result<()>;
    let wrong: [(&str, Wrong); 3] = [
        ("different roots", |c| c.broadcast(&mut [1], c.rank())),
        ("different calls", |c| match c.rank() {
            0 => c.broadcast(&mut [1], 0),
            _ => c.reduce_value(1, Sum, 0).map(drop),
        }),
        ("different roots", |c| {
            c.broadcast(&mut [1], c.rank())?;
            c.broadcast(&mut [1], 0)
        }),
    ];
    for (text, call) in wrong {
        let errors = Mutex::new(Vec::new());
        let _ = Spmd::new(2).run(|ctx| {
            let outcome = call(ctx).and_then(|()| ctx.allreduce_value(1, Sum));
            errors.lock().unwrap().push(outcome.unwrap_err().to_string());
            Ok(())
        });
        for error in errors.into_inner().unwrap() {
            assert!(error.contains(text) && error.contains("rooted.rs"), "{error}");
        }
    }
}

#[test]
fn a_panic_in_an_operation_stops_all() {
    let op = Op::new(|a: u64, b: u64| if a + b > 1 << 20 { panic!("too much") } else { a + b });
    for count in [1, 3000] {
        for block in [Spmd::new(3), Spmd::new(3).unreachable_buffers().segment(512)] {
            let error = block.run(|ctx| {
                let mut buf = vec![1u64 << 20; count];
                ctx.reduce_in_place(&mut buf, op, 1)?;
                ctx.allreduce_value(1, Sum)
            });
            let error = error.unwrap_err().to_string();
            assert!(error.contains("too much"), "{error}");
        }
    }
}
