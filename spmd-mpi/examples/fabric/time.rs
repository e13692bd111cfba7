//! How long steps and packets take.

use std::hint::black_box;
use std::time::Instant;

use spmd_core::Result;
use spmd_core::element::Element;
use spmd_core::op::{ErasedOp, Sum};
use spmd_core::transport::fabric::{Fabric, Fold, NativeCollective};

/// Calls of one measurement.
const CALLS: usize = 20_000;

/// The best of so many is what counts.
const ROUNDS: usize = 30;

/// Prints nanoseconds a call.
pub fn all(fabric: &dyn Fabric) -> Result<()> {
    let world = fabric.world();
    let (send, mut recv) = ([1.0f64], [0.0f64]);
    let fold = Fold {
        send: send.as_ptr().cast(),
        recv: recv.as_mut_ptr().cast(),
        count: 1,
        dtype: &f64::DTYPE,
        op: &ErasedOp::new::<f64, Sum>(&Sum),
    };
    let run = |step| {
        // SAFETY: `send` and `recv` hold one element each and outlive the calls.
        unsafe { world.run(step) }
    };
    let allreduce = best(|| run(NativeCollective::Allreduce(black_box(fold))))?;
    let barrier = best(|| run(NativeCollective::Barrier))?;
    let requests = best(|| {
        // SAFETY: as above.
        let mut requests = unsafe { world.start(NativeCollective::Allreduce(black_box(fold)))? };
        while !requests.test()? {}
        Ok(())
    })?;
    let me = fabric.process();
    let one_way = if me < 2 && fabric.processes() > 1 {
        best(|| round_trip(fabric, 1 - me))? / 2.0
    } else {
        0.0
    };
    if me == 0 {
        println!(
            "allreduce {allreduce:.0} barrier {barrier:.0} iallreduce {requests:.0} packet {one_way:.0} ns"
        );
    }
    run(NativeCollective::Barrier)
}

/// The least time of a call.
fn best(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..CALLS {
            call()?;
        }
        best = best.min(began.elapsed().as_secs_f64() * 1e9 / CALLS as f64);
    }
    Ok(best)
}

/// A packet there and back.
fn round_trip(fabric: &dyn Fabric, peer: usize) -> Result<()> {
    if fabric.process() == 0 {
        fabric.send(peer, [&[1; 64], &[]])?;
    }
    while !fabric.receive(&mut |_, packet| assert_eq!(packet.len(), 64))? {}
    if fabric.process() == 1 {
        fabric.send(peer, [&[1; 64], &[]])?;
    }
    Ok(())
}
