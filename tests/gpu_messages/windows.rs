//! Windows: what this rank brings and takes is on its device, the parts are on the host.

use spmd::prelude::*;
use spmd_conformance::element::{Flagged, Sample};
use spmd_gpu::OnDevice;

use super::support::{self, Mpi};
use super::{around, card, everywhere, holds, same, values};

fn every_call(ctx: &Ctx) -> Result<()> {
    calls::<f64>(ctx)?;
    calls::<u8>(ctx)?;
    calls::<[f32; 3]>(ctx)?;
    calls::<Flagged>(ctx)?;
    folds(ctx)?;
    mistakes(ctx)
}

#[test]
fn every_call_of_a_window() -> Result<()> {
    everywhere("windows::every_call_of_a_window", &[1, 3], every_call)
}

/// Parts that are reached by requests: each process is on a host of its own, as far as MPI is told.
#[test]
fn over_mpi() -> Result<()> {
    if !card::gpu() {
        return Ok(());
    }
    let alone = [("MPIR_CVAR_NOLOCAL", "1")];
    for mpi in Mpi::all().iter().filter(|mpi| mpi.name == "mpich") {
        support::cluster("windows::over_mpi", mpi, (3, 1, "threads"), &alone, every_call)?;
    }
    Ok(())
}

fn calls<T: Sample>(ctx: &Ctx) -> Result<()> {
    let (device, me, (left, right)) = (ctx.device()?, ctx.rank(), around(ctx));
    for count in [0, 1, 7, 1001, 9000] {
        let (mine, theirs) = (values::<T>(me, count), values::<T>(left, count));
        let old = values::<T>(100, count + 2);
        let (own, mut room) = (device.buffer_from(&mine)?, device.buffer_from(&old)?);
        let window = ctx.window::<T>(3 * count + 1)?;
        window.fence()?;
        window.put(&own, right, 1)?;
        window.put(&own.slice(count / 2..count), right, count + 1)?;
        window.fence()?;
        assert!(same(&window.read(1..1 + count)?, &theirs), "{count}");
        let half = count - count / 2;
        assert!(same(&window.read(1 + count..1 + count + half)?, &theirs[count / 2..]));

        window.get(&mut room.slice_mut(1..1 + count), right, 1)?;
        assert!(holds(&room, &[&old[..1], &mine, &old[1 + count..]].concat())?);
        window.fence()?;

        // What was there, on the device and on the host.
        let fresh = device.buffer_from(&values::<T>(10 + me, count))?;
        let mut before = room.slice_mut(0..count);
        window.get_accumulate(&fresh, &mut before, right, 1, Replace)?;
        assert!(same(&room.to_vec()?[..count], &mine));
        let mut on_host = old[..count].to_vec();
        window.get_accumulate(&own, &mut on_host, right, 1, NoOp)?;
        assert!(same(&on_host, &values(10 + me, count)));
        window.get_accumulate(&mine, &mut room.slice_mut(2..2 + count), right, 1, Replace)?;
        assert!(same(&room.to_vec()?[2..2 + count], &on_host));
        window.accumulate(&fresh, right, 1, Replace)?;
        window.fence()?;
        assert!(same(&window.read(1..1 + count)?, &values(10 + left, count)));

        window.write(count, &own)?;
        assert!(same(&window.read(count..2 * count)?, &mine));
        window.fence()?;
        if count > 0 {
            // Every second element.
            let spread = At::strided(1, count, 1, 2);
            window.put_notify(&own, right, spread, 5)?;
            window.wait_notify(left, 5)?;
            let spread = window.read(1..2 * count)?;
            assert!((0..count).all(|at| same(&spread[2 * at..=2 * at], &theirs[at..=at])));
            window.get(&mut room.slice_mut(0..count), right, At::strided(1, count, 1, 2))?;
            assert!(same(&room.to_vec()?[..count], &mine));
        }
        window.fence()?;
    }
    Ok(())
}

/// Sums of all ranks in the part of one, some by the processor's own instructions.
fn folds(ctx: &Ctx) -> Result<()> {
    let (device, me, n) = (ctx.device()?, ctx.rank() as i64, ctx.size() as i64);
    let window = ctx.window::<i64>(2001)?;
    window.fence()?;
    window.accumulate(&device.buffer_from(&vec![me + 1; 2000])?, 0, 1, Sum)?;
    window.fence()?;
    let least = device.buffer_from(&vec![-me; 2001])?;
    let mut before = device.zeros(2001)?;
    window.get_accumulate(&least, &mut before, 0, 0, Min)?;
    let sum = n * (n + 1) / 2;
    assert!(before.to_vec()?.into_iter().skip(1).all(|it| it == sum || (-n..=0).contains(&it)));
    window.fence()?;
    if me == 0 {
        assert_eq!(window.read(..)?, vec![1 - n; 2001]);
    }
    window.fence()
}

/// What fails leaves the device's memory as it is.
fn mistakes(ctx: &Ctx) -> Result<()> {
    let device = ctx.device()?;
    let window = ctx.window::<u16>(3)?;
    let mut room = device.buffer_from(&[7u16; 4])?;
    let early = window.get(&mut room.slice_mut(0..2), 0, 0).expect_err("there is no epoch");
    assert!(early.to_string().contains("epoch"), "{early}");
    window.fence()?;
    let long = [
        window.get(&mut room, 0, 0),
        window.put(&room, 0, 0),
        window.accumulate(&room, 0, 0, Sum),
        window.write(0, &room),
    ];
    for error in long {
        let error = error.expect_err("the part is shorter").to_string();
        assert!(error.contains("windows.rs"), "{error}");
    }
    let uneven = window.get_accumulate(&[1u16; 3], &mut room, 0, 0, Sum);
    assert!(uneven.expect_err("it is longer").to_string().contains("result"));
    assert!(holds(&room, &[7; 4])?);
    window.fence()?;
    assert_eq!(window.read(..)?, [0; 3]);
    window.fence()
}
