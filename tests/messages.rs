//! Point-to-point messages: every size at which the way of the data changes, their order, what a
//! receive may ask for, and many at once; as threads, virtual ranks and processes.

mod support;

use spmd::prelude::*;
use spmd_conformance::messages::{self, STAGING};
use support::World;

/// Runs a case on these numbers of ranks, in worlds of every kind.
fn everywhere(test: &str, ranks: &[usize], case: fn(&Ctx) -> Result<()>) -> Result<()> {
    World::default().everywhere(test, ranks, case)
}

#[test]
fn every_size() -> Result<()> {
    everywhere("every_size", &[2, 3], messages::sizes_and_types)
}

/// A sender that does not know that its receiver asks the kernel goes on before all has been read.
#[test]
fn the_receiver_alone_asks_for_single_copies() -> Result<()> {
    const TEST: &str = "the_receiver_alone_asks_for_single_copies";
    if std::env::var("SPMD_RANK").is_ok_and(|rank| rank == "1") {
        // SAFETY: this process is one rank of one test; nothing else of it looks at variables now.
        unsafe { std::env::set_var("SPMD_SINGLE_COPY", "1") };
    }
    support::processes(TEST, 2, &[], |ctx| {
        let mut buf = vec![0u8; STAGING - 5];
        for turn in 0..200 {
            if ctx.rank() == 0 {
                buf.fill(turn);
                ctx.send(&buf, 1, 0)?;
            } else {
                ctx.recv(&mut buf, 0, 0)?;
                assert!(buf.iter().all(|byte| *byte == turn));
            }
        }
        Ok(())
    })
}

#[test]
fn every_size_in_a_single_copy() -> Result<()> {
    let world = World { single_copy: true, ..Default::default() };
    world.processes("every_size_in_a_single_copy", 2, messages::sizes_and_types)
}

#[test]
fn rings_wrap_around() -> Result<()> {
    everywhere("rings_wrap_around", &[2], messages::rings_wrap_around)
}

#[test]
fn data_are_not_taken_for_records() -> Result<()> {
    everywhere("data_are_not_taken_for_records", &[2], messages::data_are_not_taken_for_records)
}

#[test]
fn repeats_among_others() -> Result<()> {
    everywhere("repeats_among_others", &[2], messages::repeats_among_others)
}

#[test]
fn order_and_choice() -> Result<()> {
    everywhere("order_and_choice", &[2, 4, 8], messages::order_and_choice)
}

#[test]
fn probing() -> Result<()> {
    everywhere("probing", &[1, 2, 3], messages::probing)
}

#[test]
fn synchronous_sends_wait() -> Result<()> {
    everywhere("synchronous_sends_wait", &[2], messages::synchronous_sends_wait)
}

#[test]
fn rings_of_sendrecv() -> Result<()> {
    everywhere("rings_of_sendrecv", &[1, 2, 3, 4, 8], messages::rings_of_sendrecv)
}

#[test]
fn rows_of_sendrecv() -> Result<()> {
    everywhere("rows_of_sendrecv", &[1, 2, 3, 4, 8], messages::rows_of_sendrecv)
}

#[test]
fn values_and_vectors() -> Result<()> {
    everywhere("values_and_vectors", &[2], messages::values_and_vectors)
}

#[test]
fn views() -> Result<()> {
    everywhere("views", &[2], messages::views)
}

#[test]
fn several_agents() -> Result<()> {
    everywhere("several_agents", &[2, 3], messages::several_agents)
}

#[test]
fn large_messages_at_once() -> Result<()> {
    everywhere("large_messages_at_once", &[2], messages::large_messages_at_once)
}

#[test]
fn messages_that_do_not_fit() -> Result<()> {
    everywhere("messages_that_do_not_fit", &[2], messages::messages_that_do_not_fit)
}

/// A rank that is through with a world enters the next one and sends there, while another still
/// looks for messages that were left in the first.
#[test]
fn worlds_one_after_another() -> Result<()> {
    if !support::is_process_rank() {
        let ran = support::finish(&mut support::spmdrun_self("worlds_one_after_another", 2));
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        return Ok(());
    }
    for turn in 0..300 {
        run(|ctx| {
            let (peer, mut got) = (1 - ctx.rank(), [0]);
            ctx.send(&[turn], peer, 0)?;
            ctx.recv(&mut got, peer, 0)?;
            assert_eq!(got, [turn]);
            Ok(())
        })?;
    }
    Ok(())
}
