//! The plane `aware`: a library that takes memory of devices, which is the loopback fabric, on stand-in
//! cards whose memory the host may read. What is begun takes none, as in MPI libraries.

#[path = "support/card.rs"]
mod card;
mod support;

use spmd::prelude::*;
use spmd_gpu::cudarc::driver::sys;
use spmd_gpu::{Aware, OnDevice, Staged};
use spmd_loopback::Job;
use spmd_matrix::cases_on_device;

/// Calls that move what all ranks have.
fn moved(ctx: &Ctx) -> Result<()> {
    let (device, me, n) = (ctx.device()?, ctx.rank() as u16, ctx.size());
    let mine = device.buffer_from(&vec![me; 20_000])?;
    let mut all = device.zeros(20_000 * n)?;
    ctx.allgather(&mine, &mut all)?;
    let each = (0..n as u16).flat_map(|rank| vec![rank; 20_000]);
    assert_eq!(all.to_vec()?, each.collect::<Vec<_>>());
    ctx.broadcast(&mut all, 1)
}

/// Whether a place is memory of the card of the thread that asks, as the driver says.
fn is_on_device(place: *const u8) -> bool {
    let (mut start, mut bytes) = (0, 0);
    // SAFETY: it writes two numbers; the place may be any.
    let found = unsafe { sys::cuMemGetAddressRange_v2(&mut start, &mut bytes, place as u64) };
    found.result().is_ok()
}

/// Of every kind, apart and in place. By way of the host there is no room.
#[test]
#[ignore = "run by a_library_that_takes_devices_gets_their_addresses"]
fn nothing_goes_by_way_of_the_host() -> Result<()> {
    let job = Job::new(3, 1).takes_devices(is_on_device);
    let job = job.block(|block| block.plane(Aware::new()));
    let ended = job.run(|ctx| {
        let (device, me, n) = (ctx.device()?, ctx.rank(), ctx.size());
        let own = device.buffer_from(&[me as u32 + 1; 12])?;
        let (mut same, mut each) = (device.zeros::<u32>(12)?, device.zeros::<u32>(4)?);
        let mut all = device.zeros::<u32>(36)?;
        let blocks = |lengths: [usize; 3]| {
            let each = lengths.iter().zip(1..).map(|(length, value)| vec![value; *length]);
            each.collect::<Vec<_>>().concat()
        };
        ctx.allreduce(&own, &mut same, Sum)?;
        assert_eq!(same.to_vec()?, [6; 12]);
        ctx.allreduce_in_place(&mut same, Max)?;
        assert_eq!(same.to_vec()?, [6; 12]);
        ctx.reduce(&own, &mut same, Prod, 1)?;
        assert_eq!(same.to_vec()?, [6; 12]);
        same.copy_from_buffer(&own)?;
        ctx.reduce_in_place(&mut same, Sum, 2)?;
        assert_eq!(same.to_vec()?, [if me == 2 { 6 } else { me as u32 + 1 }; 12]);
        ctx.scan(&own, &mut same, Sum)?;
        assert_eq!(same.to_vec()?, [[1, 3, 6][me]; 12]);
        ctx.exscan(&own, &mut same, Sum)?;
        assert_eq!(same.to_vec()?, [[1, 1, 3][me]; 12]);
        same.copy_from_buffer(&own)?;
        ctx.scan_in_place(&mut same, Sum)?;
        assert_eq!(same.to_vec()?, [[1, 3, 6][me]; 12]);
        ctx.reduce_scatter(&own, &mut each, Sum)?;
        assert_eq!(each.to_vec()?, [6; 4]);
        same.copy_from_buffer(&own)?;
        ctx.reduce_scatter_in_place(&mut same, Sum)?;
        assert_eq!(same.to_vec()?[..4], [6; 4]);
        ctx.broadcast(&mut each, 0)?;
        ctx.gather(&own, &mut all, 1)?;
        assert!(me != 1 || all.to_vec()? == blocks([12; 3]));
        ctx.allgather(&own, &mut all)?;
        assert_eq!(all.to_vec()?, blocks([12; 3]));
        ctx.allgather_in_place(&mut all)?;
        assert_eq!(all.to_vec()?, blocks([12; 3]));
        ctx.scatter(&all, &mut same, 1)?;
        assert_eq!(same.to_vec()?, own.to_vec()?);
        ctx.alltoall(&own, &mut same)?;
        assert_eq!(same.to_vec()?, blocks([4; 3]));
        ctx.alltoall_in_place(&mut same)?;
        assert_eq!(same.to_vec()?, [me as u32 + 1; 12]);
        let (counts, mine) = ([1, 0, 5], [1, 0, 5][me]);
        let part = device.buffer_from(&vec![me as u32 + 1; mine])?;
        let mut parts = device.zeros::<u32>(6)?;
        ctx.allgatherv(&part, &mut parts, &counts)?;
        assert_eq!(parts.to_vec()?, blocks(counts));
        ctx.gatherv(&part, &mut parts, &counts, 2)?;
        ctx.scatterv(&parts, &counts, &mut device.zeros::<u32>(mine)?, 2)?;
        let mut came = device.zeros::<u32>(n * mine)?;
        ctx.alltoallv(&parts, &mut came, &counts, &[mine; 3])?;
        assert_eq!(came.to_vec()?, vec![me as u32 + 1; n * mine]);
        Ok(())
    });
    ended.results().map(drop)
}

#[test]
#[ignore = "run by a_library_that_takes_devices_gets_their_addresses"]
fn addresses_are_handed_on() -> Result<()> {
    let aware = |processes, each| Job::new(processes, each).takes_devices(is_on_device);
    for (processes, each) in [(2, 1), (3, 1), (2, 2)] {
        let job = aware(processes, each);
        let job = job.block(|block| block.plane(Aware::new()).plane(Staged::new()));
        job.run(|ctx| cases_on_device(ctx, false)).results()?;
    }
    let told = |job: Job, call: fn(&Ctx) -> Result<()>| {
        job.block(|block| block.plane(Aware::new())).run(call).results().map(drop)
    };
    // By it alone.
    told(aware(3, 1), moved)?;
    // With another communicator, for which others may wait, by way of the host.
    let beside = |ctx: &Ctx| {
        let _other = ctx.dup()?;
        moved(ctx)
    };
    told(aware(3, 1), beside)?;
    let own = |ctx: &Ctx| {
        let first = Op::new(|a: u16, _: u16| a);
        ctx.allreduce_in_place(&mut ctx.device()?.zeros::<u16>(3)?, first)
    };
    let checked = |ctx: &Ctx| ctx.broadcast(&mut ctx.device()?.buffer_from(&[true, false])?, 0);
    let started =
        |ctx: &Ctx| ctx.broadcast_start(ctx.device()?.zeros::<u16>(3)?, 0)?.wait().map(drop);
    for (job, call, why) in [
        (aware(3, 1), own as fn(&Ctx) -> Result<()>, "folds what the MPI library folds"),
        (aware(3, 1), checked, "of which all bits are values"),
        (aware(3, 1), started, "the block's own communicator"),
        (Job::new(3, 1), moved, "does not say that it takes memory of devices"),
        (aware(2, 2), moved, "processes of one rank each"),
    ] {
        let error = told(job, call).expect_err("nobody carries it out").to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    Ok(())
}

/// Here it reads them as the host, on a stand-in card that lets it.
#[test]
fn a_library_that_takes_devices_gets_their_addresses() {
    if card::stand_in() {
        let own = std::env::current_exe().expect("a test knows its own path");
        for (test, pinned) in
            [("addresses_are_handed_on", "1073741824"), ("nothing_goes_by_way_of_the_host", "0")]
        {
            let mut job = std::process::Command::new(&own);
            job.args([test, "--exact", "--ignored"]).env("SPMD_STANDIN_SHOWN", "1");
            let ran = support::finish(job.env("SPMD_STANDIN_PINNED", pinned));
            assert!(ran.code == Some(0) && ran.out.contains("1 passed"), "{ran:?}");
        }
    }
}
