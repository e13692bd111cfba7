//! What persistent messages must do, for any world to run.

use crate::prelude::*;

/// Elements: none, few, the longest that go at once and one more, many.
const COUNTS: [usize; 6] = [0, 1, 100, 1024, 1025, 150_000];

fn given(rank: usize, turn: usize, count: usize) -> Vec<u64> {
    (0..count).map(|index| (rank * 1_000_000 + turn * 1000 + index) as u64).collect()
}

/// Each sends to the next one and receives from the one before, again and again.
pub(crate) fn rings(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    for count in COUNTS {
        let mut send = ctx.send_init(vec![0; count], right, 3)?;
        let mut receive = ctx.recv_init(vec![0; count + 2], left, 3)?;
        assert_eq!(receive.status(), None);
        for turn in 0..6 {
            *send.get_mut()? = given(me, turn, count);
            if turn % 2 == 0 {
                receive.start()?;
                send.start()?;
            } else {
                send.start()?;
                receive.start()?;
            }
            assert_eq!(receive.status(), None);
            if turn % 3 == 0 {
                while !receive.test()? || !send.test()? {
                    ctx.iprobe(ANY, 99)?;
                }
            }
            receive.wait()?;
            send.wait()?;
            let status = receive.status().ok_or("it has received")?;
            assert_eq!((status.source(), status.tag(), status.len()), (left, 3, count));
            assert_eq!(receive.get()?[..count], given(left, turn, count));
            assert_eq!(receive.get()?[count..], [0, 0]);
        }
        assert_eq!(send.into_buffers()?, given(me, 5, count));
    }
    Ok(())
}

/// They meet plain messages and requests, on a communicator that is dropped before.
pub(crate) fn beside_plain_ones(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    for count in [1, 3000] {
        let comm = ctx.dup()?;
        let mut send = comm.send_init(given(me, 0, count), right, 0)?;
        let mut receive = comm.recv_init(vec![0; count], left, 0)?;
        send.start()?;
        assert_eq!(comm.recv_vec::<u64>(left, 0)?.0, given(left, 0, count));
        send.wait()?;
        let sent = comm.isend(given(me, 7, count), right, 0)?;
        receive.start()?;
        receive.wait()?;
        assert_eq!(*receive.get()?, given(left, 7, count));
        sent.wait()?;
        comm.barrier()?;
        drop(comm);
        send.start()?;
        receive.start()?;
        send.wait()?;
        receive.wait()?;
        assert_eq!(*receive.get()?, given(left, 0, count));
    }
    Ok(())
}

/// Many of one tag are matched in the order in which both sides start them.
pub(crate) fn in_the_order_of_their_starts(ctx: &Ctx) -> Result<()> {
    let other = 1 - ctx.rank();
    for count in [3, 4000] {
        let make = |number: usize| ctx.send_init(given(0, number, count), other, 5);
        let mut sends = (0..20).map(make).collect::<Result<Vec<_>>>()?;
        let make = |_| ctx.recv_init(vec![0; count], other, 5);
        let mut receives = (0..20).map(make).collect::<Result<Vec<_>>>()?;
        for turn in 0..5 {
            // 3 and 20, 7 and 20 have no common factor.
            let sent = |step: usize| (step * 3 + turn) % 20;
            let taken = |step: usize| (step * 7 + turn) % 20;
            for step in 0..20 {
                sends[sent(step)].start()?;
                receives[taken(step)].start()?;
            }
            receives.iter_mut().try_for_each(Persistent::wait)?;
            sends.iter_mut().rev().try_for_each(Persistent::wait)?;
            for step in 0..20 {
                assert_eq!(*receives[taken(step)].get()?, given(0, sent(step), count));
            }
        }
    }
    Ok(())
}

pub(crate) fn from_anybody(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    if me > 0 {
        let mut send = ctx.send_init(vec![me; me], 0, me as u32)?;
        for _ in 0..5 {
            send.start()?;
            send.wait()?;
        }
        return Ok(());
    }
    let mut receive = ctx.recv_init(vec![0; n], ANY, ANY)?;
    let mut counts = vec![0; n];
    for _ in 0..5 * (n - 1) {
        receive.start()?;
        receive.wait()?;
        let status = receive.status().ok_or("it has received")?;
        let from = status.source();
        assert_eq!((status.tag() as usize, status.len()), (from, from));
        assert_eq!(receive.get()?[..from], vec![from; from]);
        counts[from] += 1;
    }
    assert!(counts[1..].iter().all(|count| *count == 5));
    Ok(())
}

/// A synchronous one is not over before it is received.
pub(crate) fn synchronous(ctx: &Ctx) -> Result<()> {
    if ctx.rank() == 1 {
        return (0..3).try_for_each(|turn| {
            ctx.recv(&mut [0u8], 0, 8)?;
            ctx.recv(&mut [0usize], 0, 7).map(drop)?;
            ctx.send(&[turn], 0, 9)
        });
    }
    let mut send = ctx.ssend_init([0usize], 1, 7)?;
    for turn in 0..3 {
        send.start()?;
        assert!(!send.test()?);
        ctx.send(&[0u8], 1, 8)?;
        send.wait()?;
        let mut back = [9];
        ctx.recv(&mut back, 1, 9)?;
        assert_eq!(back, [turn]);
    }
    Ok(())
}

/// What a program cannot do meanwhile, and what cannot be made.
pub(crate) fn while_they_go_on(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    for error in [
        ctx.send_init([0u8], n, 0).map(drop).expect_err("there is no such rank"),
        ctx.ssend_init([0u8], n + 5, 0).map(drop).expect_err("there is no such rank"),
        ctx.recv_init([0u8], n, 0).map(drop).expect_err("there is no such rank"),
    ] {
        let (text, told) = (error.to_string(), matches!(error, Error::RankOutOfRange(_)));
        assert!(
            told && text.contains("_init") && text.contains("persistent_messages.rs"),
            "{text}"
        );
    }
    let mut send = ctx.send_init(vec![5u8; 3], me, 0)?;
    let mut receive = ctx.recv_init(vec![0u8; 3], me, 0)?;
    send.wait()?;
    receive.wait()?;
    receive.start()?;
    send.start()?;
    for error in [
        send.start().expect_err("it goes on"),
        receive.start().expect_err("it goes on"),
        receive.get().map(drop).expect_err("it goes on"),
        send.get_mut().map(drop).expect_err("it goes on"),
    ] {
        let text = error.to_string();
        assert!(text.contains("_init") && text.contains("persistent_messages.rs"), "{text}");
    }
    send.wait()?;
    receive.wait()?;
    assert_eq!(receive.into_buffers()?, [5; 3]);
    Ok(())
}

/// After a message that does not fit the call can be started again.
pub(crate) fn what_does_not_fit(ctx: &Ctx) -> Result<()> {
    let other = 1 - ctx.rank();
    for count in [2, 3000] {
        let mut receive = ctx.recv_init(vec![0u16; count], other, 0)?;
        ctx.barrier()?;
        let sent = ctx.isend(vec![1u16; count + 1], other, 0)?;
        // Where it has come already, the start tells.
        let received = receive.start().and_then(|()| receive.wait());
        let error = received.expect_err("it is too long").to_string();
        sent.wait()?;
        assert!(error.contains("persistent_messages.rs"), "{error}");
        assert_eq!((receive.status(), receive.get()?), (None, &vec![0; count]));
        receive.start()?;
        let sent = ctx.isend(vec![4u16; count], other, 0)?;
        receive.wait()?;
        drop(sent.wait()?);
        assert_eq!(*receive.get()?, vec![4; count]);
    }
    Ok(())
}

/// Dropped or forgotten, they go on.
pub(crate) fn what_nobody_waits_for(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    for turn in 0..200 {
        let count = [1, 3000][turn % 2];
        let mut send = ctx.send_init(vec![turn; count], right, 4)?;
        let mut receive = ctx.recv_init(vec![0; count], left, 4)?;
        receive.start()?;
        send.start()?;
        match turn % 3 {
            0 => drop((send, receive)),
            1 => std::mem::forget((send, receive)),
            _ => {
                receive.wait()?;
                assert_eq!(*receive.get()?, vec![turn; count]);
                send.wait()?;
            }
        }
    }
    Ok(())
}
