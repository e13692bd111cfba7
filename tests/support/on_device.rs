//! What ranks do on device buffers, whatever carries it out: calls that go on, and mistakes.

#![allow(dead_code, reason = "each test file uses a part of this")]

use spmd::prelude::*;
use spmd_gpu::OnDevice;

/// Started and persistent calls, in each of which the ranks of `ctx` bring their number and more.
pub fn go_on(ctx: &Ctx) -> Result<()> {
    let (device, me, n) = (ctx.device()?, ctx.rank() as i64, ctx.size() as i64);
    let mut calls = Vec::new();
    for turn in 0..8 {
        let mine = device.buffer_from(&vec![me + turn; 1000])?;
        calls.push(ctx.allreduce_start(mine, device.zeros(1000)?, Sum)?);
    }
    for (turn, call) in calls.into_iter().enumerate() {
        let (mine, sums) = call.wait()?;
        assert_eq!(mine.to_vec()?, vec![me + turn as i64; 1000]);
        assert_eq!(sums.to_vec()?, vec![n * (n - 1) / 2 + n * turn as i64; 1000]);
    }
    let mut call = ctx.allreduce_init(device.zeros(10)?, device.zeros(10)?, Max)?;
    for turn in 0..5 {
        call.send_mut()?.copy_from(&[me * turn; 10])?;
        call.start()?;
        call.wait()?;
        assert_eq!(call.recv()?.to_vec()?, [(n - 1) * turn; 10]);
    }
    let (own, mut all) = (device.buffer_from(&[me; 4])?, device.zeros(4 * ctx.size())?);
    ctx.requests(|requests| {
        requests.allgather(&own, &mut all)?;
        Ok(())
    })?;
    assert_eq!(all.to_vec()?, (0..n).flat_map(|rank| [rank; 4]).collect::<Vec<_>>());
    assert_eq!(ctx.broadcast_start(own, ctx.size() / 2)?.wait()?.to_vec()?, [n / 2; 4]);
    Ok(())
}

/// What rank 1 of three does otherwise than the others, by its name, and what must be said.
pub const MISTAKES: [(&str, &[&str]); 6] = [
    ("another type", &["do not match", "20000 i32", "20000 f32"]),
    ("another count", &["do not match", "20000 f32", "20001 f32"]),
    ("another operation", &["do not match", "with Max", "with Sum"]),
    ("another root", &["do not match", "broadcast"]),
    ("on the host", &["do not match", "places of memory", "20000 f32"]),
    ("no room", &["the device has no room for "]),
];

/// Makes the mistake of this name.
pub fn make(ctx: &Ctx, mistake: &str) -> Result<()> {
    let device = ctx.device()?;
    let mut numbers = device.zeros::<f32>(20_000)?;
    // All is well before it.
    ctx.allreduce_in_place(&mut numbers, Sum)?;
    let other = ctx.rank() == 1;
    match mistake {
        "another type" if other => {
            ctx.allreduce_in_place(&mut device.zeros::<i32>(20_000)?, Sum)?;
        }
        "another count" if other => {
            ctx.allreduce_in_place(&mut device.zeros::<f32>(20_001)?, Sum)?;
        }
        "another operation" if other => ctx.allreduce_in_place(&mut numbers, Max)?,
        "another root" => ctx.broadcast(&mut numbers, usize::from(other))?,
        "on the host" if other => ctx.allreduce_in_place(&mut vec![0f32; 20_000], Sum)?,
        "no room" if other => drop(device.zeros::<u8>(2 * device.memory()?.1)?),
        _ => ctx.allreduce_in_place(&mut numbers, Sum)?,
    }
    numbers.to_vec()?;
    Ok(())
}

/// The variable that names it.
pub const MISTAKE: &str = "SPMD_TEST_MISTAKE";

/// Makes the mistake that [`MISTAKE`] names, as each rank of a process of its own.
pub fn make_named(planes: &[std::sync::Arc<dyn spmd_core::internal::Plane>]) -> Result<()> {
    let mistake = std::env::var(MISTAKE).expect("it is set");
    let error = spmd::run_on_planes(planes, |ctx| make(ctx, &mistake)).expect_err("it is one");
    println!("told: {error}");
    Err(error)
}

/// What must have been said of it, by processes that ended so.
#[track_caller]
pub fn assert_told(mistake: &str, texts: &[&str], (status, said): (Option<i32>, &str)) {
    let told = texts.iter().all(|text| said.contains(text));
    assert!(status != Some(0) && told, "{mistake}: {status:?}: {said}");
    // Each rank by itself: one that failed, and those that it stopped.
    assert_eq!(said.matches("told: ").count(), 3, "{mistake}: {said}");
}
