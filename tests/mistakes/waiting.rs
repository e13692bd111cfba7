//! Ranks that wait for each other in cycles.

use spmd::prelude::*;

use crate::expect::mistake;

#[test]
fn two_ranks_that_receive_from_each_other() {
    mistake(2, |ctx| {
        let mut buf = [0; 4];
        ctx.recv(&mut buf, 1 - ctx.rank(), 7)?; // <1>
        ctx.send(&buf, 1 - ctx.rank(), 7)
    })
    .deadlock(
        &[0, 1],
        &[
            "rank 0: recv of 4 i32 from rank 1 with tag 7 at <1>",
            "rank 1: recv of 4 i32 from rank 0 with tag 7 at <1>",
        ],
    );
}

#[test]
fn a_cycle_of_three_while_a_fourth_computes() {
    mistake(4, |ctx| {
        if ctx.rank() == 3 {
            std::thread::sleep(std::time::Duration::from_millis(300));
            return Ok(());
        }
        ctx.recv(&mut [0u8], (ctx.rank() + 1) % 3, 0).map(drop) // <1>
    })
    .deadlock(
        &[0, 1, 2],
        &["rank 0: recv of 1 u8 from rank 1", "rank 2: recv of 1 u8 from rank 0", "at <1>"],
    )
    .fine(&[3]);
}

#[test]
fn all_receive_from_any() {
    mistake(3, |ctx| ctx.recv(&mut [0.0], ANY, ANY).map(drop)) // <1>
        .deadlock(&[0, 1, 2], &["ranks 0, 1, 2: recv of 1 f64 from any rank at <1>"]);
}

#[test]
fn any_against_one() {
    mistake(3, |ctx| match ctx.rank() {
        0 => ctx.recv(&mut [0u8], ANY, 1).map(drop),     // <1>
        me => ctx.recv(&mut [0u8], 3 - me, 1).map(drop), // <2>
    })
    .deadlock(&[1, 2], &["rank 1: recv of 1 u8 from rank 2 with tag 1 at <2>"])
    .error(&[0], |error| error.fault().is_some(), &[]);
}

#[test]
fn a_message_of_another_tag() {
    mistake(2, |ctx| match ctx.rank() {
        0 => {
            ctx.send(&[1], 1, 3)?;
            ctx.recv(&mut [0], 1, 0).map(drop) // <1>
        }
        _ => ctx.recv(&mut [0], 0, 4).map(drop), // <2>
    })
    .deadlock(&[0, 1], &["rank 0: recv of 1 i32 from rank 1 with tag 0 at <1>", "tag 4 at <2>"]);
}

#[test]
fn a_message_on_another_communicator() {
    mistake(2, |ctx| {
        let copy = ctx.dup()?;
        match ctx.rank() {
            0 => {
                copy.send(&[1], 1, 3)?;
                drop(copy);
                ctx.barrier() // <1>
            }
            _ => {
                drop(copy);
                ctx.recv(&mut [0], 0, 3).map(drop) // <2>
            }
        }
    })
    .deadlock(&[0, 1], &["rank 0: barrier at <1>", "rank 1: recv of 1 i32 from rank 0"]);
}

#[test]
fn a_receive_against_a_barrier() {
    mistake(3, |ctx| match ctx.rank() {
        0 => ctx.recv(&mut [0], 1, 7).map(drop), // <1>
        _ => ctx.barrier(),                      // <2>
    })
    .deadlock(&[0, 1, 2], &["rank 0: recv of 1 i32 from rank 1 with tag 7 at <1>", "at <2>"]);
}

#[test]
fn a_receive_against_an_allreduce_over_a_tree() {
    mistake(24, |ctx| match ctx.rank() {
        5 => ctx.recv(&mut [0], 20, 7).map(drop),   // <1>
        _ => ctx.allreduce_value(1, Sum).map(drop), // <2>
    })
    .deadlock(&Vec::from_iter(0..24), &["rank 5: recv of 1 i32 from rank 20", "<1>", "<2>"]);
}

#[test]
fn large_sends_to_each_other() {
    mistake(2, |ctx| {
        let data = vec![0u8; 100_000];
        let mut room = data.clone();
        ctx.send(&data, 1 - ctx.rank(), 0)?; // <1>
        ctx.recv(&mut room, 1 - ctx.rank(), 0).map(drop)
    })
    .deadlock(&[0, 1], &["rank 0: send of 100000 u8 to rank 1 with tag 0 at <1>", "rank 1: send"]);
}

#[test]
fn large_sends_around_a_ring() {
    mistake(5, |ctx| {
        let data = vec![0f32; 50_000];
        let mut room = data.clone();
        ctx.send(&data, (ctx.rank() + 1) % 5, 0)?; // <1>
        ctx.recv(&mut room, (ctx.rank() + 4) % 5, 0).map(drop)
    })
    .deadlock(&[0, 1, 2, 3, 4], &["rank 4: send of 50000 f32 to rank 0 with tag 0 at <1>"]);
}

#[test]
fn a_synchronous_send_to_oneself() {
    mistake(1, |ctx| ctx.ssend(&[1], 0, 2)) // <1>
        .deadlock(&[0], &["rank 0: ssend of 1 i32 to rank 0 with tag 2 at <1>"]);
}

#[test]
fn a_receive_from_oneself() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.recv(&mut [0], 0, 2).map(drop), // <1>
        _ => ctx.barrier(),
    })
    .deadlock(&[0], &["rank 0: recv of 1 i32 from rank 0 with tag 2 at <1>"])
    .error(&[1], |error| error.fault().is_some(), &["<1>"]);
}

#[test]
fn synchronous_sends_to_each_other() {
    mistake(2, |ctx| {
        ctx.ssend(&[1], 1 - ctx.rank(), 0)?; // <1>
        ctx.recv(&mut [0], 1 - ctx.rank(), 0).map(drop)
    })
    .deadlock(&[0, 1], &["rank 1: ssend of 1 i32 to rank 0 with tag 0 at <1>"]);
}

#[test]
fn probes_for_each_other() {
    mistake(2, |ctx| ctx.probe(1 - ctx.rank(), ANY).map(drop)) // <1>
        .deadlock(&[0, 1], &["rank 0: probe from rank 1 at <1>", "rank 1: probe from rank 0"]);
}

#[test]
fn a_sendrecv_from_the_wrong_neighbour() {
    mistake(3, |ctx| {
        let right = (ctx.rank() + 1) % 3;
        let mut room = [0];
        ctx.sendrecv(&[1], right, 0, &mut room, right, 0).map(drop) // <1>
    })
    .deadlock(&[0, 1, 2], &["rank 0: sendrecv of 1 i32 from rank 1 with tag 0 at <1>"]);
}

#[test]
fn a_cycle_on_a_communicator_of_some_ranks() {
    mistake(4, |ctx| {
        let pair = ctx.split(Some(ctx.rank() as u32 / 2), 0)?.expect("every rank gives a color");
        if ctx.rank() < 2 {
            return pair.barrier();
        }
        pair.recv(&mut [0], 1 - pair.rank(), 0).map(drop) // <1>
    })
    .deadlock(&[2, 3], &["rank 2: recv of 1 i32 from rank 1", "rank 3: recv", "at <1>"])
    .fine(&[0, 1]);
}

/// A rank that opened a block waits for that; the others wait for it.
#[test]
fn a_cycle_in_a_block_within_a_rank() {
    mistake(2, |ctx| {
        if ctx.rank() == 0 {
            spmd(2, |inner| {
                inner.recv(&mut [0], 1 - inner.rank(), 9).map(drop) // <1>
            })?;
        }
        ctx.barrier()
    })
    .error(&[0], |error| matches!(error, Error::Stopped(_)), &["deadlock", "tag 9 at <1>"])
    .peer_failed(&[1], 0, &["deadlock", "barrier"]);
}

#[test]
fn on_a_communicator_of_the_programs_own() {
    mistake(2, |ctx| {
        let comm = ctx.dup()?; // <1>
        comm.recv_vec::<u8>(1 - ctx.rank(), 7).map(drop) // <2>
    })
    .deadlock(
        &[0, 1],
        &["rank 0: recv_vec of u8 from rank 1 with tag 7 at <2> on the communicator of dup at <1>"],
    );
}

/// A persistent receive is told by the line where it was started.
#[test]
fn a_persistent_send_that_is_never_started() {
    mistake(2, |ctx| {
        if ctx.rank() == 0 {
            let _send = ctx.send_init(vec![1.5; 3], 1, 7)?;
            return ctx.barrier(); // <1>
        }
        let mut receive = ctx.recv_init(vec![0.0; 3], 0, 7)?;
        receive.start()?; // <2>
        receive.wait()
    })
    .deadlock(
        &[0, 1],
        &["rank 0: barrier at <1>", "rank 1: recv_init of 3 f64 from rank 0 with tag 7 at <2>"],
    );
}
