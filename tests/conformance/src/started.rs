//! Every collective as a request, owned and in a scope, beside the same call that is not started.

use crate::prelude::*;

use crate::element::random;

/// Elements of a rank, or of a block.
const COUNTS: [usize; 5] = [0, 1, 5, 700, 5000];

/// All collectives, of each count.
pub fn all(ctx: &Ctx) -> Result<()> {
    for (turn, count) in COUNTS.into_iter().enumerate() {
        for root in [0, ctx.size() - 1] {
            equal(ctx, turn as u64, count, root)?;
            varying(ctx, turn as u64, count, root)?;
            folds(ctx, turn as u64, count, root)?;
        }
    }
    Ok(())
}

fn data(comm: &Comm, turn: u64, count: usize) -> Vec<f64> {
    // No NaN, which is not equal to itself.
    let value = |index| (random(turn, comm.rank(), index) % 1_000_003) as f64 / 7.0;
    (0..count).map(value).collect()
}

/// What a call gives that is not started.
fn plain<R>(mut room: R, call: impl FnOnce(&mut R) -> Result<()>) -> Result<R> {
    call(&mut room).map(|()| room)
}

/// Blocks of one length.
fn equal(comm: &Comm, turn: u64, count: usize, root: usize) -> Result<()> {
    let (n, mine) = (comm.size(), data(comm, turn, count));
    let (all, room) = (data(comm, turn + 100, count * n), vec![0.0; count * n]);
    let barrier = comm.barrier_start()?;
    let broadcast = comm.broadcast_start(mine.clone(), root)?;
    let gather = comm.gather_start(mine.clone(), room.clone(), root)?;
    let allgather = comm.allgather_start(mine.clone(), room.clone())?;
    let scatter = comm.scatter_start(all.clone(), vec![0.0; count], root)?;
    let alltoall = comm.alltoall_start(all.clone(), room.clone())?;
    let in_place = comm.alltoall_in_place_start(all.clone())?;
    let own = comm.allgather_in_place_start(all.clone())?;
    assert_eq!(broadcast.wait()?, plain(mine.clone(), |buf| comm.broadcast(buf, root))?);
    let gathered = plain(room.clone(), |room| comm.gather(&mine, room, root))?;
    assert_eq!(gather.wait()?, (mine.clone(), gathered));
    let gathered = plain(room.clone(), |room| comm.allgather(&mine, room))?;
    assert_eq!(allgather.wait()?, (mine.clone(), gathered));
    let part = plain(vec![0.0; count], |part| comm.scatter(&all, part, root))?;
    assert_eq!(scatter.wait()?, (all.clone(), part));
    let exchanged = plain(room.clone(), |room| comm.alltoall(&all, room))?;
    assert_eq!(alltoall.wait()?, (all.clone(), exchanged.clone()));
    assert_eq!(in_place.wait()?, exchanged);
    assert_eq!(own.wait()?, plain(all.clone(), |buf| comm.allgather_in_place(buf))?);
    barrier.wait()?;
    let (mut told, mut gathered, mut parts) = (mine.clone(), room.clone(), vec![0.0; count]);
    let mut exchanged = room.clone();
    comm.requests(|requests| {
        requests.barrier()?;
        requests.broadcast(&mut told, root)?;
        requests.allgather(&mine, &mut gathered)?;
        requests.scatter(&all, &mut parts, root)?;
        requests.alltoall(&all, &mut exchanged)?;
        requests.wait_all()
    })?;
    assert_eq!(told, plain(mine.clone(), |buf| comm.broadcast(buf, root))?);
    assert_eq!(gathered, plain(room.clone(), |room| comm.allgather(&mine, room))?);
    assert_eq!(parts, plain(vec![0.0; count], |part| comm.scatter(&all, part, root))?);
    assert_eq!(exchanged, plain(room, |room| comm.alltoall(&all, room))?);
    Ok(())
}

/// Blocks of different lengths.
fn varying(comm: &Comm, turn: u64, count: usize, root: usize) -> Result<()> {
    let (me, n) = (comm.rank(), comm.size());
    let counts: Vec<usize> = (0..n).map(|rank| count / (rank + 1)).collect();
    let (mine, total) = (data(comm, turn, counts[me]), counts.iter().sum());
    let (all, room) = (data(comm, turn + 100, total), vec![0.0; total]);
    let part = vec![0.0; counts[me]];
    let gather = comm.gatherv_start(mine.clone(), room.clone(), &counts, root)?;
    let allgather = comm.allgatherv_start(mine.clone(), room.clone(), &counts)?;
    let scatter = comm.scatterv_start(all.clone(), &counts, part.clone(), root)?;
    let (own, into) = (vec![counts[me]; n], vec![0.0; n * counts[me]]);
    let alltoall = comm.alltoallv_start(all.clone(), into.clone(), &counts, &own)?;
    let fold = comm.reduce_scatterv_start(all.clone(), part.clone(), &counts, Sum)?;
    let folded = plain(part.clone(), |part| comm.reduce_scatterv(&all, part, &counts, Sum))?;
    assert_eq!(fold.wait()?, (all.clone(), folded));
    let exchanged = plain(into, |into| comm.alltoallv(&all, into, &counts, &own))?;
    assert_eq!(alltoall.wait()?, (all.clone(), exchanged));
    let given = plain(part, |part| comm.scatterv(&all, &counts, part, root))?;
    assert_eq!(scatter.wait()?, (all.clone(), given));
    let gathered = plain(room.clone(), |room| comm.allgatherv(&mine, room, &counts))?;
    assert_eq!(allgather.wait()?, (mine.clone(), gathered));
    let gathered = plain(room, |room| comm.gatherv(&mine, room, &counts, root))?;
    assert_eq!(gather.wait()?, (mine, gathered));
    Ok(())
}

/// Reductions: the same to the last bit.
fn folds(comm: &Comm, turn: u64, count: usize, root: usize) -> Result<()> {
    let (n, mine) = (comm.size(), data(comm, turn, count));
    let (all, room) = (data(comm, turn + 100, count * n), vec![0.0; count]);
    let reduce = comm.reduce_start(mine.clone(), room.clone(), Sum, root)?;
    let allreduce = comm.allreduce_start(mine.clone(), room.clone(), Sum)?;
    let scatter = comm.reduce_scatter_start(all.clone(), room.clone(), Sum)?;
    let scan = comm.scan_start(mine.clone(), room.clone(), Sum)?;
    let exscan = comm.exscan_start(mine.clone(), room.clone(), Sum)?;
    let in_place = [
        comm.reduce_in_place_start(mine.clone(), Sum, root)?,
        comm.allreduce_in_place_start(mine.clone(), Sum)?,
        comm.scan_in_place_start(mine.clone(), Sum)?,
    ];
    let scattered = comm.reduce_scatter_in_place_start(all.clone(), Sum)?;
    let expected = [
        plain(mine.clone(), |buf| comm.reduce_in_place(buf, Sum, root))?,
        plain(mine.clone(), |buf| comm.allreduce_in_place(buf, Sum))?,
        plain(mine.clone(), |buf| comm.scan_in_place(buf, Sum))?,
    ];
    assert_eq!(wait_all(in_place)?, expected);
    let own = plain(all.clone(), |buf| comm.reduce_scatter_in_place(buf, Sum))?;
    assert_eq!(scattered.wait()?[..count], own[..count]);
    let sum = plain(room.clone(), |room| comm.reduce(&mine, room, Sum, root))?;
    assert_eq!(reduce.wait()?, (mine.clone(), sum));
    let sum = plain(room.clone(), |room| comm.allreduce(&mine, room, Sum))?;
    assert_eq!(allreduce.wait()?, (mine.clone(), sum));
    let sum = plain(room.clone(), |room| comm.reduce_scatter(&all, room, Sum))?;
    assert_eq!(scatter.wait()?, (all.clone(), sum));
    let sum = plain(room.clone(), |room| comm.scan(&mine, room, Sum))?;
    assert_eq!(scan.wait()?, (mine.clone(), sum));
    let sum = plain(room.clone(), |room| comm.exscan(&mine, room, Sum))?;
    assert_eq!(exscan.wait()?, (mine.clone(), sum));
    let (mut one, mut other) = (room.clone(), room);
    comm.requests(|requests| {
        let first = requests.allreduce(&mine, &mut one, Sum)?;
        requests.reduce(&mine, &mut other, Max, root)?;
        // What it has borrowed can be used in the scope.
        let (_, sums) = first.wait()?;
        assert_eq!(*sums, plain(vec![0.0; count], |room| comm.allreduce(&mine, room, Sum))?);
        Ok(())
    })
}
