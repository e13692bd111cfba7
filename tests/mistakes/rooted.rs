//! Rooted calls whose roots differ, and calls with counts that do not fit together.

use spmd::prelude::*;

use crate::expect::mistake;

#[test]
fn two_roots_of_a_broadcast() {
    mistake(2, |ctx| {
        ctx.broadcast(&mut [ctx.rank()], ctx.rank())?; // <1>
        ctx.barrier()
    })
    .mismatch(
        &[0, 1],
        &["different roots", "broadcast of 1 usize, root 0, at <1>", "root 1, at <1>"],
    );
}

#[test]
fn everybody_believes_the_left_neighbour_to_be_the_root() {
    mistake(4, |ctx| {
        let left = (ctx.rank() + 3) % 4;
        ctx.broadcast(&mut [ctx.rank()], left) // <1>
    })
    .mismatch(&[0, 1, 2, 3], &["different roots", "at <1>"]);
}

#[test]
fn two_roots_of_a_reduction() {
    mistake(3, |ctx| {
        let root = if ctx.rank() == 2 { 2 } else { 0 };
        ctx.reduce_value(1, Sum, root)?; // <1>
        ctx.barrier()
    })
    .mismatch(
        &[0, 1, 2],
        &["different roots", "rank 2: reduce_value of 1 i32 with Sum, root 2, at <1>"],
    );
}

#[test]
fn two_roots_of_large_data() {
    mistake(3, |ctx| {
        let root = usize::from(ctx.rank() == 1);
        ctx.broadcast(&mut vec![0u64; 50_000], root)?; // <1>
        ctx.barrier()
    })
    .mismatch(&[0, 1, 2], &["different roots", "rank 1: broadcast of 50000 u64, root 1, at <1>"]);
}

#[test]
fn two_roots_of_a_gather() {
    mistake(3, |ctx| {
        let root = if ctx.rank() == 0 { 1 } else { 0 };
        ctx.gather_value(ctx.rank(), root)?; // <1>
        ctx.barrier()
    })
    .mismatch(&[0, 1, 2], &["different roots", "rank 0: gather_value of 1 usize, root 1, at <1>"]);
}

#[test]
fn two_roots_of_a_scatter() {
    mistake(3, |ctx| {
        let root = if ctx.rank() == 0 { 1 } else { 0 };
        ctx.scatter(&[1, 2, 3], &mut [0], root)?; // <1>
        ctx.barrier()
    })
    .mismatch(&[0, 1, 2], &["different roots", "rank 0: scatter of 1 i32, root 1, at <1>"]);
}

#[test]
fn two_roots_over_a_tree() {
    mistake(33, |ctx| {
        let root = if ctx.rank() == 17 { 17 } else { 3 };
        ctx.broadcast(&mut [0u8; 4], root)?; // <1>
        ctx.barrier()
    })
    .mismatch(&Vec::from_iter(0..33), &["rank 17: broadcast of 4 u8, root 17, at <1>"]);
}

#[test]
fn a_gatherv_that_expects_other_counts() {
    mistake(3, |ctx| {
        let send = vec![1; ctx.rank() + 1];
        let mut recv = vec![0; if ctx.rank() == 0 { 7 } else { 0 }];
        ctx.gatherv(&send, &mut recv, &[1, 2, 4], 0)?; // <1>
        ctx.barrier()
    })
    .mismatch(
        &[0, 1, 2],
        &["different counts: rank 2 of the communicator sends 3 elements", "takes 4", "<1>"],
    );
}

#[test]
fn a_gatherv_of_large_data_that_expects_other_counts() {
    mistake(3, |ctx| {
        let send = vec![1; 30_000];
        let mut recv = vec![0; 60_001];
        ctx.gatherv(&send, &mut recv, &[30_000, 30_000, 1], 0)?; // <1>
        ctx.barrier()
    })
    .mismatch(&[0, 1, 2], &["rank 2 of the communicator sends 30000 elements", "takes 1", "<1>"]);
}

#[test]
fn an_allgatherv_of_which_one_rank_expects_other_counts() {
    mistake(3, |ctx| {
        let counts = if ctx.rank() == 1 { [1, 1, 2] } else { [1, 1, 1] };
        let mut recv = vec![0; counts.iter().sum()];
        ctx.allgatherv(&[7], &mut recv, &counts)?; // <1>
        ctx.barrier()
    })
    // Which rank finds it first, and so by its own counts or by those of another, is open.
    .mismatch(&[0, 1, 2], &["different counts: rank ", " of the communicator ", "<1>"]);
}

#[test]
fn a_scatterv_that_sends_other_counts() {
    mistake(3, |ctx| {
        let mut recv = vec![0; 2];
        ctx.scatterv(&[1, 2, 3, 4, 5], &[2, 2, 1], &mut recv, 0)?; // <1>
        ctx.barrier()
    })
    .mismatch(
        &[0, 1, 2],
        &["different counts", "sends 1 elements to rank 2, which takes 2", "<1>"],
    );
}

/// Most ranks have nothing to do with the two whose counts differ.
#[test]
fn neighbours_whose_counts_do_not_fit() {
    mistake(7, |ctx| {
        let ring = ctx.cartesian(&[7], &[true])?.expect("a place for each");
        let forwards = 1 + usize::from(ring.rank() == 1);
        let send = vec![0; 1 + forwards];
        ring.neighbor_alltoallv(&send, &mut [0; 2], &[1, forwards], &[1, 1])?; // <1>
        ctx.barrier()
    })
    .mismatch(
        &[0, 1, 2, 3, 4, 5, 6],
        &[
            "different counts: rank 1 of the communicator sends 2 elements to rank 2, which takes 1",
            "neighbor_alltoallv of i32 at <1>",
        ],
    );
}

#[test]
fn an_alltoallv_whose_counts_do_not_fit() {
    mistake(3, |ctx| {
        let send_counts = [1, 1, 1 + ctx.rank() / 2];
        let send = vec![0; send_counts.iter().sum()];
        ctx.alltoallv(&send, &mut [0; 3], &send_counts, &[1, 1, 1])?; // <1>
        ctx.barrier()
    })
    .mismatch(
        &[0, 1, 2],
        &[
            "different counts: rank 2 of the communicator sends 2 elements to rank 2, which takes 1",
            "alltoallv of i32 at <1>",
        ],
    );
}

#[test]
fn a_reduce_scatterv_whose_counts_differ() {
    mistake(3, |ctx| {
        let counts = if ctx.rank() == 1 { [1, 2, 3] } else { [2, 2, 2] };
        let mut recv = vec![0; counts[ctx.rank()]];
        ctx.reduce_scatterv(&[1; 6], &mut recv, &counts, Sum)?; // <1>
        ctx.barrier()
    })
    .mismatch(
        &[0, 1, 2],
        &["different counts: rank ", " gives other counts than rank ", "reduce_scatterv", "<1>"],
    );
}

/// The data would be the same, but one rank hands out as many elements as another takes in bytes.
#[test]
fn a_rooted_call_with_another_type() {
    mistake(2, |ctx| {
        if ctx.rank() == 0 {
            ctx.gather(&[1u8, 2, 3, 4], &mut [0; 8], 0)?; // <1>
        } else {
            ctx.gather(&[1u32], &mut [], 0)?; // <2>
        }
        ctx.barrier()
    })
    .mismatch(&[0, 1], &["rank 0: gather of 4 u8, root 0, at <1>", "rank 1: gather of 1 u32"]);
}
