//! Messages to one rank and from another at once, of one value, and into a vector that there is.

use crate::prelude::*;

use super::{STAGING, data, same};
use crate::element::{Flagged, Sample};

pub fn rings_of_sendrecv(ctx: &Ctx) -> Result<()> {
    let (n, me) = (ctx.size(), ctx.rank());
    for (number, count) in [0, 1, 1024, 1025, 100_000, 3].into_iter().enumerate() {
        for step in [1, n - 1, n / 2] {
            let (to, from) = ((me + step) % n, (me + n - step) % n);
            let stream = |rank: usize| (number * 1000 + rank) as u64;
            let mine = data::<f64>(stream(me), count);
            let mut got = data::<f64>(9, count + 1);
            let status = ctx.sendrecv(&mine, to, 8, &mut got, from, 8)?;
            assert_eq!((status.source(), status.len()), (from, count));
            assert!(same(&got[..count], &data(stream(from), count)));
        }
    }
    Ok(())
}

/// Rows of ranks that have no neighbour at the ends, and parts of one buffer.
pub fn rows_of_sendrecv(ctx: &Ctx) -> Result<()> {
    let (n, me) = (ctx.size(), ctx.rank());
    let (left, right) = (me.checked_sub(1), Some(me + 1).filter(|right| *right < n));
    for (number, count) in [0, 1, 1024, 1025, 100_000, 3].into_iter().enumerate() {
        let stream = |rank: usize| (number * 1000 + rank) as u64;
        let mine = data::<f64>(stream(me), count);
        let mut got = data::<f64>(9, count + 1);
        let status = ctx.sendrecv(&mine, right, 8, &mut got, left, 8)?;
        let len = left.map_or(0, |_| count);
        assert_eq!((status.source(), status.len()), (left.unwrap_or(usize::MAX), len));
        assert!(same(&got[..len], &left.map_or(vec![], |left| data(stream(left), count))));
        assert!(same(&got[len..], &data(9, count + 1)[len..]));
        let (got, status) = ctx.sendrecv_vec(&mine, right, 8, left, ANY)?;
        assert_eq!((status.source(), status.len()), (left.unwrap_or(usize::MAX), len));
        assert!(same(&got, &left.map_or(vec![], |left| data(stream(left), count))));
        // Parts of one buffer, in either order, and over each other.
        let (after, before) = ((me + 1) % n, (me + n - 1) % n);
        for (send, recv) in [(0, count + 3), (count + 3, 0), (1, 1), (2, 0), (0, 2)] {
            let mut buf = data::<f64>(7, 2 * count + 5);
            let mut expected = buf.clone();
            buf[send..][..count].copy_from_slice(&mine);
            expected[send..][..count].copy_from_slice(&mine);
            expected[recv..][..count].copy_from_slice(&data::<f64>(stream(before), count));
            let (out, back) = (send..send + count, recv..recv + count);
            ctx.sendrecv_within(&mut buf, out, after, 8, back, before, 8)?;
            assert!(same(&buf, &expected), "{count} from {send} to {recv}");
            // The same with gaps, of which nothing changes.
            let mut wide = data::<f64>(6, 2 * expected.len());
            strided_mut(&mut wide, expected.len(), 1, 2)?.copy_from(&buf)?;
            let gaps = |wide: &[f64]| -> Result<Vec<f64>> {
                Ok(strided(&wide[1..], wide.len() / 2, 1, 2)?.to_vec())
            };
            let given = gaps(&wide)?;
            let (out, back) = (recv..recv + count, send..send + count);
            let mut part = strided_mut(&mut wide, expected.len(), 1, 2)?;
            ctx.sendrecv_within(&mut part, out, before, 9, back, after, 9)?;
            expected[send..][..count].copy_from_slice(&mine);
            assert!(same(&strided(&wide, expected.len(), 1, 2)?.to_vec(), &expected));
            assert!(same(&gaps(&wide)?, &given));
        }
    }
    let wrong = ctx.sendrecv_within(&mut [0; 3], 0..2, me, 0, 2..4, me, 0);
    assert!(wrong.is_err_and(|error| error.to_string().contains("2..4 is no range of the 3")));
    Ok(())
}

/// Messages of one value, and into a vector that there is.
pub fn values_and_vectors(ctx: &Ctx) -> Result<()> {
    fn pass<T: Sample>(ctx: &Ctx) -> Result<()> {
        let given = data::<T>(11, 40);
        if ctx.rank() == 0 {
            given.iter().try_for_each(|value| ctx.send_value(*value, 1, 3))?;
            for count in [40, 0, 7, 40] {
                ctx.send(&given[..count], 1, 4)?;
            }
            ctx.send(&data::<T>(12, 3 * STAGING), 1, 4)?;
            ctx.send(&given[..0], 1, 5)?;
            ctx.send(&given[..2], 1, 5)?;
            return ctx.send_value(given[0], 1, 5);
        }
        for value in &given {
            let (got, status) = ctx.recv_value::<T>(0, 3)?;
            assert!(same(&[got], &[*value]) && (status.source(), status.len()) == (0, 1));
        }
        let mut got = data::<T>(13, 9);
        for count in [40, 0, 7, 40] {
            assert_eq!(ctx.recv_into(&mut got, ANY, 4)?.len(), count);
            assert!(same(&got, &given[..count]));
        }
        let room = (got.capacity(), got.as_ptr());
        got.clear();
        assert_eq!((got.capacity(), got.as_ptr()), room, "the memory is used again");
        ctx.recv_into(&mut got, 0, 4)?;
        assert!(same(&got, &data::<T>(12, 3 * STAGING)));
        assert!(matches!(ctx.recv_value::<T>(0, 5), Err(Error::Length(_))));
        assert!(matches!(ctx.recv_value::<T>(0, 5), Err(Error::Truncated(_))));
        assert!(same(&[ctx.recv_value::<T>(0, 5)?.0], &given[..1]));
        Ok(())
    }
    pass::<f64>(ctx)?;
    pass::<[f32; 3]>(ctx)?;
    pass::<bool>(ctx)?;
    pass::<Flagged>(ctx)
}
