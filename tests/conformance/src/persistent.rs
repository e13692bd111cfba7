//! Persistent calls beside the same calls made each time, for any world to run.

use crate::prelude::*;

use crate::element::random;
use crate::grids;

/// Elements of a rank, or of a block.
const COUNTS: [usize; 4] = [0, 1, 60, 3000];

/// All of them.
pub fn all(ctx: &Ctx) -> Result<()> {
    for (turn, count) in COUNTS.into_iter().enumerate() {
        equal(ctx, turn as u64, count, turn % ctx.size())?;
        varying(ctx, turn as u64, count, turn % ctx.size())?;
        folds(ctx, turn as u64, count, turn % ctx.size())?;
    }
    for grid in grids::of(ctx)? {
        COUNTS.into_iter().try_for_each(|count| neighbors(&grid, count))?;
    }
    in_any_order(ctx)?;
    what_the_arguments_tell(ctx)?;
    while_they_go_on(ctx)?;
    gaps(ctx)
}

fn data(comm: &Comm, turn: u64, count: usize) -> Vec<f64> {
    let value = |index| (random(turn, comm.rank(), index) % 1_000_003) as f64 / 7.0;
    (0..count).map(value).collect()
}

type Pair = (Vec<f64>, Vec<f64>);

/// Makes a call several times, each with other data, beside the plain one.
fn pairs(
    comm: &Comm,
    mut call: Persistent<Pair>,
    plain: impl Fn(&[f64], &mut [f64]) -> Result<()>,
) -> Result<()> {
    for turn in 0..6 {
        let count = call.get()?.0.len();
        *call.send_mut()? = data(comm, 50 + turn, count);
        let mut expected = call.recv()?.clone();
        call.start()?;
        if turn % 2 == 0 {
            while !call.test()? {
                comm.iprobe(ANY, 99)?;
            }
        }
        plain(&data(comm, 50 + turn, count), &mut expected)?;
        call.wait()?;
        assert_eq!(*call.recv()?, expected, "turn {turn}");
    }
    call.into_buffers().map(drop)
}

/// The same in place.
fn single(
    comm: &Comm,
    mut call: Persistent<Vec<f64>>,
    plain: impl Fn(&mut [f64]) -> Result<()>,
) -> Result<()> {
    for turn in 0..6 {
        let mut expected = data(comm, 70 + turn, call.get()?.len());
        call.get_mut()?.clone_from(&expected);
        call.start()?;
        plain(&mut expected)?;
        call.wait()?;
        assert_eq!(*call.get()?, expected, "turn {turn}");
    }
    Ok(())
}

fn equal(comm: &Comm, turn: u64, count: usize, root: usize) -> Result<()> {
    let n = comm.size();
    let (mine, all, room) =
        (data(comm, turn, count), data(comm, turn, count * n), vec![0.0; count * n]);
    let gather = comm.gather_init(mine.clone(), room.clone(), root)?;
    pairs(comm, gather, |send, recv| comm.gather(send, recv, root))?;
    let allgather = comm.allgather_init(mine.clone(), room.clone())?;
    pairs(comm, allgather, |send, recv| comm.allgather(send, recv))?;
    let scatter = comm.scatter_init(all.clone(), mine.clone(), root)?;
    pairs(comm, scatter, |send, recv| comm.scatter(send, recv, root))?;
    let alltoall = comm.alltoall_init(all.clone(), room.clone())?;
    pairs(comm, alltoall, |send, recv| comm.alltoall(send, recv))?;
    single(comm, comm.alltoall_in_place_init(all.clone())?, |buf| comm.alltoall_in_place(buf))?;
    single(comm, comm.allgather_in_place_init(all)?, |buf| comm.allgather_in_place(buf))?;
    single(comm, comm.broadcast_init(mine, root)?, |buf| comm.broadcast(buf, root))?;
    let mut barrier = comm.barrier_init()?;
    for _ in 0..5 {
        barrier.start()?;
        barrier.wait()?;
    }
    barrier.start()
}

fn varying(comm: &Comm, turn: u64, count: usize, root: usize) -> Result<()> {
    let (me, n) = (comm.rank(), comm.size());
    let counts: Vec<usize> = (0..n).map(|rank| count / (rank + 1)).collect();
    let (mine, total) = (data(comm, turn, counts[me]), counts.iter().sum());
    let (all, room) = (data(comm, turn, total), vec![0.0; total]);
    let gather = comm.gatherv_init(mine.clone(), room.clone(), &counts, root)?;
    pairs(comm, gather, |send, recv| comm.gatherv(send, recv, &counts, root))?;
    let allgather = comm.allgatherv_init(mine.clone(), room, &counts)?;
    pairs(comm, allgather, |send, recv| comm.allgatherv(send, recv, &counts))?;
    let scatter = comm.scatterv_init(all.clone(), &counts, mine.clone(), root)?;
    pairs(comm, scatter, |send, recv| comm.scatterv(send, &counts, recv, root))?;
    let from_each = vec![counts[me]; n];
    let alltoall =
        comm.alltoallv_init(all.clone(), vec![0.0; counts[me] * n], &counts, &from_each)?;
    pairs(comm, alltoall, |send, recv| comm.alltoallv(send, recv, &counts, &from_each))?;
    let parts = comm.reduce_scatterv_init(all, mine, &counts, Sum)?;
    pairs(comm, parts, |send, recv| comm.reduce_scatterv(send, recv, &counts, Sum))
}

fn folds(comm: &Comm, turn: u64, count: usize, root: usize) -> Result<()> {
    let (mine, room) = (data(comm, turn, count), vec![0.0; count]);
    let all = data(comm, turn, count * comm.size());
    let allreduce = comm.allreduce_init(mine.clone(), room.clone(), Sum)?;
    pairs(comm, allreduce, |send, recv| comm.allreduce(send, recv, Sum))?;
    let reduce = comm.reduce_init(mine.clone(), room.clone(), Max, root)?;
    pairs(comm, reduce, |send, recv| comm.reduce(send, recv, Max, root))?;
    let scan = comm.scan_init(mine.clone(), room.clone(), Sum)?;
    pairs(comm, scan, |send, recv| comm.scan(send, recv, Sum))?;
    let parts = comm.reduce_scatter_init(all, room.clone(), Sum)?;
    pairs(comm, parts, |send, recv| comm.reduce_scatter(send, recv, Sum))?;
    let halves = || Op::new(|left: f64, right: f64| left * 0.5 + right).non_commutative();
    let own = comm.allreduce_in_place_init(mine.clone(), halves())?;
    single(comm, own, |buf| comm.allreduce_in_place(buf, halves()))?;
    single(comm, comm.scan_in_place_init(mine, Min)?, |buf| comm.scan_in_place(buf, Min))
}

fn neighbors(grid: &Cartesian, count: usize) -> Result<()> {
    let sides = 2 * grid.dims().len();
    let (mine, each) = (data(grid, 1, count), data(grid, 2, count * sides));
    let (room, counts) = (vec![0.5; count * sides], vec![count; sides]);
    let call = grid.neighbor_allgather_init(mine, room.clone())?;
    pairs(grid, call, |send, recv| grid.neighbor_allgather(send, recv))?;
    let call = grid.neighbor_alltoall_init(each.clone(), room.clone())?;
    pairs(grid, call, |send, recv| grid.neighbor_alltoall(send, recv))?;
    let call = grid.neighbor_alltoallv_init(each, room, &counts, &counts)?;
    pairs(grid, call, |send, recv| grid.neighbor_alltoallv(send, recv, &counts, &counts))
}

/// What can be said of the arguments is said when the call is made, of a single rank, too. Nothing
/// is done then: the buffers stay as they are.
fn what_the_arguments_tell(comm: &Comm) -> Result<()> {
    let n = comm.size();
    let (one, many, counts) = (vec![7], vec![7; n + 1], vec![1; n]);
    let line = comm.cartesian(&[n], &[true])?.ok_or("there is a place for each")?;
    let errors = [
        comm.broadcast_init(one.clone(), n).map(drop),
        comm.reduce_init(one.clone(), many.clone(), Sum, comm.rank()).map(drop),
        comm.reduce_in_place_init(one.clone(), Sum, n).map(drop),
        comm.allreduce_init(one.clone(), many.clone(), Sum).map(drop),
        comm.gather_init(one.clone(), many.clone(), comm.rank()).map(drop),
        comm.gatherv_init(one.clone(), many.clone(), &counts, comm.rank()).map(drop),
        comm.allgather_init(one.clone(), many.clone()).map(drop),
        comm.allgatherv_init(one.clone(), many.clone(), &counts).map(drop),
        comm.scatter_init(many.clone(), one.clone(), comm.rank()).map(drop),
        comm.scatterv_init(many.clone(), &counts, one.clone(), comm.rank()).map(drop),
        comm.alltoall_init(counts.clone(), many.clone()).map(drop),
        comm.alltoallv_init(counts.clone(), many.clone(), &counts, &counts).map(drop),
        comm.reduce_scatter_init(many.clone(), one.clone(), Sum).map(drop),
        comm.reduce_scatterv_init(many.clone(), one.clone(), &counts, Sum).map(drop),
        comm.scan_init(one.clone(), many.clone(), Sum).map(drop),
        comm.exscan_init(one.clone(), many.clone(), Sum).map(drop),
        line.neighbor_allgather_init(one.clone(), vec![7; 3]).map(drop),
        line.neighbor_alltoall_init(vec![7; 3], vec![7; 3]).map(drop),
        line.neighbor_alltoallv_init(one, vec![7; 2], &[1, 1], &[1, 1]).map(drop),
    ];
    for (number, made) in errors.into_iter().enumerate() {
        let error = made.expect_err("its arguments are wrong");
        let told = matches!(error, Error::RankOutOfRange(_) | Error::Length(_));
        assert!(told && error.to_string().contains("persistent.rs"), "{number}: {error}");
    }
    let call = comm.allreduce_init(vec![1], vec![7], Sum)?;
    assert_eq!(call.into_buffers()?, (vec![1], vec![7]));
    Ok(())
}

/// Ranks start their calls in different orders, and more than go on at a time otherwise.
fn in_any_order(comm: &Comm) -> Result<()> {
    let make = |number: usize| {
        let count = [1, 4000][number % 2];
        comm.allreduce_init(vec![number; count], vec![0; count], Sum)
    };
    let mut calls = (0..10).map(make).collect::<Result<Vec<_>>>()?;
    for turn in 0..4 {
        let order = |step: usize| (step * 3 + comm.rank() + turn) % 10;
        (0..10).try_for_each(|step| calls[order(step)].start())?;
        (0..10).try_for_each(|step| calls[order(9 - step)].wait())?;
        for (number, call) in calls.iter().enumerate() {
            assert!(call.recv()?.iter().all(|sum| *sum == number * comm.size()));
        }
    }
    // Some are dropped or forgotten while they go on.
    for (number, mut call) in calls.into_iter().enumerate() {
        call.start()?;
        match number % 3 {
            0 => drop(call),
            1 => std::mem::forget(call),
            _ => call.wait()?,
        }
    }
    Ok(())
}

/// What a program cannot do meanwhile.
fn while_they_go_on(comm: &Comm) -> Result<()> {
    for count in [1, 4000] {
        let mut call = comm.allreduce_init(vec![1; count], vec![0; count], Sum)?;
        call.wait()?;
        call.start()?;
        for error in [
            call.start().expect_err("it goes on"),
            call.get().expect_err("it goes on"),
            call.send_mut().map(drop).expect_err("it goes on"),
        ] {
            let text = error.to_string();
            assert!(text.contains("allreduce_init") && text.contains("persistent.rs"), "{text}");
        }
        call.wait()?;
        assert_eq!(call.recv()?[0], comm.size());
    }
    Ok(())
}

/// Buffers with gaps.
fn gaps(comm: &Comm) -> Result<()> {
    static EVENS: [u32; 7] = [1, 0, 2, 0, 3, 0, 4];
    let evens = strided(&EVENS, 4, 1, 2)?;
    let mut call = comm.allreduce_init(evens, vec![0; 4], Sum)?;
    for _ in 0..3 {
        call.start()?;
        call.wait()?;
        assert_eq!(*call.recv()?, [1, 2, 3, 4].map(|it| it * comm.size() as u32));
    }
    Ok(())
}
