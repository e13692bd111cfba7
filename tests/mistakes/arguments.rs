//! Arguments that no call can work with: an error on the rank that gives them, before a byte
//! moves, and the others are stopped by it.

use spmd::prelude::*;

use crate::expect::mistake;

fn out_of_range(error: &Error) -> bool {
    matches!(error, Error::RankOutOfRange(_))
}

fn length(error: &Error) -> bool {
    matches!(error, Error::Length(_))
}

fn argument(error: &Error) -> bool {
    matches!(error, Error::Argument(_))
}

/// A wrong call, and a part of its error's text.
type Bad = (fn(&Error) -> bool, &'static str, u32, fn(&Ctx) -> Result<()>);

macro_rules! bad {
    ($fits:expr, $text:literal, $call:expr) => {
        ($fits, $text, line!(), |ctx: &Ctx| $call(ctx))
    };
}

#[rustfmt::skip]
const BAD: &[Bad] = &[
    bad!(out_of_range, "destination 3 is outside the communicator, whose ranks are 0 to 2", |c: &Ctx| c.send(&[1], 3, 0)),
    bad!(out_of_range, "destination 18446744073709551615", |c: &Ctx| c.ssend(&[1], usize::MAX, 0)),
    bad!(out_of_range, "source 3 is outside", |c: &Ctx| c.recv(&mut [0], 3, 0).map(drop)),
    bad!(out_of_range, "source 99", |c: &Ctx| c.recv_vec::<u8>(99, ANY).map(drop)),
    bad!(out_of_range, "source 3", |c: &Ctx| c.probe(3, 0).map(drop)),
    bad!(out_of_range, "source 3", |c: &Ctx| c.iprobe(3, 0).map(drop)),
    bad!(out_of_range, "destination 4", |c: &Ctx| c.sendrecv(&[1], 4, 0, &mut [0], 0, 0).map(drop)),
    bad!(out_of_range, "destination 3", |c: &Ctx| c.send_object(&1, 3, 0)),
    bad!(out_of_range, "source 3", |c: &Ctx| c.recv_object::<u8>(3, 0).map(drop)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.broadcast(&mut [0], 3)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.broadcast_value(Some(1), 3).map(drop)),
    bad!(out_of_range, "root 7", |c: &Ctx| c.reduce(&[1], &mut [0], Sum, 7)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.reduce_in_place(&mut [0], Sum, 3)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.gather(&[1], &mut [0; 3], 3)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.gatherv(&[1], &mut [0; 3], &[1; 3], 3)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.gatherv_vec(&[1], 3).map(drop)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.scatter(&[1; 3], &mut [0], 3)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.scatterv(&[1; 3], &[1; 3], &mut [0], 3)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.scatterv_vec(&[1; 3], &[1; 3], 3).map(drop)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.broadcast_object(Some(&1), 3).map(drop)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.gather_object(&1, 3).map(drop)),
    bad!(out_of_range, "root 3", |c: &Ctx| c.scatter_object(Some(&[1; 3]), 3).map(drop)),
    bad!(length, "the receive buffer holds 3 elements where 2 are needed", |c: &Ctx| c.allreduce(&[1; 2], &mut [0; 3], Sum)),
    bad!(length, "the receive buffer holds 0 elements where 1 are needed", |c: &Ctx| c.reduce(&[1], &mut [], Sum, 1)),
    bad!(length, "the receive buffer holds 5 elements where 6 are needed", |c: &Ctx| c.gather(&[1; 2], &mut [0; 5], 1)),
    bad!(length, "the receive buffer holds 7 elements where 6 are needed", |c: &Ctx| c.allgather(&[1; 2], &mut [0; 7])),
    bad!(length, "where 9 are needed", |c: &Ctx| c.allgather_in_place(&mut [0; 7])),
    bad!(length, "the send buffer holds 5 elements", |c: &Ctx| c.scatter(&[1; 5], &mut [0; 2], 1)),
    bad!(length, "the send buffer holds 4 elements where 6 are needed", |c: &Ctx| c.alltoall(&[1; 4], &mut [0; 4])),
    bad!(length, "the receive buffer holds 4 elements where 3 are needed", |c: &Ctx| c.alltoall(&[1; 3], &mut [0; 4])),
    bad!(length, "5 elements", |c: &Ctx| c.alltoall_in_place(&mut [0; 5])),
    bad!(length, "3 elements", |c: &Ctx| c.reduce_scatter(&[1; 3], &mut [0; 2], Sum)),
    bad!(length, "4 elements", |c: &Ctx| c.reduce_scatter_in_place(&mut [1; 4], Sum)),
    bad!(length, "the receive buffer holds 1 elements where 2 are needed", |c: &Ctx| c.scan(&[1; 2], &mut [0], Sum)),
    bad!(length, "the receive buffer holds 3 elements where 2 are needed", |c: &Ctx| c.exscan(&[1; 2], &mut [0; 3], Sum)),
    bad!(length, "the list of counts holds 2 elements where 3 are needed", |c: &Ctx| c.gatherv(&[1], &mut [0; 2], &[1; 2], 1)),
    bad!(length, "the receive buffer holds 3 elements where 4 are needed", |c: &Ctx| c.gatherv(&[1], &mut [0; 3], &[1, 1, 2], 1)),
    bad!(length, "the send buffer holds 2 elements where 1 are needed", |c: &Ctx| c.gatherv(&[1; 2], &mut [0; 3], &[1; 3], 1)),
    bad!(length, "the list of counts holds 4 elements", |c: &Ctx| c.allgatherv(&[1], &mut [0; 4], &[1; 4])),
    bad!(length, "the send buffer holds 2 elements where 1 are needed", |c: &Ctx| c.allgatherv(&[1; 2], &mut [0; 3], &[1; 3])),
    bad!(length, "the send buffer holds 3 elements where 4 are needed", |c: &Ctx| c.scatterv(&[1; 3], &[1, 1, 2], &mut [0], 1)),
    bad!(length, "the receive buffer holds 2 elements where 1 are needed", |c: &Ctx| c.scatterv(&[1; 3], &[1; 3], &mut [0; 2], 1)),
    bad!(length, "the list of counts holds 1 elements", |c: &Ctx| c.alltoallv(&[1], &mut [0; 3], &[1], &[1; 3])),
    bad!(length, "the receive buffer holds 2 elements where 3 are needed", |c: &Ctx| c.alltoallv(&[1; 3], &mut [0; 2], &[1; 3], &[1; 3])),
    bad!(length, "the list of counts holds 0 elements", |c: &Ctx| c.alltoallv_vec(&[1], &[]).map(drop)),
    bad!(length, "the receive buffer holds 2 elements where 1 are needed", |c: &Ctx| c.reduce_scatterv(&[1; 3], &mut [0; 2], &[1; 3], Sum)),
    bad!(length, "the list of values holds 2 elements where 3 are needed", |c: &Ctx| c.scatter_object(Some(&[1; 2]), 1).map(drop)),
    bad!(length, "the list of values holds 4 elements where 3 are needed", |c: &Ctx| c.alltoall_object(&[1; 4]).map(drop)),
    bad!(argument, "the sum of the counts overflows", |c: &Ctx| c.allgatherv(&[1], &mut [0; 3], &[usize::MAX, 2, 3])),
    bad!(argument, "the root must give a value", |c: &Ctx| c.broadcast_value(None::<u8>, 1).map(drop)),
    bad!(argument, "the root must give a value", |c: &Ctx| c.broadcast_object(None::<&u8>, 1).map(drop)),
    bad!(argument, "the root must give a value", |c: &Ctx| c.scatter_object(None::<&[u8]>, 1).map(drop)),
];

#[test]
fn every_argument_is_checked() {
    for (fits, text, line, call) in BAD {
        let at = format!("{}:{line}", file!());
        mistake(3, |ctx| if ctx.rank() == 1 { call(ctx) } else { ctx.barrier() })
            .error(&[1], fits, &[text, &at])
            .peer_failed(&[0, 2], 1, &[text]);
    }
}

#[test]
fn grids_that_do_not_fit() {
    let wrong: [(&[usize], &[bool]); 3] =
        [(&[2, 2], &[false; 2]), (&[0, 2], &[false; 2]), (&[3], &[])];
    for (dims, periodic) in wrong {
        mistake(3, |ctx| ctx.cartesian(dims, periodic).map(drop)) // <1>
            .error(&[0, 1, 2], |_| true, &["cartesian", "<1>"]);
    }
}

#[test]
fn a_block_without_ranks() {
    let texts = [
        spmd(0, |_| Ok(())).unwrap_err().to_string(),
        Spmd::new(0).virtual_ranks().run(|_| Ok(())).unwrap_err().to_string(),
        Spmd::new(0).run_with(Vec::<u8>::new(), |_, _| Ok(())).unwrap_err().to_string(),
    ];
    assert!(
        texts.iter().all(|text| text.ends_with("a block needs at least one rank")),
        "{texts:?}"
    );
}

#[test]
fn a_block_with_too_few_shares() {
    let error = Spmd::new(3).run_with(vec![1, 2], |_, _| Ok(())).unwrap_err();
    assert!(error.to_string().ends_with(": 2 shares were given for 3 ranks"), "{error}");
}

#[test]
fn a_block_too_large_for_the_machine() {
    let error = Spmd::new(1 << 40).virtual_ranks().run(|_| Ok(()));
    assert!(error.is_err());
}

#[test]
fn code_outside_a_rank() {
    let error = spmd::with_current(|comm| comm.barrier()).unwrap_err();
    assert!(error.to_string().contains("no rank runs on this thread"), "{error}");
}

/// Calls without data are calls: nothing is written, and everybody meets.
#[test]
fn empty_buffers() {
    let program = |ctx: &Ctx| {
        let mut nothing: [u64; 0] = [];
        ctx.broadcast(&mut nothing, 1)?;
        ctx.allreduce(&[0f32; 0], &mut [], Sum)?;
        ctx.reduce(&[0u8; 0], &mut [], Max, 0)?;
        ctx.gather(&[0i8; 0], &mut [], 2)?;
        ctx.allgather(&[0u128; 0], &mut [])?;
        ctx.scatter(&[0u16; 0], &mut [], 0)?;
        ctx.alltoall(&nothing, &mut [])?;
        ctx.reduce_scatter(&nothing, &mut [], Sum)?;
        ctx.scan(&nothing, &mut [], Sum)?;
        ctx.exscan(&nothing, &mut [], Sum)?;
        ctx.gatherv(&nothing, &mut [], &[0; 3], 0)?;
        ctx.allgatherv(&nothing, &mut [], &[0; 3])?;
        ctx.scatterv(&nothing, &[0; 3], &mut [], 0)?;
        ctx.alltoallv(&nothing, &mut [], &[0; 3], &[0; 3])?;
        ctx.reduce_scatterv(&nothing, &mut [], &[0; 3], Sum)?;
        let status = ctx.sendrecv(&nothing, (ctx.rank() + 1) % 3, 0, &mut [0u64; 2], ANY, ANY)?;
        assert!(status.is_empty());
        ctx.barrier()
    };
    for (_, place) in crate::expect::MODES {
        place(Spmd::new(3)).run(program).unwrap();
    }
}

#[test]
fn a_call_from_inside_an_operation() {
    let calls: [fn(&Comm) -> Result<()>; 4] = [
        |comm| comm.barrier(),
        |comm| comm.send(&[1], 0, 0),
        |comm| comm.iprobe(ANY, ANY).map(drop),
        |comm| comm.dup().map(drop),
    ];
    for call in calls {
        mistake(2, |ctx| {
            let failed = std::sync::Mutex::new(None);
            let op = Op::new(|a: i32, b: i32| {
                if let Err(error) = spmd::with_current(call) {
                    *failed.lock().unwrap() = Some(error);
                }
                a + b
            });
            // So many that every rank folds some of them.
            let mut sums = [1; 2000];
            ctx.allreduce_in_place(&mut sums, op)?;
            assert_eq!(sums, [2; 2000]);
            failed.into_inner().unwrap().map_or(Ok(()), Err)
        })
        .error(
            &[0, 1],
            |error| matches!(error, Error::Reentrant(_)),
            &["was made from inside a reduction operation", "arguments.rs"],
        );
    }
}

/// A communicator may outlive its block by being moved out; its peers are gone then.
#[test]
fn a_communicator_of_a_block_that_is_over() {
    for (mode, place) in crate::expect::MODES {
        let comms = place(Spmd::new(2)).run(|ctx| ctx.dup()).unwrap();
        let waits: [fn(&Comm) -> Result<()>; 5] = [
            |comm| comm.barrier(),
            |comm| comm.recv(&mut [0], 1 - comm.rank(), 0).map(drop),
            |comm| comm.recv(&mut [0], ANY, ANY).map(drop),
            |comm| comm.send(&vec![0; 100_000], 1 - comm.rank(), 0),
            |comm| comm.dup().map(drop),
        ];
        for wait in waits {
            let start = std::time::Instant::now();
            let error = wait(&comms[0]).expect_err(mode);
            assert!(error.to_string().contains("rank 1 ended its block"), "{mode}: {error}");
            assert!(start.elapsed() < std::time::Duration::from_secs(2), "{mode}");
        }
    }
}

/// A view that repeats its elements may be larger than any memory.
#[test]
fn a_view_for_whose_copy_there_is_no_memory() {
    let calls: [fn(&Ctx) -> Result<()>; 3] = [
        |ctx| ctx.send(&strided(&[1u8], 1 << 60, 1, 0)?, 1 - ctx.rank(), 0),
        |ctx| ctx.sendrecv(&strided(&[1u8], 1 << 60, 1, 0)?, 0, 0, &mut [0u8], 0, 0).map(drop),
        |ctx| ctx.gather(&strided(&[1u8], 1 << 60, 1, 0)?, &mut [0u8; 4], 0),
    ];
    for call in calls {
        mistake(2, |ctx| if ctx.rank() == 0 { call(ctx) } else { Ok(()) }).error(
            &[0],
            |error| matches!(error, Error::Unavailable(_)),
            &["memory for a copy of 1152921504606846976 u8 is not available", "send less at once"],
        );
    }
}

#[test]
fn a_name_that_no_thread_can_have() {
    for (_, place) in crate::expect::MODES {
        let error = place(Spmd::new(2)).name("a\0b").run(|_| Ok(())).expect_err("it has a NUL");
        let text = error.to_string();
        assert!(matches!(error, Error::Argument(_)), "{text}");
        assert!(text.contains("tests/mistakes/arguments.rs") && text.contains("NUL"), "{text}");
    }
}

#[test]
fn too_much_shared_memory() {
    for place in [Spmd::threads, |spmd: Spmd| spmd.threads().unreachable_buffers()] {
        for n in [usize::MAX, usize::MAX / 8, 1 << 50] {
            let result = place(Spmd::new(1)).run(|ctx| ctx.alloc_shared::<u64>(n).map(drop));
            let text = result.expect_err("there is not so much").to_string();
            let start = format!("alloc_shared of {n} u64 at tests/mistakes/arguments.rs:");
            assert!(text.starts_with(&start), "{text}");
        }
    }
}
