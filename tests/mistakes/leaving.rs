//! Ranks that are gone while others wait for them: returned early, with an error, or in a panic.

use spmd::prelude::*;

use crate::expect::mistake;

/// Every way to wait for rank 1, on the line where it stands.
type Wait = (u32, fn(&Ctx) -> Result<()>);

macro_rules! wait {
    ($wait:expr) => {
        (line!(), |ctx: &Ctx| $wait(ctx))
    };
}

#[rustfmt::skip]
const WAITS: &[Wait] = &[
    wait!(|c: &Ctx| c.barrier()),
    wait!(|c: &Ctx| c.broadcast(&mut [0], 1)),
    wait!(|c: &Ctx| c.broadcast(&mut vec![0; 50_000], 0)),
    wait!(|c: &Ctx| c.allreduce(&[1], &mut [0], Sum)),
    wait!(|c: &Ctx| c.allreduce_in_place(&mut vec![0; 50_000], Sum)),
    wait!(|c: &Ctx| c.allgather_value(1).map(drop)),
    wait!(|c: &Ctx| c.gatherv_vec(&[1], 0).and_then(|_| c.barrier())),
    wait!(|c: &Ctx| c.alltoall(&[1; 3], &mut [0; 3])),
    wait!(|c: &Ctx| c.reduce_scatter(&[1; 3], &mut [0], Sum)),
    wait!(|c: &Ctx| c.scan(&[1], &mut [0], Sum).and_then(|()| c.barrier())),
    wait!(|c: &Ctx| c.split(Some(1), 0).map(drop)),
    wait!(|c: &Ctx| c.dup().map(drop)),
    wait!(|c: &Ctx| c.cartesian(&[3], &[true]).map(drop)),
    wait!(|c: &Ctx| c.recv(&mut [0], 1, 0).map(drop)),
    wait!(|c: &Ctx| c.recv_vec::<u8>(1, ANY).map(drop)),
    wait!(|c: &Ctx| c.recv_object::<String>(1, 0).map(drop)),
    wait!(|c: &Ctx| c.probe(1, ANY).map(drop)),
    wait!(|c: &Ctx| c.ssend(&[1], 1, 0)),
    wait!(|c: &Ctx| c.send(&vec![1; 100_000], 1, 0)),
    wait!(|c: &Ctx| c.sendrecv(&[1], c.rank(), 0, &mut [0], 1, 0).map(drop)),
];

/// Ranks 0 and 2 wait for rank 1 in each way, while it does `instead`.
fn without_rank_1(instead: fn() -> Result<()>, check: impl Fn(&crate::expect::Mistake, &str)) {
    for (line, wait) in WAITS {
        let mistake = mistake(3, |ctx| if ctx.rank() == 1 { instead() } else { wait(ctx) });
        check(&mistake, &format!("{}:{line}", file!()));
    }
}

#[test]
fn a_rank_that_returns_early() {
    without_rank_1(
        || Ok(()),
        |mistake, at| {
            let texts = ["rank 1 ended its block while another rank waited for it", at];
            mistake.left(&[0, 2], 1, &texts).fine(&[1]);
        },
    );
}

#[test]
fn a_rank_that_returns_an_error() {
    without_rank_1(
        || Err("no such file".into()),
        |mistake, at| {
            let texts = ["rank 1 failed first: it returned an error: no such file", at];
            mistake.peer_failed(&[0, 2], 1, &texts).whole(|_| true, &["no such file"]);
        },
    );
}

#[test]
fn a_rank_that_panics() {
    without_rank_1(
        || panic!("index {}", 7),
        |mistake, at| {
            let texts = ["rank 1 failed first: it panicked: index 7 at ", at];
            mistake.peer_failed(&[0, 2], 1, &texts).whole(
                |error| matches!(error, Error::Panicked(panic) if panic.rank == 1),
                &["index 7"],
            );
        },
    );
}

#[test]
fn everybody_else_has_left() {
    mistake(4, |ctx| match ctx.rank() {
        2 => ctx.recv(&mut [0], ANY, ANY).map(drop), // <1>
        _ => Ok(()),
    })
    .error(&[2], |error| matches!(error, Error::Stopped(_)), &["ended its block", "<1>"]);
}

/// What a rank sent before it left is still received.
#[test]
fn a_message_from_a_rank_that_has_left() {
    for (_, place) in crate::expect::MODES {
        let sums = place(Spmd::new(3)).run(|ctx| {
            if ctx.rank() > 0 {
                ctx.send(&[ctx.rank()], 0, 0)?;
                return Ok(0usize);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            let (mut one, mut two) = ([0usize], [0usize]);
            ctx.recv(&mut one, ANY, ANY)?;
            ctx.recv(&mut two, ANY, ANY)?;
            Ok(one[0] + two[0])
        });
        assert_eq!(sums.unwrap(), [3, 0, 0]);
    }
}

#[test]
fn a_rank_that_leaves_a_large_block() {
    mistake(40, |ctx| match ctx.rank() {
        17 => Ok(()),
        _ => ctx.allreduce_value(1, Sum).map(drop), // <1>
    })
    .left(
        &Vec::from_iter((0..40).filter(|rank| *rank != 17)),
        17,
        &["rank 17 ended its block", "allreduce_value of 1 i32 with Sum at <1>"],
    );
}

#[test]
fn a_rank_that_leaves_a_communicator_of_some_ranks() {
    mistake(4, |ctx| {
        let half = ctx.split(Some(ctx.rank() as u32 % 2), 0)?.expect("every rank gives a color");
        match ctx.rank() {
            3 => Ok(()),
            _ => half.barrier(), // <1>
        }
    })
    .left(&[1], 3, &["rank 3 ended its block", "rank 1: barrier at <1>"])
    .fine(&[0, 2, 3]);
}

#[test]
fn the_first_of_two_failures_is_told() {
    mistake(3, |ctx| match ctx.rank() {
        0 => Err("first".into()),
        1 => {
            ctx.barrier().unwrap_err();
            Err("second".into())
        }
        _ => ctx.barrier(), // <1>
    })
    .peer_failed(&[2], 0, &["rank 0 failed first: it returned an error: first", "<1>"])
    .whole(|_| true, &["first"]);
}

/// The operation of rank 2 panics in the middle of a reduction of much data.
#[test]
fn an_operation_that_panics() {
    mistake(3, |ctx| {
        let mut data = vec![ctx.rank() as u64; 200_000];
        let picky = Op::new(|a: u64, b: u64| if b == 2 { panic!("two") } else { a + b });
        ctx.allreduce_in_place(&mut data, picky) // <1>
    })
    .whole(|error| matches!(error, Error::Panicked(_)), &["two"]);
}
