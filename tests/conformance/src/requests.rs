//! What messages must do that go on while their ranks do something else, for any world to run.

use crate::prelude::*;

use crate::{matched, persistent_messages};

/// A case, and the ranks for which it is made, if it matters.
type Case = (fn(&Ctx) -> Result<()>, Option<usize>);

const ALL: &[Case] = &[
    (rings, None),
    (orders, None),
    (from_the_last_to_the_first, Some(2)),
    (in_order_of_completion, None),
    (sets, None),
    (what_nobody_waits_for, None),
    (receives_that_are_cancelled, None),
    (messages_that_do_not_fit, Some(2)),
    (bools_and_gaps, Some(2)),
    (collectives_meanwhile, None),
    (awaited, None),
    (persistent_messages::rings, None),
    (persistent_messages::beside_plain_ones, None),
    (persistent_messages::in_the_order_of_their_starts, Some(2)),
    (persistent_messages::from_anybody, None),
    (persistent_messages::synchronous, Some(2)),
    (persistent_messages::while_they_go_on, None),
    (persistent_messages::what_does_not_fit, Some(2)),
    (persistent_messages::what_nobody_waits_for, None),
    (matched::what_was_matched, None),
    (matched::what_is_put_back, None),
    (matched::matched_messages_that_do_not_fit, None),
];

/// All cases that are made for so many ranks.
pub fn all(ctx: &Ctx) -> Result<()> {
    for (case, ranks) in ALL {
        if ranks.is_none_or(|ranks| ranks == ctx.size()) {
            case(ctx)?;
            ctx.barrier()?;
        }
    }
    Ok(())
}

/// Elements: none, few, the longest that go at once and one more, many.
const COUNTS: [usize; 6] = [0, 1, 100, 1024, 1025, 150_000];

fn given(rank: usize, turn: usize, count: usize) -> Vec<u64> {
    (0..count).map(|index| (rank * 1_000_000 + turn * 1000 + index) as u64).collect()
}

/// Each sends to the next one and the one after that, and receives from those before.
fn rings(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    for (turn, count) in COUNTS.into_iter().enumerate() {
        for first in [true, false] {
            let sends = |step: usize| ctx.isend(given(me, turn, count), (me + step) % n, 3);
            let receives =
                |step: usize| ctx.irecv(vec![0; count + 2], (me + n * step - step) % n, 3);
            let (sent, received) = match first {
                true => ([sends(1)?, sends(2)?], [receives(1)?, receives(2)?]),
                false => {
                    let received = [receives(1)?, receives(2)?];
                    ([sends(1)?, sends(2)?], received)
                }
            };
            for (step, (got, status)) in wait_all(received)?.into_iter().enumerate() {
                let from = (me + n * (step + 1) - (step + 1)) % n;
                assert_eq!((status.source(), status.len()), (from, count));
                assert_eq!(got[..count], given(from, turn, count));
                assert_eq!(got[count..], [0, 0]);
            }
            for back in wait_all(sent)? {
                assert_eq!(back, given(me, turn, count));
            }
        }
    }
    Ok(())
}

/// Messages are matched in the order of the sends and of the receives, whatever of them are
/// requests.
fn orders(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let count = |turn: usize| [1, 3000, 10, 40_000][turn % 4];
    let mut sent = Vec::new();
    let mut received = Vec::new();
    for turn in 0..60 {
        let message = given(me, turn, count(turn));
        if turn % 5 == 4 {
            ctx.requests(|requests| {
                requests.isend(&message, right, 1)?;
                let (got, _) = ctx.recv_vec::<u64>(left, 1)?;
                // Those that were posted before come first.
                assert_eq!(got, given(left, turn, count(turn)));
                Ok(())
            })?;
        } else {
            match turn % 3 {
                0 => received.push((turn, ctx.irecv(vec![0; 40_000], left, 1)?)),
                1 => received.push((turn, ctx.irecv(vec![0; 40_000], ANY, 1)?)),
                _ => received.push((turn, ctx.irecv(vec![0; 40_000], left, ANY)?)),
            }
            sent.push(ctx.isend(message, right, 1)?);
        }
    }
    for (turn, request) in received {
        let (got, status) = request.wait()?;
        assert_eq!(got[..status.len()], given(left, turn, count(turn)), "turn {turn}");
    }
    wait_all(sent).map(drop)
}

/// A rank receives the last first.
fn from_the_last_to_the_first(ctx: &Ctx) -> Result<()> {
    let other = 1 - ctx.rank();
    for count in [10, 5000] {
        let sends = (0..300).map(|tag| ctx.isend(given(0, tag, count), other, tag as u32));
        let sent = sends.collect::<Result<Vec<_>>>()?;
        for tag in (0..300).rev() {
            let mut got = vec![0; count];
            if tag % 2 == 0 {
                ctx.recv(&mut got, other, tag as u32)?;
            } else {
                got = ctx.irecv(got, other, tag as u32)?.wait()?.0;
            }
            assert_eq!(got, given(0, tag, count));
        }
        wait_all(sent)?;
    }
    Ok(())
}

fn in_order_of_completion(ctx: &Ctx) -> Result<()> {
    if ctx.rank() > 0 {
        // Each when the one before is through.
        if ctx.rank() > 1 {
            ctx.recv(&mut [0u8], ctx.rank() - 1, 1)?;
        }
        ctx.ssend(&vec![ctx.rank(); 4000], 0, 0)?;
        let next = ctx.rank() + 1;
        return if next < ctx.size() { ctx.send(&[0u8], next, 1) } else { Ok(()) };
    }
    let mut ranks: Vec<usize> = (1..ctx.size()).rev().collect();
    let receives = ranks.iter().map(|rank| ctx.irecv(vec![0; 4000], *rank, 0));
    let mut requests = receives.collect::<Result<Vec<_>>>()?;
    let mut order = Vec::new();
    while !requests.is_empty() {
        let (place, (got, _)) = wait_any(&mut requests)?;
        let rank = ranks.remove(place);
        assert_eq!(got, vec![rank; 4000]);
        order.push(rank);
    }
    assert_eq!(order, (1..ctx.size()).collect::<Vec<_>>());
    Ok(())
}

/// A set gives requests back as they end, each with its number, whatever has failed of them.
fn sets(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    if me > 0 {
        if me > 1 {
            ctx.recv(&mut [0u8], me - 1, 1)?;
        }
        ctx.ssend(&vec![me; 4000], 0, 0)?;
        let next = me + 1;
        return if next < n { ctx.send(&[0u8], next, 1) } else { Ok(()) };
    }
    let receives = (1..n).rev().map(|rank| ctx.irecv(vec![0; 4000], rank, 0));
    let mut requests = receives.collect::<Result<Requests<_>>>()?;
    // One that is over at once, and one that is not of the type of its message.
    ctx.send(&[1usize], 0, 5)?;
    ctx.send(&[1u8], 0, 6)?;
    assert_eq!(requests.push(ctx.irecv(vec![0], 0, 5)?), n - 1);
    let wrong = ctx.irecv(vec![0], 0, 6);
    assert!(matches!(wrong.and_then(Request::wait), Err(Error::ElementType(_))));
    assert_eq!((requests.len(), requests.size_hint()), (n, (n, Some(n))));
    let mut order = Vec::new();
    let mut check = |(number, got): (usize, Result<(Vec<usize>, Status)>)| {
        let from = n - 1 - number;
        let expected = if from == 0 { vec![1] } else { vec![from; 4000] };
        assert!(got?.0 == expected, "number {number}");
        order.push(from);
        Ok::<_, Error>(())
    };
    while requests.len() > n / 2 {
        requests.test_any().map_or(Ok(()), &mut check)?;
        // A poll for a message lets other virtual ranks run.
        ctx.iprobe(ANY, 99)?;
    }
    requests.by_ref().try_for_each(check)?;
    order.retain(|from| *from > 0);
    assert_eq!(order, (1..n).collect::<Vec<_>>());
    assert!(requests.is_empty() && requests.wait_any().is_none() && requests.test_any().is_none());
    // Numbers go on.
    ctx.send(&[7usize], 0, 5)?;
    assert_eq!(requests.push(ctx.irecv(vec![0], 0, 5)?), n);
    assert_eq!(requests.wait_all()?[0].0, [7]);
    Ok(())
}

/// What can only be waited for as one and another.
pub fn sets_of_calls_and_messages(ctx: &Ctx) -> Result<()> {
    let (other, n) = (ctx.size() - 1 - ctx.rank(), ctx.size());
    let comm = ctx.dup()?;
    for count in [1, 20_000] {
        let mut requests = Requests::new();
        for turn in 0..10 {
            requests.push(ctx.isend(given(other, turn, count), other, 4)?);
            requests.push(comm.isend(given(other, turn, count), other, 4)?);
            requests.push(ctx.allreduce_in_place_start(vec![1; 10], Sum)?);
        }
        let mut received = Requests::new();
        for _ in 0..10 {
            received.extend([
                comm.irecv(vec![0; count], other, 4)?,
                ctx.irecv(vec![0; count], other, 4)?,
            ]);
        }
        let mut seen = [false; 30];
        for (number, made) in &mut requests {
            let expected =
                if number % 3 == 2 { vec![n as u64; 10] } else { given(other, number / 3, count) };
            assert_eq!(made?, expected);
            assert!(!std::mem::replace(&mut seen[number], true));
        }
        assert_eq!(seen, [true; 30]);
        for (turn, (got, _)) in received.wait_all()?.into_iter().enumerate() {
            assert_eq!(got, given(ctx.rank(), turn / 2, count));
        }
    }
    Ok(())
}

/// As futures, under an executor that parks the rank's thread.
fn awaited(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    pollster::block_on(async {
        for (turn, count) in COUNTS.into_iter().enumerate() {
            let received = ctx.irecv(vec![0; count], left, 4)?;
            let late = ctx.irecv(vec![0; count], ANY, 5)?;
            let sent = ctx.issend(given(me, turn, count), right, 4)?;
            let (got, status) = received.await?;
            assert_eq!((status.source(), got), (left, given(left, turn, count)));
            assert_eq!(sent.await?, given(me, turn, count));
            ctx.isend(given(me, turn, count), right, 5)?.await?;
            assert_eq!(late.await?.0, given(left, turn, count));
        }
        Ok(())
    })
}

fn what_nobody_waits_for(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    for turn in 0..1000 {
        let count = [1, 2000, 30][turn % 3];
        let sent = ctx.isend(given(me, turn, count), (me + 1) % n, 0)?;
        let received = ctx.irecv(vec![0; 2000], (me + n - 1) % n, 0)?;
        match turn % 4 {
            0 => drop((sent, received)),
            1 => std::mem::forget((sent, received)),
            2 => {
                drop(sent);
                let (got, status) = received.wait()?;
                assert_eq!(got[..status.len()], given((me + n - 1) % n, turn, count));
            }
            _ => {
                std::mem::forget(received);
                sent.wait()?;
            }
        }
    }
    Ok(())
}

fn receives_that_are_cancelled(ctx: &Ctx) -> Result<()> {
    let other = ctx.size() - 1 - ctx.rank();
    for turn in 0..1000 {
        let (kept, back) = ctx.irecv(vec![turn; 3], ANY, 5)?.cancel()?;
        assert_eq!((kept, back.is_none()), (vec![turn; 3], true));
    }
    // One that has come is received.
    let request = ctx.irecv([0], other, 6)?;
    ctx.send(&[7], other, 6)?;
    ctx.barrier()?;
    while ctx.iprobe(other, 9)?.is_some() {}
    match request.cancel()? {
        (got, Some(_)) => assert_eq!(got, [7]),
        (_, None) => assert_eq!(ctx.recv_vec::<i32>(other, 6)?.0, [7]),
    }
    Ok(())
}

/// What is wrong with a message comes from its request; the message is gone.
fn messages_that_do_not_fit(ctx: &Ctx) -> Result<()> {
    let other = 1 - ctx.rank();
    for count in [10, 5000] {
        // What has come already is an error at once.
        let short = ctx.irecv(vec![0u64; 3], other, 0);
        let right = ctx.irecv(vec![0u64; count], other, 0)?;
        let typed = ctx.irecv(vec![0.5; count], other, 1);
        let sent = [
            ctx.isend(given(0, 0, count), other, 0)?,
            ctx.isend(given(0, 1, count), other, 0)?,
            ctx.isend(given(0, 2, count), other, 1)?,
        ];
        let error = short.and_then(Request::wait).expect_err("it is longer").to_string();
        assert!(
            error.contains("irecv") && error.contains("conformance/src/requests.rs"),
            "{error}"
        );
        assert_eq!(right.wait()?.0, given(0, 1, count));
        assert!(matches!(typed.and_then(Request::wait), Err(Error::ElementType(_))));
        wait_all(sent)?;
    }
    Ok(())
}

fn bools_and_gaps(ctx: &Ctx) -> Result<()> {
    let other = 1 - ctx.rank();
    for count in [7, 30_000] {
        let flags: Vec<bool> = (0..count).map(|index| index % 3 == 0).collect();
        let (mut got, mut odd) = (vec![false; count], vec![0u32; 2 * count]);
        let numbers: Vec<u32> = (0..count as u32).collect();
        ctx.requests(|requests| {
            requests.irecv(&mut got, other, 0)?;
            requests.irecv(strided_mut(&mut odd, count, 1, 2)?, other, 1)?;
            requests.isend(&flags, other, 0)?;
            requests.isend(&numbers, other, 1)?;
            requests.wait_all()
        })?;
        assert_eq!(got, flags);
        assert!(odd.chunks(2).zip(&numbers).all(|(pair, number)| pair == [*number, 0]));
    }
    Ok(())
}

/// A rank goes on with its messages while it is in a collective for which others are not ready.
fn collectives_meanwhile(ctx: &Ctx) -> Result<()> {
    let (me, last) = (ctx.rank(), ctx.size() - 1);
    for turn in (0..4).filter(|_| last > 0) {
        let receives = turn % 2 == 0;
        let message = given(0, turn, 150_000);
        if me == 0 {
            let request = match receives {
                true => Ok(ctx.irecv(vec![0; 150_000], last, 0)?),
                // More than go at once.
                false => Err((0..80)
                    .map(|tag| ctx.isend(message.clone(), last, tag))
                    .collect::<Result<Vec<_>>>()?),
            };
            assert_eq!(ctx.allreduce_value(1, Sum)?, ctx.size());
            match request {
                Ok(received) => assert_eq!(received.wait()?.0, message),
                Err(sent) => drop(wait_all(sent)?),
            }
        } else {
            if me == last {
                let mut got = vec![0; 150_000];
                match receives {
                    true => ctx.ssend(&message, 0, 0)?,
                    false => (0..80).rev().try_for_each(|tag| {
                        ctx.recv(&mut got, 0, tag)?;
                        assert_eq!(got, message);
                        Ok::<_, Error>(())
                    })?,
                }
            }
            assert_eq!(ctx.allreduce_value(1, Sum)?, ctx.size());
        }
    }
    Ok(())
}
