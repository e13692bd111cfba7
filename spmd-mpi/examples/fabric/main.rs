//! Checks what an MPI gives a world, against results that are computed beside it:
//!
//!     cargo build --release -p spmd-mpi --examples
//!     mpiexec -n 3 target/release/examples/fabric
//!
//! `fabric time` measures instead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, thread};

use spmd_core::transport::fabric::{
    Fabric, FabricRequest, MAX_PACKET, NativeCollective, ProcessGroup,
};
use spmd_core::{Error, Result};

mod steps;
mod time;

fn main() -> Result<()> {
    let fabric = spmd_mpi::attach()?;
    if env::args().nth(1).is_some_and(|argument| argument == "time") {
        return time::all(&*fabric);
    }
    let (me, all) = (fabric.process(), fabric.processes());
    if me == 0 {
        println!("{all} processes on {}, hosts {:?}", fabric.name(), fabric.hosts());
        println!("launched: {}", spmd_mpi::launched());
    }
    check("packets", &*fabric, packets);
    check("packets sent while others are received", &*fabric, answers);
    check("payloads", &*fabric, payloads);
    check("a payload that nobody gives", &*fabric, abandoned);
    check("steps", &*fabric, |fabric| steps::all(&*fabric.world()));
    check("subsets", &*fabric, subsets);
    check("many subsets", &*fabric, many_subsets);
    check("threads", &*fabric, threads);
    check("errors", &*fabric, errors);
    Ok(())
}

/// Runs one check on all processes, and says how long it took.
fn check(name: &str, fabric: &dyn Fabric, run: impl Fn(&dyn Fabric) -> Result<()>) {
    let began = Instant::now();
    if let Err(error) = run(fabric).and_then(|()| barrier(&*fabric.world())) {
        eprintln!("process {}: {name}: {error}", fabric.process());
        fabric.abort(1);
    }
    if fabric.process() == 0 {
        println!("{name}: {:.1?}", began.elapsed());
    }
}

fn barrier(world: &dyn ProcessGroup) -> Result<()> {
    // SAFETY: a barrier names no memory.
    unsafe { world.run(NativeCollective::Barrier) }
}

/// What byte `at` of something that is known by `number` is.
fn pattern(number: usize, at: usize) -> u8 {
    (number * 31 + at * 7 + (at >> 8)) as u8
}

fn data(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| pattern(number, at)).collect()
}

/// Everybody sends everybody 10,000 packets, some of the largest size, and looks for what has come
/// now and then.
fn packets(fabric: &dyn Fabric) -> Result<()> {
    const PACKETS: usize = 10_000;
    let (me, all) = (fabric.process(), fabric.processes());
    let length = |number: usize| match number % 1000 {
        0 => MAX_PACKET,
        1 => 0,
        small => 8 + small / 4,
    };
    let mut next = vec![0; all];
    let mut seen = |from: usize, packet: &[u8]| {
        let number = next[from];
        assert_eq!(packet, data(from + number, length(number)), "packet {number} from {from}");
        next[from] += 1;
    };
    let mut come = 0;
    for number in 0..PACKETS {
        for to in 0..all {
            fabric.send(to, [&[], &data(me + number, length(number))])?;
        }
        if number % 100 == 0 {
            come += usize::from(fabric.receive(&mut seen)?);
        }
    }
    while come < PACKETS * all {
        come += usize::from(fabric.receive(&mut seen)?);
    }
    assert_eq!(come, PACKETS * all);
    Ok(())
}

/// Packets that are answered from within `receive`.
fn answers(fabric: &dyn Fabric) -> Result<()> {
    const ROUNDS: u8 = 100;
    let (all, mut done) = (fabric.processes(), 0);
    for to in 0..all {
        fabric.send(to, [&[], &[ROUNDS]])?;
    }
    while done < all {
        fabric.receive(&mut |from, packet| match packet {
            [0] => done += 1,
            [left] => fabric.send(from, [&[left - 1], &[]]).expect("it can send"),
            _ => panic!("{packet:?}"),
        })?;
    }
    Ok(())
}

fn wait(requests: &mut dyn FabricRequest) -> Result<()> {
    while !requests.test()? {
        thread::yield_now();
    }
    Ok(())
}

/// A mebibyte to each from each, in both directions at once; and a payload is not complete before
/// its receiver has begun to take it.
fn payloads(fabric: &dyn Fabric) -> Result<()> {
    const BYTES: usize = 1 << 20;
    let (me, all) = (fabric.process(), fabric.processes());
    let mut began = VecDeque::new();
    let mut taken: Vec<Vec<u8>> = (0..all).map(|_| vec![0; BYTES]).collect();
    let given = data(me, BYTES);
    for (peer, into) in taken.iter_mut().enumerate() {
        let (out, back) = ((all + me * 1000) as u32, (all + peer * 1000) as u32);
        // SAFETY: both live until all are complete, and nobody touches `into`.
        unsafe {
            began.push_back(fabric.issend(peer, out, given.as_ptr(), BYTES)?);
            began.push_back(fabric.irecv(peer, back, into.as_mut_ptr(), BYTES)?);
        }
    }
    while let Some(mut one) = began.pop_front() {
        wait(&mut *one)?;
    }
    for (peer, into) in taken.iter().enumerate() {
        assert!(*into == data(peer, BYTES), "the payload from {peer}");
    }
    barrier(&*fabric.world())?;
    let (to, from) = ((me + 1) % all, (me + all - 1) % all);
    let (small, mut into) = ([1u8; 8], [0u8; 8]);
    // SAFETY: both live until both are complete; the memory is used after that.
    let (mut gave, mut took) = unsafe {
        let mut gave = fabric.issend(to, u32::MAX, small.as_ptr(), small.len())?;
        for _ in 0..1000 {
            assert!(!gave.test()?, "nobody takes it yet");
        }
        barrier(&*fabric.world())?;
        (gave, fabric.irecv(from, u32::MAX, into.as_mut_ptr(), into.len())?)
    };
    wait(&mut *took)?;
    wait(&mut *gave)?;
    assert_eq!(into, small);
    Ok(())
}

fn abandoned(fabric: &dyn Fabric) -> Result<()> {
    let mut into = [0u8; 64];
    // SAFETY: the memory lives until the receive is dropped.
    let mut taken = unsafe { fabric.irecv(0, 77, into.as_mut_ptr(), into.len())? };
    assert!(!taken.test()?);
    drop(taken);
    Ok(())
}

/// Halves, in reverse order; steps on both at once; sets of one.
fn subsets(fabric: &dyn Fabric) -> Result<()> {
    let world = fabric.world();
    let (me, all) = (world.rank(), world.size());
    let half: Vec<usize> = (0..all).filter(|other| other % 2 == me % 2).rev().collect();
    let set = world.subset(&half, 5 + me as u32 % 2)?;
    assert_eq!((half[set.rank()], set.size()), (me, half.len()));
    steps::all(&*set)?;
    let inner: Vec<usize> = (0..set.size()).collect();
    steps::all(&*set.subset(&inner, 1)?)?;
    let alone = world.subset(&[me], me as u32)?;
    steps::all(&*alone)?;
    assert!(matches!(world.subset(&[], 0).err(), Some(Error::Argument(_))));
    // Communicators are dropped when it suits each.
    barrier(&*world)?;
    if me != 0 {
        thread::sleep(Duration::from_millis(200));
    }
    let began = Instant::now();
    drop(set);
    assert!(began.elapsed() < Duration::from_millis(50), "process {me} waited to drop a set");
    Ok(())
}

/// More sets than there are communicators, dropped in another order on each process.
fn many_subsets(fabric: &dyn Fabric) -> Result<()> {
    let world = fabric.world();
    let everybody: Vec<usize> = (0..world.size()).collect();
    let mut kept: Vec<Arc<dyn ProcessGroup>> = Vec::new();
    for key in 0..5000 {
        let set = world.subset(&everybody, key)?;
        if key % 100 == 0 {
            barrier(&*set)?;
        }
        kept.push(set);
        if kept.len() == 10 {
            kept.swap_remove((key as usize * 7 + world.rank()) % 10);
        }
    }
    Ok(())
}

/// Threads of one process that send, while one receives.
fn threads(fabric: &dyn Fabric) -> Result<()> {
    const EACH: usize = 1000;
    let all = fabric.processes();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for number in 0..EACH {
                    fabric.send(number % all, [&[7; 50], &[7; 50]]).expect("it can send");
                }
            });
        }
        let mut come = 0;
        let here = (0..EACH).filter(|number| number % all == fabric.process()).count() * all * 3;
        while come < here {
            come += usize::from(fabric.receive(&mut |_, packet| assert_eq!(packet, [7; 100]))?);
        }
        Ok(())
    })
}

/// What MPI refuses is a value.
fn errors(fabric: &dyn Fabric) -> Result<()> {
    let refused = fabric.send(fabric.processes(), [&[0], &[]]);
    assert!(
        matches!(&refused, Err(Error::Library(refusal)) if refusal.call == "MPI_Isend"),
        "{refused:?}"
    );
    if fabric.process() == 0 {
        println!("    {}", refused.unwrap_err());
    }
    Ok(())
}
