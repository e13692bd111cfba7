//! Ranks whose collective calls differ: in kind, element type, operation, count or order.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use spmd::Fault;
use spmd::prelude::*;

use crate::expect::{MODES, mistake};

#[test]
fn another_call() {
    mistake(3, |ctx| match ctx.rank() {
        1 => ctx.allreduce_value(1, Sum).map(drop), // <1>
        _ => ctx.barrier(),                         // <2>
    })
    .mismatch(
        &[0, 1, 2],
        &["different calls", "rank 1: allreduce_value of 1 i32 with Sum at <1>", "barrier at <2>"],
    );
}

#[test]
fn another_element_type() {
    mistake(3, |ctx| match ctx.rank() {
        1 => ctx.allreduce_value(1, Sum).map(drop),   // <1>
        _ => ctx.allreduce_value(1.5, Sum).map(drop), // <2>
    })
    .mismatch(
        &[0, 1, 2],
        &["different element types", "of 1 i32 with Sum at <1>", "of 1 f64 with Sum at <2>"],
    );
}

#[test]
fn another_element_type_of_the_same_size() {
    mistake(2, |ctx| match ctx.rank() {
        1 => ctx.broadcast(&mut [1u32], 1), // <1>
        _ => ctx.broadcast(&mut [1f32], 1), // <2>
    })
    .mismatch(&[0], &["rank 1: broadcast of 1 u32, root 1, at <1>", "rank 0: broadcast of 1 f32"]);
}

#[test]
fn another_operation() {
    mistake(2, |ctx| match ctx.rank() {
        1 => ctx.allreduce_value(1, Sum).map(drop), // <1>
        _ => ctx.allreduce_value(1, Max).map(drop), // <2>
    })
    .mismatch(
        &[0, 1],
        &["operations", "rank 1: allreduce_value of 1 i32 with Sum at <1>", "with Max at <2>"],
    );
}

#[test]
fn another_operation_in_a_scan() {
    mistake(4, |ctx| {
        let mut sums = [0; 2];
        match ctx.rank() {
            3 => ctx.scan(&[1, 2], &mut sums, Prod)?, // <1>
            _ => ctx.scan(&[1, 2], &mut sums, Sum)?,  // <2>
        }
        ctx.barrier()
    })
    .mismatch(&[0, 1, 2, 3], &["rank 3: scan of 2 i32 with Prod at <1>", "with Sum at <2>"]);
}

#[test]
fn another_count() {
    mistake(2, |ctx| {
        let mut buf = vec![0; 3 + ctx.rank()];
        ctx.allreduce_in_place(&mut buf, Sum) // <1>
    })
    .mismatch(
        &[0, 1],
        &[
            "different counts",
            "rank 0: allreduce_in_place of 3 i32",
            "rank 1: allreduce_in_place of 4 i32",
            "<1>",
        ],
    );
}

/// One rank takes the algorithm for small data and the other that for large.
#[test]
fn a_small_count_against_a_large_one() {
    for (few, many) in [(3, 100_000), (0, 50_000), (1_000_000, 1_000_001)] {
        mistake(3, |ctx| {
            let mut buf = vec![0f64; if ctx.rank() == 2 { few } else { many }];
            ctx.allreduce_in_place(&mut buf, Sum) // <1>
        })
        .mismatch(
            &[0, 1, 2],
            &["different counts", &format!("rank 2: allreduce_in_place of {few} f64")],
        );
    }
}

#[test]
fn another_count_in_an_alltoall() {
    mistake(4, |ctx| {
        let send = vec![0u8; if ctx.rank() == 0 { 8 } else { 4 }];
        let mut recv = send.clone();
        ctx.alltoall(&send, &mut recv) // <1>
    })
    .mismatch(&[0, 1, 2, 3], &["different counts", "rank 0: alltoall of 8 u8 at <1>"]);
}

#[test]
fn another_order() {
    mistake(2, |ctx| {
        if ctx.rank() == 0 {
            ctx.barrier()?; // <1>
            ctx.allreduce_value(1, Sum)?;
        } else {
            ctx.allreduce_value(1, Sum)?; // <2>
            ctx.barrier()?;
        }
        Ok(())
    })
    .mismatch(
        &[0, 1],
        &["rank 0: barrier at <1>", "rank 1: allreduce_value of 1 i32 with Sum at <2>"],
    );
}

#[test]
fn one_call_too_many() {
    mistake(3, |ctx| {
        let rounds = if ctx.rank() == 2 { 6 } else { 5 };
        for _ in 0..rounds {
            ctx.allreduce_value(1, Sum)?; // <1>
        }
        ctx.barrier() // <2>
    })
    .mismatch(&[0, 1, 2], &["rank 2: allreduce_value of 1 i32 with Sum at <1>", "barrier at <2>"]);
}

#[test]
fn a_loop_that_one_rank_leaves_too_early() {
    mistake(4, |ctx| {
        let mut error = 8.0 + ctx.rank() as f64;
        while error > 1.0 {
            ctx.barrier()?; // <1>
            error /= 2.0;
        }
        ctx.allgather_value(error).map(drop) // <2>
    })
    .mismatch(&[0, 1, 2, 3], &["rank 0: allgather_value of 1 f64 at <2>", "barrier at <1>"]);
}

#[test]
fn on_a_communicator_of_some_ranks() {
    mistake(5, |ctx| {
        let half = ctx.split(Some(ctx.rank() as u32 % 2), 0)?.expect("every rank gives a color");
        match ctx.rank() {
            2 => half.barrier()?,                         // <1>
            _ => half.allreduce_value(1, Sum).map(drop)?, // <2>
        }
        ctx.barrier()
    })
    .mismatch(&[0, 2, 4], &["rank 2: barrier at <1>", "allreduce_value of 1 i32 with Sum at <2>"]);
}

#[test]
fn another_shape_of_a_grid() {
    mistake(4, |ctx| {
        let dims: &[usize] = if ctx.rank() == 3 { &[4, 1] } else { &[2, 2] };
        let grid = ctx.cartesian(dims, &[false, true])?; // <1>
        drop(grid);
        ctx.barrier()
    })
    .mismatch(
        &[0, 1, 2, 3],
        &[
            "different grids: rank 3 of the communicator makes another one than rank 0",
            "cartesian",
            "<1>",
        ],
    );
}

#[test]
fn another_call_in_a_large_block() {
    mistake(40, |ctx| match ctx.rank() {
        21 => ctx.allreduce_value(1, Sum).map(drop), // <1>
        _ => ctx.barrier(),                          // <2>
    })
    .mismatch(
        &Vec::from_iter(0..40),
        &["rank 21: allreduce_value of 1 i32 with Sum at <1>", "<2>"],
    );
}

/// Neither call makes its rank wait: they pass each other, and the end of the block shows it.
#[test]
fn calls_in_which_nobody_waits() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.broadcast(&mut [1], 0),       // <1>
        _ => ctx.gather_value(1, 0).map(drop), // <2>
    })
    .whole(
        |error| matches!(error.fault(), Some(Fault::Mismatch { .. })),
        &[
            "rank 0: broadcast of 1 i32, root 0, at <1>",
            "rank 1: gather_value of 1 i32, root 0, at <2>",
        ],
    );
}

#[test]
fn a_call_that_one_rank_does_not_make() {
    mistake(3, |ctx| match ctx.rank() {
        0 => ctx.broadcast(&mut [1], 0), // <1>
        _ => Ok(()),
    })
    .whole(
        |error| matches!(error.fault(), Some(Fault::Mismatch { .. })),
        &["rank 0: broadcast of 1 i32, root 0, at <1>"],
    );
}

/// A collective with small data, and the line on which it stands here.
type Call = (u32, fn(&Ctx) -> Result<()>);

macro_rules! call {
    ($call:expr) => {
        (line!(), |ctx: &Ctx| $call(ctx))
    };
}

#[rustfmt::skip]
const CALLS: &[Call] = &[
    call!(|c: &Ctx| c.barrier()),
    call!(|c: &Ctx| c.broadcast(&mut [1, 2], 0)),
    call!(|c: &Ctx| c.reduce(&[1, 2], &mut [0, 0], Sum, 0)),
    call!(|c: &Ctx| c.allreduce(&[1, 2], &mut [0, 0], Sum)),
    call!(|c: &Ctx| c.gather(&[1], &mut vec![0; c.size()], 0)),
    call!(|c: &Ctx| c.allgather(&[1], &mut vec![0; c.size()])),
    call!(|c: &Ctx| c.scatter(&vec![1; c.size()], &mut [0], 0)),
    call!(|c: &Ctx| c.alltoall(&vec![1; c.size()], &mut vec![0; c.size()])),
    call!(|c: &Ctx| c.reduce_scatter(&vec![1; c.size()], &mut [0], Sum)),
    call!(|c: &Ctx| c.scan(&[1, 2], &mut [0, 0], Sum)),
    call!(|c: &Ctx| c.exscan(&[1, 2], &mut [0, 0], Sum)),
    call!(|c: &Ctx| c.gatherv(&[1], &mut vec![0; c.size()], &vec![1; c.size()], 0)),
    call!(|c: &Ctx| c.allgatherv(&[1], &mut vec![0; c.size()], &vec![1; c.size()])),
    call!(|c: &Ctx| c.scatterv(&vec![1; c.size()], &vec![1; c.size()], &mut [0], 0)),
    call!(|c: &Ctx| { let v = vec![1; c.size()]; c.alltoallv(&v, &mut v.clone(), &[1].repeat(v.len()), &[1].repeat(v.len())) }),
    call!(|c: &Ctx| c.reduce_scatterv(&vec![1; c.size()], &mut [0], &vec![1; c.size()], Sum)),
    call!(|c: &Ctx| c.gatherv_vec(&[1, 2], 0).map(drop)),
    call!(|c: &Ctx| c.allgatherv_vec(&[1, 2]).map(drop)),
    call!(|c: &Ctx| c.scatterv_vec(&vec![1; c.size()], &vec![1; c.size()], 0).map(drop)),
    call!(|c: &Ctx| c.broadcast_object(Some(&1), 0).map(drop)),
    call!(|c: &Ctx| c.gather_object(&1, 0).map(drop)),
    call!(|c: &Ctx| c.allgather_object(&1).map(drop)),
    call!(|c: &Ctx| c.alltoall_object(&vec![1; c.size()]).map(drop)),
    call!(|c: &Ctx| c.scatter_object(Some(&vec![1; c.size()]), 0).map(drop)),
    call!(|c: &Ctx| c.split(Some(0), 0).map(drop)),
    call!(|c: &Ctx| c.dup().map(drop)),
    call!(|c: &Ctx| c.cartesian(&[c.size()], &[true]).map(drop)),
];

/// Ranks that make `usual`, but for one that makes `other`; then all make a barrier, as not every
/// collective makes every rank wait.
fn collide(n: usize, odd: usize, usual: &Call, other: &Call) {
    for (mode, place) in MODES {
        let errors = Mutex::new(Vec::new());
        let start = Instant::now();
        let whole = place(Spmd::new(n)).run(|ctx| {
            let call = if ctx.rank() == odd { other } else { usual };
            let outcome = call.1(ctx).and_then(|()| ctx.barrier());
            if let Err(error) = &outcome {
                let mismatch = matches!(error.fault(), Some(Fault::Mismatch { .. }));
                errors.lock().unwrap().push((mismatch, error.to_string()));
            }
            outcome
        });
        let case = format!("{mode}, {n} ranks, lines {} and {}", usual.0, other.0);
        assert!(start.elapsed() < Duration::from_secs(2), "{case}: {:?}", start.elapsed());
        assert!(whole.is_err(), "{case}");
        let errors = errors.into_inner().unwrap();
        assert_eq!(errors.len(), n, "{case}: {errors:?}");
        for (mismatch, error) in errors {
            assert!(mismatch, "{case}: {error}");
            assert!(error.contains(&format!("rank {odd}: ")), "{case}: {error}");
            for line in [usual.0, other.0] {
                assert!(error.contains(&format!("{}:{line}", file!())), "{case}: {error}");
            }
        }
    }
}

#[test]
fn every_collective_against_another_one() {
    for (index, usual) in CALLS.iter().enumerate() {
        let other = &CALLS[(index + 1) % CALLS.len()];
        collide(3, 1, usual, other);
        collide(3, 0, usual, other);
    }
}

#[test]
fn every_collective_against_a_barrier_over_trees() {
    for call in &CALLS[1..] {
        collide(20, 11, call, &CALLS[0]);
        collide(20, 0, &CALLS[0], call);
    }
}

#[test]
fn objects_of_two_types() {
    let calls: [fn(&Ctx) -> Result<()>; 4] = [
        |ctx| match ctx.rank() {
            0 => ctx.broadcast_object(Some(&7u32), 0).map(drop),
            _ => ctx.broadcast_object::<i32>(None, 0).map(drop),
        },
        |ctx| match ctx.rank() {
            0 => ctx.gather_object(&7u32, 0).map(drop),
            _ => ctx.gather_object(&7i32, 0).map(drop),
        },
        |ctx| match ctx.rank() {
            0 => ctx.allgather_object(&7u32).map(drop),
            _ => ctx.allgather_object(&7i32).map(drop),
        },
        |ctx| match ctx.rank() {
            0 => ctx.scatter_object(Some(&[7u32, 8][..]), 0).map(drop),
            _ => ctx.scatter_object::<i32>(None, 0).map(drop),
        },
    ];
    for call in calls {
        mistake(2, |ctx| {
            call(ctx)?;
            ctx.barrier()
        })
        .mismatch(&[0, 1], &["_object of u32", "_object of i32"]);
    }
}

#[test]
fn two_closures() {
    mistake(2, |ctx| {
        let (sum, product) = (Op::new(|a: u32, b| a + b), Op::new(|a: u32, b| a * b));
        match ctx.rank() {
            0 => ctx.allreduce_value(3, sum)?,     // <1>
            _ => ctx.allreduce_value(3, product)?, // <2>
        };
        Ok(())
    })
    .mismatch(
        &[0, 1],
        &[
            "different element types, operations",
            "allreduce_value of 1 u32 with user operation",
            "at <1>",
            "at <2>",
        ],
    );
}

#[test]
fn two_names() {
    mistake(2, |ctx| {
        let name = if ctx.rank() == 0 { "longest" } else { "shortest" };
        ctx.allreduce_value(3, Op::new(|a: u32, b| a + b).named(name)).map(drop) // <1>
    })
    .mismatch(
        &[0, 1],
        &["rank 0: allreduce_value of 1 u32 with longest at <1>", "with shortest at <1>"],
    );
}

#[test]
fn an_operation_that_commutes_on_one_rank_alone() {
    mistake(2, |ctx| {
        let op = |commutes| {
            let op = Op::new(|a: u32, b| a.max(b));
            if commutes { op } else { op.non_commutative() }
        };
        ctx.reduce_value(3, op(ctx.rank() == 0), 0)?; // <1>
        ctx.barrier()
    })
    .mismatch(
        &[0, 1],
        &["rank 0: reduce_value of 1 u32 with user", "rank 1: reduce_value of 1 u32 with non-comm"],
    );
}

/// An operation that has the name of another one.
struct Impostor;

impl Operation<f64> for Impostor {
    const NAME: &'static str = "Sum";

    fn combine(&self, left: f64, _: f64) -> f64 {
        left
    }
}

#[test]
fn an_operation_with_the_name_of_another() {
    mistake(2, |ctx| {
        match ctx.rank() {
            0 => ctx.allreduce_value(3.0, Sum)?,
            _ => ctx.allreduce_value(3.0, Impostor)?,
        };
        Ok(())
    })
    .mismatch(&[0, 1], &["different element types, operations"]);
}
