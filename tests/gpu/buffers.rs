//! Buffers and their parts, in copies, in messages and between neighbours.

use spmd::prelude::*;
use spmd_gpu::{Device, GpuError, OnDevice, Staged};

use super::everywhere;
use crate::card::gpu;

#[test]
fn buffers_are_copied_and_checked() -> Result<(), GpuError> {
    if !gpu() {
        return Ok(());
    }
    let device = Device::open(0)?;
    let data: Vec<u16> = (0..5000).collect();
    let mut buffer = device.buffer_from(&data)?;
    assert_eq!((buffer.to_vec()?, buffer.len(), buffer.is_empty()), (data.clone(), 5000, false));
    buffer.copy_from(&data.iter().rev().copied().collect::<Vec<_>>())?;
    let mut back = vec![0; 5000];
    buffer.copy_to(&mut back)?;
    assert!(back.into_iter().rev().eq(data));
    assert_eq!(device.zeros::<f64>(3)?.to_vec()?, [0.0; 3]);
    assert_eq!(device.buffer_from::<i8>(&[])?.to_vec()?, []);
    let short = buffer.copy_to(&mut [0; 3]).unwrap_err();
    assert_eq!(short, GpuError::Length { given: 3, expected: 5000 });
    assert_eq!(buffer.copy_from(&[0; 5001]), Err(GpuError::Length { given: 5001, expected: 5000 }));
    let (_, all) = device.memory()?;
    match device.zeros::<u8>(2 * all) {
        Err(GpuError::OutOfDeviceMemory { asked, free }) => assert!(asked == 2 * all && free < all),
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// What a device copies by itself is there when the copy returns.
#[test]
fn pinned_memory_is_copied() -> Result<(), GpuError> {
    if !gpu() {
        return Ok(());
    }
    let device = Device::open(0)?;
    let mut host = device.pinned::<u64>(5000)?;
    assert_eq!((host.len(), &host[..]), (5000, &[0; 5000][..]));
    let mut buffer = device.zeros::<u64>(5000)?;
    for turn in 1..20 {
        host.fill(turn);
        buffer.copy_from(&host)?;
        host.fill(0);
        buffer.copy_to(&mut host)?;
        assert_eq!(host[..], [turn; 5000]);
    }
    assert_eq!(device.buffer_from(&host)?.to_vec()?, host[..]);
    assert!(device.pinned::<u8>(0)?.is_empty());
    Ok(())
}

/// Parts of buffers are buffers, and one may be read while another one is written.
#[test]
fn parts_of_buffers_are_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        block.run(|ctx| {
            let device = ctx.device()?;
            let mut buffer = device.buffer_from(&(0..10u16).collect::<Vec<_>>())?;
            let (first, rest) = buffer.split_at_mut(4);
            assert_eq!((first.len(), rest.len(), first.is_empty()), (4, 6, false));
            ctx.allreduce(&first.slice(1..4), &mut rest.split_at_mut(3).1, Sum)?;
            assert_eq!(buffer.to_vec()?, [0, 1, 2, 3, 4, 5, 6, 3, 6, 9]);
            ctx.broadcast(&mut buffer.slice_mut(2..5), 1)?;
            for range in [8..11, 11..11] {
                let part = || buffer.slice(range.clone()).len();
                assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).is_err());
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Messages between buffers of the device, the host's, and longer ones.
#[test]
fn messages_take_device_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let blocks = [Spmd::new(3).threads(), Spmd::new(3).virtual_ranks()];
    for block in blocks {
        block.segment(1024).run(|ctx| {
            let (device, me) = (ctx.device()?, ctx.rank() as u32);
            let (left, right) = ((ctx.rank() + 2) % 3, (ctx.rank() + 1) % 3);
            for count in [0, 1, 100, 3000, 100_000] {
                let mine = device.buffer_from(&vec![me; count])?;
                let mut room = device.buffer_from(&vec![9; count + 2])?;
                let status = ctx.sendrecv(&mine, right, 1, &mut room, left, 1)?;
                assert_eq!((status.len(), status.source()), (count, left));
                let came = room.to_vec()?;
                assert_eq!(
                    (&came[..count], &came[count..]),
                    (&vec![left as u32; count][..], &[9, 9][..])
                );
                // Each sends before it receives, unless that is large.
                match ctx.rank() {
                    0 => ctx.send(&mine, 1, 2)?,
                    1 => {
                        ctx.recv(&mut room, 0, 2)?;
                        assert_eq!(room.to_vec()?[..count], vec![0; count]);
                        ctx.ssend(&room, 2, 3)?;
                    }
                    _ => {
                        let message = ctx.mprobe(1, 3)?;
                        assert_eq!(
                            message.recv(&mut device.zeros::<u32>(count + 2)?)?.len(),
                            count + 2
                        );
                    }
                }
                let (came, status) = ctx.sendrecv_vec(&mine, right, 5, left, 5)?;
                assert_eq!((came, status.source()), (vec![left as u32; count], left));
                // From a device to the host, and back.
                ctx.send(&vec![me + 7; 5], ctx.rank(), 4)?;
                let mut five = device.zeros::<u32>(5)?;
                ctx.recv(&mut five, ctx.rank(), 4)?;
                ctx.send(&five, ctx.rank(), 4)?;
                assert_eq!(ctx.recv_vec::<u32>(ctx.rank(), 4)?.0, [me + 7; 5]);
            }
            let mut short = device.zeros::<u32>(3)?;
            ctx.send(&device.zeros::<u32>(4)?, ctx.rank(), 5)?;
            let error = ctx.recv(&mut short, ctx.rank(), 5).expect_err("it is too long");
            assert!(error.to_string().contains("buffers.rs"), "{error}");
            ctx.send(&device.buffer_from(&[true])?, ctx.rank(), 6)?;
            assert!(ctx.recv(&mut short, ctx.rank(), 6).is_err());
            Ok(())
        })?;
    }
    Ok(())
}

/// Neighbours in a grid, also at its ends.
#[test]
fn neighbors_take_device_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        block.plane(Staged::new()).run(|ctx| {
            let line = ctx.cartesian(&[3], &[false])?.expect("it has a place for all");
            let (device, me) = (ctx.device()?, line.rank() as i32);
            let mine = device.buffer_from(&[10 * me, 10 * me + 1])?;
            let mut around = device.buffer_from(&[-1; 4])?;
            line.neighbor_allgather(&mine, &mut around)?;
            let expected = [[-1, -1, 10, 11], [0, 1, 20, 21], [10, 11, -1, -1]];
            assert_eq!(around.to_vec()?, expected[ctx.rank()]);
            let mut from = device.buffer_from(&[-1; 2])?;
            line.neighbor_alltoall(&mine, &mut from)?;
            // Each has its second number for the one after it.
            assert_eq!(from.to_vec()?, [[-1, 10], [1, 20], [11, -1]][ctx.rank()]);
            // One number for the one before, two for the one after.
            let three = device.buffer_from(&[100 * me, 100 * me + 1, 100 * me + 2])?;
            let mut from = device.buffer_from(&[-1; 3])?;
            line.neighbor_alltoallv(&three, &mut from, &[1, 2], &[2, 1])?;
            let expected = [[-1, -1, 100], [1, 2, 200], [101, 102, -1]];
            assert_eq!(from.to_vec()?, expected[ctx.rank()]);
            Ok(())
        })?;
    }
    Ok(())
}

/// Parts of one buffer, in either order and over each other.
#[test]
fn parts_of_a_buffer_go_around() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let blocks = [Spmd::new(3).threads(), Spmd::new(3).virtual_ranks()];
    for block in blocks {
        block.segment(1024).run(|ctx| {
            let (left, right) = ((ctx.rank() + 2) % 3, (ctx.rank() + 1) % 3);
            for count in [0, 1, 100, 3000] {
                for (send, recv) in [(0, count + 3), (count + 3, 0), (1, 1), (2, 0), (0, 2)] {
                    let of = |rank: usize| {
                        (0..2 * count + 5).map(move |at| 1e5 * rank as f64 + at as f64)
                    };
                    let mut field =
                        ctx.device()?.buffer_from(&of(ctx.rank()).collect::<Vec<_>>())?;
                    let (out, back) = (send..send + count, recv..recv + count);
                    let status =
                        ctx.sendrecv_within(&mut field, out.clone(), right, 1, back, left, 1)?;
                    assert_eq!((status.len(), status.source()), (count, left));
                    let mut expected: Vec<f64> = of(ctx.rank()).collect();
                    let came: Vec<f64> = of(left).collect();
                    expected[recv..][..count].copy_from_slice(&came[out]);
                    assert_eq!(field.to_vec()?, expected);
                }
            }
            let mut few = ctx.device()?.zeros::<u32>(3)?;
            let error = ctx.sendrecv_within(&mut few, 0..2, right, 1, 2..4, left, 1);
            assert!(
                error.is_err_and(|error| error.to_string().contains("2..4 is no range of the 3"))
            );
            // Some have theirs on the host.
            let mut parts = [1, 2, 3].map(|at| 10 * ctx.rank() as u32 + at);
            if ctx.rank() == 1 {
                ctx.sendrecv_within(&mut parts, 0..1, right, 1, 1..2, left, 1)?;
            } else {
                let mut there = ctx.device()?.buffer_from(&parts)?;
                let mut last = there.slice_mut(0..2);
                ctx.sendrecv_within(&mut last, 0..1, right, 1, 1..2, left, 1)?;
                there.copy_to(&mut parts)?;
            }
            assert_eq!(parts, [[1, 21, 3], [11, 1, 13], [21, 11, 23]][ctx.rank()]);
            Ok(())
        })?;
    }
    Ok(())
}

/// Halos of one to four axes, those of some ranks on the host: as all of them there.
#[test]
fn halos_of_device_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let shapes: [(&[usize], &[usize], usize); 5] = [
        (&[4], &[9, 3], 2),
        (&[2, 2], &[5, 7], 1),
        (&[2, 2], &[8, 6, 2], 2),
        (&[1, 2, 2], &[5, 6, 4], 1),
        (&[2, 1, 2, 1], &[4, 3, 5, 3], 1),
    ];
    for block in [Spmd::new(4).threads(), Spmd::new(4).virtual_ranks()] {
        block.segment(1024).run(|ctx| {
            for (dims, shape, width) in shapes {
                let closed: Vec<bool> = (0..dims.len()).map(|axis| axis % 2 == 0).collect();
                let grid = ctx.cartesian(dims, &closed)?.expect("a place for each");
                let cells = 0..shape.iter().product();
                let own: Vec<i32> =
                    cells.map(|at: usize| 10_000 * grid.rank() as i32 + at as i32).collect();
                let mut expected = own.clone();
                grid.exchange_halo(&mut expected, shape, width)?;
                for on_host in [grid.size(), 0] {
                    let mut got = own.clone();
                    if grid.rank() == on_host {
                        grid.exchange_halo(&mut got, shape, width)?;
                    } else {
                        let mut field = ctx.device()?.buffer_from(&own)?;
                        grid.exchange_halo(&mut field, shape, width)?;
                        field.copy_to(&mut got)?;
                    }
                    assert_eq!(got, expected, "{dims:?} {shape:?}");
                }
            }
            let grid = ctx.cartesian(&[4], &[false])?.expect("a place for each");
            let mut field = ctx.device()?.zeros::<f32>(7)?;
            let error = grid.exchange_halo(&mut field, &[8], 1).expect_err("it has 7").to_string();
            assert!(error.contains("has 7") && error.contains("buffers.rs"), "{error}");
            Ok(())
        })?;
    }
    Ok(())
}
