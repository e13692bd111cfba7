//! What is done with a buffer, by whichever rank, comes after what it depends on.

use spmd::prelude::*;
use spmd_gpu::{Device, DeviceBuffer, Local, OnDevice, Staged};

use super::everywhere;
use crate::card::gpu;

/// A buffer that is dropped right after a call is used to the end.
#[test]
fn what_is_dropped_after_a_call_has_been_used() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(4) {
        let sums = block.run(|ctx| {
            let device = ctx.device()?;
            // A card that is none is slow, and has little.
            let count = (device.memory()?.1 >> 17).min(1 << 20);
            let mut sums = Vec::new();
            for turn in 0..50 {
                let mine = device.buffer_from(&vec![(ctx.rank() + turn) as u64; count])?;
                let mut sum = device.zeros::<u64>(count)?;
                ctx.allreduce(&mine, &mut sum, Sum)?;
                drop(mine);
                let other = device.buffer_from(&vec![u64::MAX; count])?;
                let got = sum.to_vec()?;
                sums.push((got[0], got[count - 1]));
                drop(other);
            }
            Ok(sums)
        })?;
        let expected: Vec<_> = (0..50).map(|turn| (6 + 4 * turn, 6 + 4 * turn)).collect();
        assert!(sums.into_iter().all(|it| it == expected));
    }
    Ok(())
}

/// A buffer that another rank goes on with, on its own stream.
#[test]
fn a_buffer_goes_from_rank_to_rank() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let shelf = std::sync::Mutex::new(None::<DeviceBuffer<u32>>);
    Spmd::new(3).threads().plane(Local::new()).run(|ctx| {
        for turn in 0..30 {
            if turn % ctx.size() == ctx.rank() {
                let device = ctx.device()?;
                let mut buffer = match shelf.lock().unwrap().take() {
                    Some(buffer) => buffer,
                    None => device.zeros(100_000)?,
                };
                assert_eq!(buffer.to_vec()?, vec![turn as u32; 100_000]);
                buffer.copy_from(&vec![turn as u32 + 1; 100_000])?;
                *shelf.lock().unwrap() = Some(buffer);
            }
            ctx.barrier()?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Ranks read one buffer at a time, each on its own stream; then it is written and dropped.
#[test]
fn ranks_share_a_buffer_that_they_read() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        for turn in 0..20u64 {
            let mut shared = Device::open(0)?.buffer_from(&vec![turn; 5000])?;
            for _ in 0..3 {
                let expected = 3 * shared.to_vec()?[0];
                let sums = block.clone().run(|ctx| {
                    let mut sum = ctx.device()?.zeros(5000)?;
                    ctx.allreduce(&shared, &mut sum, Sum)?;
                    Ok(sum)
                })?;
                shared.copy_from(&[99; 5000])?;
                for sum in &sums {
                    assert_eq!(sum.to_vec()?, [expected; 5000]);
                }
            }
        }
    }
    Ok(())
}

/// Each rank copies from one buffer, some of them late; then it is written, and waits for all.
#[test]
fn who_writes_a_buffer_waits_for_all_that_read_it() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        for turn in 0..20u64 {
            let mut shared = Device::open(0)?.buffer_from(&vec![turn; 5000])?;
            let copies = block.clone().run(|ctx| {
                let mut copy = ctx.device()?.zeros(5000)?;
                let late = (ctx.rank() + turn as usize) % 3;
                (0..1 + 8 * late).try_for_each(|_| copy.copy_from_buffer(&shared))?;
                Ok(copy)
            })?;
            shared.copy_from(&[99; 5000])?;
            for copy in &copies {
                assert_eq!(copy.to_vec()?, [turn; 5000]);
            }
        }
    }
    Ok(())
}

/// What a progress thread carries out comes after what its rank has put into its stream, and before
/// what that puts there later.
#[test]
fn a_progress_thread_keeps_the_order() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for plane in [Local::new(), Staged::new()] {
        let block = Spmd::new(3).threads().progress(spmd::Progress::Thread).plane(plane);
        block.run(|ctx| {
            let (device, me) = (ctx.device()?, ctx.rank() as i64);
            let mut call = ctx.allreduce_init(device.zeros(5000)?, device.zeros(5000)?, Sum)?;
            for turn in 0..20 {
                let fresh = device.buffer_from(&[me + turn; 5000])?;
                let mut mine = device.zeros(5000)?;
                (0..9).try_for_each(|_| mine.copy_from_buffer(&fresh))?;
                let (_, mut sums) = ctx.allreduce_start(mine, device.zeros(5000)?, Sum)?.wait()?;
                ctx.allreduce_in_place(&mut sums, Max)?;
                assert_eq!(sums.to_vec()?, [3 + 3 * turn; 5000]);
                (0..9).try_for_each(|_| {
                    call.send_mut()?.copy_from_buffer(&fresh).map_err(Error::from)
                })?;
                call.start()?;
                call.wait()?;
                let mut copy = device.zeros(5000)?;
                copy.copy_from_buffer(call.recv()?)?;
                assert_eq!(copy.to_vec()?, [3 + 3 * turn; 5000]);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Started and persistent calls are the calls of host buffers.
#[test]
fn calls_that_go_on_take_device_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        block.run(crate::on_device::go_on)?;
    }
    Ok(())
}
