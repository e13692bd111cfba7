//! Tasks with code for the host and for GPUs, and data that come to them by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread::sleep;
use std::time::Duration;

use spmd::Mirror;
use spmd::prelude::*;
use spmd::tasks::{Placed, Processor, Scope, processor_here, resource_ids};

use crate::support::World;

/// Numbers on a card that is none.
struct OnCard {
    numbers: Vec<u64>,
    gpu: u32,
}

impl Mirror<Vec<u64>> for OnCard {
    fn to_gpu(host: &Vec<u64>, gpu: u32) -> Result<OnCard> {
        match gpu {
            13 => Err("GPU 13 has no room".into()),
            _ => Ok(OnCard { numbers: host.clone(), gpu }),
        }
    }

    fn to_host(&self) -> Result<Vec<u64>> {
        Ok(self.numbers.clone())
    }

    fn bytes(host: &Vec<u64>) -> usize {
        8 * host.len()
    }
}

type Numbers = Placed<Vec<u64>, OnCard>;

fn numbers(count: u64) -> Data<Numbers> {
    Data::placed::<OnCard>((0..count).collect())
}

/// Adds to each of them, wherever this runs, and says where.
fn add(numbers: &mut Numbers, what: u64) -> Result<Processor> {
    let here = processor_here();
    match here {
        Processor::Host => numbers.host_mut()?.iter_mut().for_each(|it| *it += what),
        Processor::Gpu(gpu) => {
            assert_eq!(resource_ids("gpu"), [gpu]);
            let there = numbers.gpu_mut(gpu)?;
            assert_eq!(there.gpu, gpu);
            there.numbers.iter_mut().for_each(|it| *it += what);
        }
    }
    Ok(here)
}

fn error_of<T>(outcome: Result<T>) -> String {
    outcome.map(drop).expect_err("it fails").to_string()
}

/// By turns on the host, on two GPUs, and where it is chosen: each gets what the one before has left.
#[test]
fn data_come_to_the_task() -> Result<()> {
    let world = World { resources: "cpu=2;gpu=2", ..World::default() };
    world.everywhere("codelets::data_come_to_the_task", &[1, 3], |ctx| {
        let data = numbers(1000);
        ctx.datadeps(|d| {
            let mut left = Vec::new();
            for turn in 0..40 {
                let add = |data: &mut Numbers| add(data, 1);
                let task = d.task().name("add").host_or_gpu();
                let (task, expected) = match turn % 4 {
                    0 => (task.spawn((d.write(&data),), add), None),
                    1 => (d.spawn((d.write(&data),), add), Some(Processor::Host)),
                    gpu => {
                        let gpu = gpu as u32 - 2;
                        let on = || Ok(task.spawn((d.write(&data),), add));
                        (ctx.with_scope(Scope::gpu(gpu), on)?, Some(Processor::Gpu(gpu)))
                    }
                };
                left.push((task, expected));
                // Some read what is there meanwhile, where it is.
                let sum = move |data: &Numbers| match processor_here() {
                    Processor::Host => Ok(data.host()?.iter().sum::<u64>()),
                    Processor::Gpu(gpu) => Ok(data.gpu(gpu)?.numbers.iter().sum()),
                };
                let sums = [(); 3]
                    .map(|()| d.task().name("sum").host_or_gpu().spawn((d.read(&data),), sum));
                for sum in sums {
                    assert_eq!(sum.take()?, 999 * 500 + 1000 * (turn + 1));
                }
            }
            for (task, expected) in left {
                let ran = task.take()?;
                assert!(expected.is_none_or(|expected| ran == expected), "{ran:?}, {expected:?}");
            }
            Ok(())
        })?;
        assert!(data.into_inner().into_inner()?.into_iter().eq((0..1000).map(|it| it + 40)));
        Ok(())
    })
}

/// What takes ten times as long on the host runs on the GPU, once both have been tried.
#[test]
fn where_it_takes_less() -> Result<()> {
    let world = World { resources: "cpu=1;gpu=1", ..World::default() };
    world.everywhere("codelets::where_it_takes_less", &[1], |ctx| {
        for (name, host, gpu) in [("for GPUs", 40, 2), ("for hosts", 2, 40)] {
            let on_gpu = Arc::new(AtomicUsize::new(0));
            for turn in 0..20 {
                let on_gpu = on_gpu.clone();
                let task = ctx.task().name(name).host_or_gpu().spawn(move || {
                    let here = processor_here();
                    sleep(Duration::from_millis(if here == Processor::Host { host } else { gpu }));
                    on_gpu.fetch_add(usize::from(here != Processor::Host), SeqCst);
                    Ok(())
                });
                task.fetch()?;
                let why = task.explain();
                assert!(turn < 5 || why.contains("tasks of its name"), "{why}");
            }
            let (on_gpu, least) = (on_gpu.load(SeqCst), if host > gpu { 15 } else { 0 });
            assert!((least..=least + 5).contains(&on_gpu), "{on_gpu} of 20 {name}");
        }
        Ok(())
    })
}

#[test]
fn without_a_gpu() -> Result<()> {
    let world = World { resources: "cpu=2", ..World::default() };
    world.everywhere("codelets::without_a_gpu", &[1, 2], |ctx| {
        let here = || Ok(processor_here());
        let task = ctx.with_scope(Scope::gpu(0), || Ok(ctx.task().host_or_gpu().spawn(here)))?;
        assert_eq!(task.fetch()?, &Processor::Host);
        let why = task.explain();
        assert!(why.contains("on the host, as its process has no GPU"), "{why}");
        ctx.task().host_or_gpu().spawn(here).take().map(drop)
    })
}

#[test]
fn what_goes_wrong() -> Result<()> {
    let world = World { resources: "cpu=2;gpu=(0,13)", ..World::default() };
    world.everywhere("codelets::what_goes_wrong", &[1, 2], |ctx| {
        let here = || Ok(processor_here());
        // There are others.
        let task = ctx.with_scope(Scope::gpu(5), || Ok(ctx.task().host_or_gpu().spawn(here)))?;
        let error = error_of(task.take());
        assert!(
            error.contains("it asks for 1 gpu of [5], its scope, and this process has 0"),
            "{error}"
        );
        // A copy that fails leaves the data as they were.
        let data = numbers(10);
        ctx.datadeps(|d| {
            let task = d.task().host_or_gpu();
            let add_one = |data: &mut Numbers| add(data, 1);
            let on = || Ok(task.spawn((d.write(&data),), add_one));
            let error = error_of(ctx.with_scope(Scope::gpu(13), on)?.take());
            assert!(error.contains("GPU 13 has no room"), "{error}");
            Ok(())
        })?;
        assert!(data.into_inner().into_inner()?.into_iter().eq(0..10));
        // Cancelled before it begins, it counts nowhere.
        let never = ctx.task().host_or_gpu().retry(1).spawn(|| Ok(()));
        never.cancel();
        let _ = never.take();
        Ok(())
    })
}
