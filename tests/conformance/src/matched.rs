//! What messages must do that are matched before they are received.

use crate::prelude::*;

/// Elements: few, the longest that go at once and one more, many.
const COUNTS: [usize; 4] = [3, 1024, 1025, 100_000];

fn given(tag: u32, count: usize) -> Vec<u64> {
    (0..count as u64).map(|index| u64::from(tag) << 32 | index).collect()
}

fn received(message: Message<'_>) -> Result<u32> {
    let tag = message.status().tag();
    assert!(message.recv_vec::<u64>()?.0 == given(tag, message_count(tag)), "tag {tag}");
    Ok(tag)
}

fn message_count(tag: u32) -> usize {
    COUNTS[tag as usize % COUNTS.len()]
}

/// Starts the sends of messages of each count, with the tags from `0` on.
fn sent(ctx: &Ctx, to: usize, tags: u32) -> Result<Vec<Request<Vec<u64>>>> {
    (0..tags).map(|tag| ctx.isend(given(tag, message_count(tag)), to, tag)).collect()
}

/// Who has matched a message tells what it is, and gets it, whatever is received meanwhile.
pub fn what_was_matched(ctx: &Ctx) -> Result<()> {
    let (right, left) = neighbors(ctx);
    let requests = sent(ctx, right, 8)?;
    let typed = ctx.issend(vec![2.5f32; 2], right, 100)?;
    let message = ctx.mprobe(left, 100)?;
    let status = message.status();
    assert_eq!((status.source(), status.tag(), status.len()), (left, 100, 2));
    assert!(message.is::<f32>() && !message.is::<u32>());
    assert_eq!(message.element_type(), "f32");
    let aside = [5, 2].map(|tag| ctx.mprobe(ANY, tag));
    // In order, but for those.
    for tag in [0, 1, 3] {
        assert_eq!(ctx.probe(left, ANY)?.tag(), tag);
        assert_eq!(received(ctx.mprobe(left, ANY)?)?, tag);
    }
    assert!(ctx.improbe(left, 5)?.is_none() && ctx.iprobe(left, 2)?.is_none());
    let (got, status) = ctx.recv_vec::<u64>(left, ANY)?;
    assert_eq!((status.tag(), got), (4, given(4, message_count(4))));
    for (message, tag) in aside.into_iter().zip([5, 2]) {
        let mut room = vec![0; message_count(tag) + 1];
        assert_eq!(message?.recv(&mut room)?.len(), message_count(tag));
        assert_eq!((room.pop(), room), (Some(0), given(tag, message_count(tag))));
    }
    for tag in [6, 7] {
        let message = loop {
            match ctx.improbe(left, tag)? {
                Some(message) => break message,
                None => ctx.iprobe(left, 99).map(drop)?,
            }
        };
        let (got, _) = message.irecv(vec![0; message_count(tag)])?.wait()?;
        assert_eq!(got, given(tag, message_count(tag)));
    }
    assert_eq!(message.recv_vec::<f32>()?.0, [2.5; 2]);
    typed.wait()?;
    wait_all(requests).map(drop)
}

/// One that is dropped is at its place again, for calls and for receives that were posted meanwhile.
pub fn what_is_put_back(ctx: &Ctx) -> Result<()> {
    let (right, left) = neighbors(ctx);
    let requests = sent(ctx, right, 8)?;
    let mut aside =
        (0..7).map(|tag| ctx.mprobe(left, tag).map(Some)).collect::<Result<Vec<_>>>()?;
    for tag in [4, 1, 2] {
        drop(aside[tag].take());
    }
    for tag in [1, 2] {
        assert_eq!(received(ctx.mprobe(left, ANY)?)?, tag);
    }
    aside[0] = None;
    assert_eq!(received(ctx.mprobe(left, ANY)?)?, 0);
    let posted = [5, 3].map(|tag| ctx.irecv(vec![0; message_count(tag)], ANY, tag));
    assert_eq!(received(ctx.mprobe(left, ANY)?)?, 4);
    assert_eq!(received(ctx.mprobe(left, ANY)?)?, 7);
    drop(aside.split_off(4));
    for (request, tag) in posted.into_iter().zip([5, 3]) {
        aside.clear();
        assert_eq!(request?.wait()?.0, given(tag, message_count(tag)));
    }
    assert_eq!(received(ctx.mprobe(left, ANY)?)?, 6);
    wait_all(requests).map(drop)
}

/// What does not fit is an error, and the message is gone.
pub fn matched_messages_that_do_not_fit(ctx: &Ctx) -> Result<()> {
    let (right, left) = neighbors(ctx);
    for count in [2, 30_000] {
        let sends = (0..4).map(|tag| ctx.issend(vec![1.5; count], right, tag));
        let sends = sends.collect::<Result<Vec<_>>>()?;
        let next = |tag: u32| ctx.mprobe(left, tag);
        assert!(matches!(next(0)?.recv(&mut [9.5]), Err(Error::Truncated(_))));
        let error = next(1)?.recv_vec::<u8>().expect_err("they are f64").to_string();
        assert!(error.contains("matched.rs") && error.contains("f64"), "{error}");
        let mut short = vec![9; 1];
        assert!(next(2)?.recv(&mut short).is_err() && short == [9]);
        let ended = next(3)?.irecv(vec![0.5; 1]).and_then(Request::wait);
        assert!(matches!(ended, Err(Error::Truncated(_))));
        // Their senders go on.
        wait_all(sends)?;
    }
    Ok(())
}

fn neighbors(ctx: &Ctx) -> (usize, usize) {
    let (me, n) = (ctx.rank(), ctx.size());
    ((me + 1) % n, (me + n - 1) % n)
}
