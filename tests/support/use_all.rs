//! Calls of every kind, on a communicator with which ranks go on when others have failed.

use spmd::Comm;
use spmd::prelude::*;

/// Makes calls of every kind, on little and on much data, and on communicators made from this one.
pub fn use_all(comm: &Comm) -> Result<()> {
    let (me, n) = (comm.rank(), comm.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    for len in [1, 1000, 20_000] {
        comm.barrier()?;
        let mut sum = vec![me as u64; len];
        comm.allreduce_in_place(&mut sum, Sum)?;
        assert_eq!(sum, vec![(n * (n - 1) / 2) as u64; len]);
        let mut from = vec![if me == n - 1 { 7u64 } else { 0 }; len];
        comm.broadcast(&mut from, n - 1)?;
        assert_eq!(from, vec![7; len]);
        let mut all = vec![0u32; len * n];
        comm.allgather(&vec![me as u32; len], &mut all)?;
        assert!((0..n).all(|rank| all[rank * len] == rank as u32));
        let mut other = vec![0; len];
        comm.sendrecv(&vec![me; len], right, 5, &mut other, left, 5)?;
        assert_eq!(other, vec![left; len]);
        let mut part = vec![0u16; len];
        comm.reduce_scatter(&vec![1u16; len * n], &mut part, Sum)?;
        assert_eq!(part, vec![n as u16; len]);
        let mut turned = vec![0u8; n * len.min(5000)];
        comm.alltoall(&vec![me as u8; n * len.min(5000)], &mut turned)?;
        assert!((0..n).all(|rank| turned[rank * len.min(5000)] == rank as u8));
        assert_eq!(comm.scan_value(1, Sum)?, me + 1);
    }
    if me > 0 {
        comm.ssend(&[me], 0, 3)?;
    } else {
        let ranks: Result<Vec<_>> =
            (1..n).map(|_| Ok(comm.recv_vec::<usize>(ANY, 3)?.0[0])).collect();
        assert_eq!(ranks?.iter().sum::<usize>(), n * (n - 1) / 2);
    }
    let half = comm.split(Some(me as u32 % 2), 0)?.expect("all give a color");
    assert_eq!(half.dup()?.allreduce_value(1, Sum)?, half.size());
    let grid = comm.cartesian(&[n], &[true])?.expect("it has room for all");
    let mut around = [0; 2];
    grid.neighbor_allgather(&[me], &mut around)?;
    assert_eq!(around, [left, right]);
    assert_eq!(comm.agree(0b11 << (me % 2))?, if n == 1 { 0b11 } else { 0b10 });
    Ok(())
}
