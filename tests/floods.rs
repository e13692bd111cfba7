//! Many small messages to ranks that are elsewhere: how soon they are taken, how many are kept, and
//! what becomes of a sender that finds no more room.

mod support;

use std::time::{Duration, SystemTime};

use spmd::prelude::*;
use support::World;

/// A window for tests, and what it takes in here: no more than a message of 1 KiB for each KiB of
/// it. Mailboxes of virtual ranks hold 64 KiB a rank at least.
const WINDOW: usize = 256 << 10;
/// What lies in a ring besides, and what a sender may add before it looks again.
const OVERHANG: usize = 256 << 10;
const KIB: [u8; 1024] = [7; 1024];

fn narrow() -> World {
    World { window: Some(WINDOW), ..Default::default() }
}

fn milliseconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("the clock is past 1970").as_millis() as u64
}

fn send_many(ctx: &Ctx, data: &[u8], dest: usize, count: usize) -> Result<()> {
    (0..count).try_for_each(|_| ctx.send(data, dest, 1))
}

fn recv_many(ctx: &Ctx, len: usize, source: usize, count: usize) -> Result<()> {
    let mut data = vec![0u8; len];
    (0..count).try_for_each(|_| ctx.recv(&mut data, source, 1).map(drop))
}

/// A full ring is emptied when its sender asks, not when the receiver looks up by itself, which
/// takes it 20 to 160 ms.
#[test]
fn a_flood_into_a_rank_in_a_barrier() -> Result<()> {
    World::default().everywhere("a_flood_into_a_rank_in_a_barrier", &[2, 3], |ctx| {
        let (last, start) = (ctx.size() - 1, SystemTime::now());
        if ctx.rank() != last {
            send_many(ctx, &[1; 8000], last, 3000)?;
        }
        ctx.barrier()?;
        if ctx.rank() == last {
            (0..last).try_for_each(|source| recv_many(ctx, 8000, source, 3000))?;
        }
        ctx.barrier()?;
        // 375 rings full of messages, 20 ms each, were 7 s.
        assert!(start.elapsed().is_ok_and(|took| took < Duration::from_secs(5)));
        Ok(())
    })
}

/// Each sends to all others, itself among them, before it receives: a sender that waits for room
/// takes what comes meanwhile.
#[test]
fn floods_from_everyone_to_everyone() -> Result<()> {
    World::default().everywhere("floods_from_everyone_to_everyone", &[1, 2, 3, 8], |ctx| {
        (0..ctx.size()).try_for_each(|dest| send_many(ctx, &[1; 5000], dest, 100))?;
        for _ in 0..100 * ctx.size() {
            assert_eq!(ctx.recv(&mut [0u8; 5000], ANY, 1)?.len(), 5000);
        }
        Ok(())
    })
}

/// How many messages a sender is rid of while their receiver waits for another one.
#[test]
fn what_is_kept_has_a_bound() -> Result<()> {
    narrow().everywhere("what_is_kept_has_a_bound", &[3], |ctx| {
        const COUNT: usize = 4000;
        let mut sent = Vec::new();
        match ctx.rank() {
            0 => {
                for _ in 0..COUNT {
                    ctx.send(&KIB, 1, 1)?;
                    sent.push(milliseconds());
                }
            }
            1 => {
                ctx.recv(&mut [0u8], 2, 2)?;
                recv_many(ctx, KIB.len(), 0, COUNT)?;
            }
            _ => {
                let start = milliseconds();
                while milliseconds() < start + 700 {
                    // Virtual ranks share a thread.
                    ctx.iprobe(ANY, ANY)?;
                }
                ctx.send(&[0u8], 1, 2)?;
            }
        }
        // Those that were gone before the receiver can have begun.
        let early = sent.iter().filter(|time| **time < sent[0] + 400).count();
        assert!(early * KIB.len() <= WINDOW + OVERHANG, "{early} messages");
        Ok(())
    })
}

/// A window that is full and empties again and again, with receives in order, from anyone, of what
/// was probed, and into a vector.
#[test]
fn all_come_in_order_through_a_narrow_window() -> Result<()> {
    narrow().everywhere("all_come_in_order_through_a_narrow_window", &[2, 4], |ctx| {
        const COUNT: usize = 2000;
        if ctx.rank() > 0 {
            for number in 0..COUNT {
                let data = vec![number; 1 + number % 200];
                if number % 5 == 4 {
                    ctx.send(&[number], ctx.rank(), 9)?;
                    ctx.sendrecv(&data, 0, 1, &mut [0usize], ctx.rank(), 9)?;
                } else {
                    ctx.send(&data, 0, 1)?;
                }
            }
            return Ok(());
        }
        let mut next = vec![0; ctx.size()];
        for turn in 0..COUNT * (ctx.size() - 1) {
            let status = ctx.probe(ANY, 1)?;
            let source = status.source();
            let number = next[source];
            next[source] += 1;
            assert_eq!(status.len(), 1 + number % 200);
            let data = if turn % 2 == 0 {
                ctx.recv_vec::<usize>(source, 1)?.0
            } else {
                let mut data = vec![0; 200];
                ctx.recv(&mut data, source, 1)?;
                data.truncate(status.len());
                data
            };
            assert!(data.iter().all(|it| *it == number), "message {number} of rank {source}");
        }
        Ok(())
    })
}

/// The receiver wants a message that its sender would send after too many others.
#[test]
fn a_message_behind_more_than_the_window() -> Result<()> {
    let program = |ctx: &Ctx| -> Result<()> {
        let outcome = match ctx.rank() {
            0 => send_many(ctx, &KIB, 1, 4000).and_then(|()| ctx.send(&[0u8], 1, 2)),
            _ => ctx.recv(&mut [0u8], 0, 2).map(drop),
        };
        let text = outcome.expect_err("they wait for each other").to_string();
        for part in ["deadlock", "send of 1024 u8 to rank 1", "SPMD_WINDOW allows", "floods.rs"] {
            assert!(text.contains(part), "{text}");
        }
        Ok(())
    };
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks().workers(1)] {
        // The block still ends with an error: its messages have not been received.
        block.window(WINDOW).run(program).expect_err("messages are left");
    }
    Ok(())
}

#[test]
fn more_than_the_window_to_oneself() {
    for block in [Spmd::new(1).threads(), Spmd::new(1).virtual_ranks()] {
        let error = block.window(WINDOW).run(|ctx| send_many(ctx, &KIB, 0, 4000)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("deadlock") && text.contains("SPMD_WINDOW"), "{text}");
    }
}

/// A receiver that ends its block, or fails, lets its sender go with the line of its send.
#[test]
fn a_receiver_that_goes() {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks().workers(1)] {
        let block = block.window(WINDOW);
        let left = block.clone().run(|ctx| match ctx.rank() {
            0 => send_many(ctx, &KIB, 1, 4000),
            _ => Ok(()),
        });
        let text = left.unwrap_err().to_string();
        assert!(text.contains("rank 1 ended its block") && text.contains("floods.rs"), "{text}");
        let failed = block.run(|ctx| match ctx.rank() {
            0 => {
                let error = send_many(ctx, &KIB, 1, 4000).unwrap_err();
                assert!(matches!(&error, Error::PeerFailed(peer) if peer.rank == 1), "{error}");
                Ok(())
            }
            _ => Err("out of paper".into()),
        });
        assert!(failed.unwrap_err().to_string().contains("out of paper"));
    }
}

/// What blocks that failed have left unreceived takes no part of the window of those that follow.
#[test]
fn windows_after_blocks_that_failed() -> Result<()> {
    const COUNT: usize = 150;
    if support::is_process_rank() {
        for _ in 0..8 {
            let ended = run(|ctx| {
                let other = 1 - ctx.rank();
                send_many(ctx, &KIB, other, COUNT)?;
                ctx.barrier()?;
                Err::<(), Error>("enough".into())
            });
            ended.expect_err("all ranks fail");
        }
    }
    narrow().processes("windows_after_blocks_that_failed", 2, |ctx| {
        let other = 1 - ctx.rank();
        send_many(ctx, &KIB, other, COUNT)?;
        recv_many(ctx, KIB.len(), other, COUNT)
    })
}
