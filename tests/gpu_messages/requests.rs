//! Messages that go on.

use spmd::prelude::*;
use spmd_conformance::element::{Flagged, Sample};
use spmd_gpu::OnDevice;

use super::{around, everywhere, holds, values};

/// Bytes: none, few, the longest that go at once and more, what is taken in several steps.
const SIZES: [usize; 7] = [0, 24, 120, 8 << 10, (8 << 10) + 24, 60_000, 400_008];

#[test]
fn rings() -> Result<()> {
    everywhere("requests::rings", &[1, 3], |ctx| {
        ring::<f64>(ctx)?;
        ring::<u8>(ctx)?;
        ring::<[f32; 3]>(ctx)?;
        ring::<bool>(ctx)?;
        ring::<Flagged>(ctx)
    })
}

/// Each sends to the next one, in every manner.
fn ring<T: Sample>(ctx: &Ctx) -> Result<()> {
    let (device, (left, right)) = (ctx.device()?, around(ctx));
    for size in SIZES {
        let count = size / size_of::<T>();
        let (mine, theirs) = (values::<T>(ctx.rank(), count), values::<T>(left, count));
        let old = values::<T>(100, count + 3);
        // A longer buffer keeps what the message does not reach.
        let came = [&theirs[..], &old[count..]].concat();
        let room = || device.buffer_from(&old);

        let first = ctx.irecv(room()?, left, 1)?;
        let sent = ctx.isend(device.buffer_from(&mine)?, right, 1)?;
        let taken = ctx.issend(device.buffer_from(&mine)?, right, 2)?;
        let (got, status) = first.wait()?;
        assert_eq!((status.source(), status.tag(), status.len()), (left, 1, count));
        assert!(holds(&got, &came)?, "{size} bytes");
        let (got, status) = ctx.irecv(got, ANY, 2)?.wait()?;
        assert!(holds(&got, &came)? && status.len() == count);
        for sent in [sent, taken] {
            assert!(holds(&sent.wait()?, &mine)?);
        }

        // Parts of a buffer, borrowed; to the host, and from it.
        let mut both = device.buffer_from(&[&mine[..], &old[..]].concat())?;
        let (own, into) = both.split_at_mut(count);
        let (mut on_host, mut from_host) = (old.clone(), room()?);
        ctx.requests(|requests| {
            requests.irecv(into, left, 3)?;
            requests.isend(own.slice(0..count), right, 3)?;
            requests.irecv(&mut on_host, left, 4)?;
            requests.issend(own.slice(0..count), right, 4)?;
            requests.irecv(&mut from_host, left, 5)?;
            requests.isend(&mine, right, 5).map(drop)
        })?;
        assert!(holds(&both, &[&mine[..], &came[..]].concat())?);
        assert!(super::same(&on_host, &came) && holds(&from_host, &came)?);

        // Set aside before.
        let own = device.buffer_from(&mine)?;
        let (mut first, mut second) = (room()?, room()?);
        ctx.requests(|requests| {
            requests.isend(&own, right, 6)?;
            requests.imrecv(ctx.mprobe(left, 6)?, &mut first).map(drop)
        })?;
        let sent = ctx.isend(own, right, 7)?;
        (second, _) = ctx.mprobe(left, 7)?.irecv(second)?.wait()?;
        assert!(holds(&first, &came)? && holds(&second, &came)?);

        let mut send = ctx.send_init(sent.wait()?, right, 8)?;
        let mut receive = ctx.recv_init(room()?, left, 8)?;
        for turn in 0..4 {
            send.get_mut()?.copy_from(&values::<T>(10 * ctx.rank() + turn, count))?;
            if turn % 2 == 0 {
                receive.start()?;
                send.start()?;
            } else {
                send.start()?;
                receive.start()?;
            }
            receive.wait()?;
            send.wait()?;
            assert_eq!(receive.status().map(|status| status.len()), Some(count));
            let came = [values::<T>(10 * left + turn, count), old[count..].to_vec()].concat();
            assert!(holds(receive.get()?, &came)?);
        }
    }
    Ok(())
}

/// What a rank has put into its stream comes before the copies of its messages, and what it puts there
/// later after them.
#[test]
fn messages_are_in_the_order_of_the_stream() -> Result<()> {
    everywhere("requests::messages_are_in_the_order_of_the_stream", &[2], |ctx| {
        let (device, (left, right)) = (ctx.device()?, around(ctx));
        for turn in 0..10 {
            for count in [10, 5000] {
                let fresh = device.buffer_from(&vec![ctx.rank() + turn; count])?;
                let mut mine = device.zeros(count)?;
                (0..9).try_for_each(|_| mine.copy_from_buffer(&fresh))?;
                let sent = ctx.isend(mine, right, 0)?;
                let room = device.buffer_from(&vec![99; count])?;
                let mut before = device.zeros(count)?;
                (0..9).try_for_each(|_| before.copy_from_buffer(&room))?;
                let (room, _) = ctx.irecv(room, left, 0)?.wait()?;
                let mut after = device.zeros(count)?;
                after.copy_from_buffer(&room)?;
                assert_eq!(before.to_vec()?, vec![99; count]);
                assert_eq!(after.to_vec()?, vec![left + turn; count]);
                let mut mine = sent.wait()?;
                mine.copy_from_buffer(&after)?;
                assert_eq!(mine.to_vec()?, vec![left + turn; count]);
            }
        }
        Ok(())
    })
}

/// Handles that are dropped, forgotten, taken back, awaited, and waited for in the order of their ends.
#[test]
fn whoever_holds_requests() -> Result<()> {
    everywhere("requests::whoever_holds_requests", &[1, 2], |ctx| {
        let (device, (left, right)) = (ctx.device()?, around(ctx));
        for count in [5, 30_000] {
            let room = || device.zeros::<u32>(count);
            let data = |number: u32| device.buffer_from(&vec![number; count]);
            drop(ctx.irecv(room()?, left, 1)?);
            std::mem::forget(ctx.irecv(room()?, left, 1)?);
            drop(ctx.isend(data(1)?, right, 1)?);
            std::mem::forget(ctx.isend(data(2)?, right, 1)?);

            let (back, status) = ctx.irecv(data(7)?, left, 99)?.cancel()?;
            assert!(status.is_none() && holds(&back, &vec![7; count])?);

            let receive = |tag| ctx.irecv(room()?, left, tag);
            let mut receives = (10..16).map(receive).collect::<Result<Vec<_>>>()?;
            let send = |tag| ctx.isend(data(tag)?, right, tag);
            let sends = (10..16).rev().map(send).collect::<Result<Vec<_>>>()?;
            while !receives.is_empty() {
                let (_, (got, status)) = wait_any(&mut receives)?;
                assert!(holds(&got, &vec![status.tag(); count])?);
            }
            sends.into_iter().try_for_each(|sent| sent.wait().map(drop))?;

            let (sent, received) = (ctx.isend(data(3)?, right, 2)?, ctx.irecv(room()?, left, 2)?);
            let (got, _) = pollster::block_on(received)?;
            assert!(holds(&got, &vec![3; count])?);
            pollster::block_on(sent)?;
        }
        Ok(())
    })
}
