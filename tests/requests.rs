//! Messages that go on while their ranks do something else, in every place.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use spmd::prelude::*;
use spmd_conformance::requests;
use support::World;

#[test]
fn every_kind() -> Result<()> {
    World::default().everywhere("every_kind", &[1, 2, 3, 5], requests::all)
}

#[test]
fn with_delays() -> Result<()> {
    let delayed = World { chaos: Some(3), ..World::default() };
    delayed.everywhere("with_delays", &[2, 4], requests::all)
}

/// Many receives wait at a time, for messages that come in another order.
#[test]
fn a_hundred_thousand_receives() -> Result<()> {
    World::default().everywhere("a_hundred_thousand_receives", &[2], |ctx| {
        let many = 100_000;
        if ctx.rank() == 0 {
            let receives = (0..many).map(|tag| ctx.irecv([0], 1, tag));
            let requests = receives.collect::<Result<Vec<_>>>()?;
            ctx.barrier()?;
            for (tag, (got, status)) in wait_all(requests)?.into_iter().enumerate() {
                assert_eq!((got, status.tag()), ([tag as u32], tag as u32));
            }
        } else {
            ctx.barrier()?;
            // 7 and 100,000 have no common factor.
            (0..many).try_for_each(|turn| ctx.send(&[turn * 7 % many], 0, turn * 7 % many))?;
        }
        Ok(())
    })
}

/// Runs on threads and virtual ranks what each of these ends with an error on.
fn where_ranks_share_a_process(ranks: usize, body: impl Fn(&Ctx) + Sync) {
    if support::is_process_rank() {
        return;
    }
    let blocks: [fn(Spmd) -> Spmd; 3] =
        [Spmd::threads, Spmd::virtual_ranks, |block| block.virtual_ranks().workers(1)];
    for block in blocks {
        let block = block(Spmd::new(ranks)).timeout(Duration::from_secs(30));
        drop(block.run(|ctx| {
            body(ctx);
            Ok(())
        }));
    }
}

#[test]
fn a_sender_that_fails() {
    where_ranks_share_a_process(3, |ctx| {
        if ctx.rank() == 0 {
            return;
        }
        let requests = [ctx.irecv([0], 0, 0).unwrap(), ctx.irecv([0], 0, 1).unwrap()];
        let [first, second] = requests;
        let error = first.wait().expect_err("rank 0 has left").to_string();
        assert!(error.contains("rank 0") && error.contains("irecv"), "{error}");
        drop(second);
    });
}

#[test]
fn scopes_that_end_early() {
    where_ranks_share_a_process(2, |ctx| {
        let mut room = vec![0u64; 5000];
        let ended = catch_unwind(AssertUnwindSafe(|| {
            ctx.requests(|requests| -> Result<()> {
                std::mem::forget(requests.irecv(&mut room, 1 - ctx.rank(), 0)?);
                panic!("deliberate")
            })
        }));
        assert_eq!(ended.expect_err("it panics").downcast_ref(), Some(&"deliberate"));
        room.fill(1);
        // What an error ends gives its buffer back, and takes no message.
        let ended = ctx.requests(|requests| -> Result<()> {
            drop(requests.irecv(&mut room, 1 - ctx.rank(), 0)?);
            Err("deliberate".into())
        });
        assert!(ended.unwrap_err().to_string().contains("deliberate"));
        ctx.sendrecv(&[5u64], 1 - ctx.rank(), 0, &mut room, 1 - ctx.rank(), 0).unwrap();
        assert_eq!(room[..2], [5, 1]);
    });
}
