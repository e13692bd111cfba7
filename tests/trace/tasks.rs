//! Tasks, beside the calls of their ranks.

use std::time::Duration;

use spmd::prelude::*;
use spmd::tasks::spawn;

use crate::events::Trace;
use crate::support::{finish, is_process_rank, spmdrun_self};

/// Runs `body`, as the test of this name does, in every place; and gives the trace of each with the number
/// of its ranks to `check`.
fn everywhere(test: &str, body: fn(&Ctx) -> Result<()>, check: impl Fn(&Trace, usize)) {
    in_places(test, &[("processes", 2), ("threads", 2), ("virtual", 3)], body, check);
}

fn in_places(
    test: &str,
    places: &[(&str, usize)],
    body: fn(&Ctx) -> Result<()>,
    check: impl Fn(&Trace, usize),
) {
    if is_process_rank() {
        run(body).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (mode, ranks) in places.iter().copied() {
        let path = folder.path().join(mode);
        let mut job = spmdrun_self(&format!("tasks::{test}"), ranks);
        let ran = finish(job.env("SPMD_AS", mode).env("SPMD_TRACE", &path));
        assert_eq!(ran.code, Some(0), "{mode}: {ran:?}");
        check(&Trace::read(&path), ranks);
    }
}

fn nap(milliseconds: u64) -> Result<u64> {
    std::thread::sleep(Duration::from_millis(milliseconds));
    Ok(milliseconds)
}

#[test]
fn how_they_end() {
    fn body(ctx: &Ctx) -> Result<()> {
        let long = "a name that is so long that nobody would want to read all of it";
        let named = ctx.task().name(long).spawn(|| nap(2));
        let fails = ctx.task().name("fails").spawn(|| Err::<(), _>("no".into()));
        let panics = ctx.task().name("panics").spawn(|| -> Result<()> { panic!("deliberate") });
        let gate = ctx.task().name("gate").spawn(|| nap(20));
        let cancelled = ctx.task().name("cancelled").spawn_after((&gate,), |_| Ok(()));
        cancelled.cancel();
        assert!(fails.take().is_err() && panics.take().is_err() && cancelled.take().is_err());
        named.take().map(drop)
    }
    everywhere("how_they_end", body, |trace, ranks| {
        let end_of = |name: &str| {
            let bars = trace.tasks(name);
            assert_eq!(bars.len(), ranks, "{name}: {:?}", trace.bars);
            let mut of_ranks: Vec<_> = bars.iter().map(|bar| bar.args["rank"].as_u64()).collect();
            of_ranks.sort();
            assert_eq!(of_ranks, (0..ranks as u64).map(Some).collect::<Vec<_>>());
            assert!(bars.iter().all(|bar| bar.args["queued_us"].as_f64().is_some()));
            bars[0].args["end"].as_str().unwrap().to_owned()
        };
        assert_eq!(end_of("a name that is so long that nobody would want.."), "value");
        assert_eq!(end_of("fails"), "failed");
        assert_eq!(end_of("panics"), "failed");
        assert_eq!(end_of("cancelled"), "cancelled");
    });
}

#[test]
fn arrows_come_from_what_they_need() {
    fn body(ctx: &Ctx) -> Result<()> {
        let parts: Vec<Task<u64>> =
            (0..3).map(|_| ctx.task().name("part").spawn(|| nap(1))).collect();
        let sum =
            ctx.task().name("sum").spawn_after(&parts, |all| Ok(all.iter().copied().sum::<u64>()));
        assert_eq!(sum.take()?, 3);
        let data = Data::new(0);
        ctx.datadeps(|d| {
            d.spawn((d.write(&data),), |x| nap(1).map(|_| *x += 1));
            d.spawn((d.read(&data),), |x| {
                assert_eq!(*x, 1);
                Ok(())
            });
            Ok(())
        })
    }
    everywhere("arrows_come_from_what_they_need", body, |trace, ranks| {
        assert_eq!(trace.arrows.len(), 4 * ranks, "{:?}", trace.arrows);
        let sums = trace.tasks("sum");
        for sum in &sums {
            let is_its = |to: &(_, u64)| to.0 == sum.row && (sum.start..=sum.end).contains(&to.1);
            let starts = trace.arrows.iter().filter(|(_, to)| is_its(to)).map(|(from, _)| from);
            let parts = trace.tasks("part");
            let count = starts.filter(|from| {
                parts
                    .iter()
                    .any(|part| part.row == from.0 && (part.start..=part.end).contains(&from.1))
            });
            assert_eq!(count.count(), 3);
        }
        assert_eq!(sums.len(), ranks);
    });
}

/// A task that waits is cut; a call that it makes lies in its bars.
#[test]
fn a_task_that_waits_is_in_parts() {
    fn body(ctx: &Ctx) -> Result<()> {
        let comm = ctx.dup()?;
        let me = ctx.rank();
        let waits = ctx.task().name("waits").spawn(move || {
            nap(1)?;
            comm.barrier()?;
            let inner = spawn(|| nap(1));
            Ok(nap(1)? + inner.take()?)
        });
        // Not before all workers have something else to do, as long as the rank is not there.
        nap(if me == 0 { 60 } else { 0 })?;
        let others: Vec<Task<u64>> = (0..8).map(|_| ctx.spawn(|| nap(1))).collect();
        ctx.barrier()?;
        Task::wait_all(others)?;
        assert_eq!(waits.take()?, 2);
        Ok(())
    }
    everywhere("a_task_that_waits_is_in_parts", body, |trace, ranks| {
        let parts = trace.tasks("waits");
        assert!(parts.len() >= ranks, "{:?}", trace.bars);
        let ended = |bar: &&&crate::events::Bar| bar.args["end"] == "value";
        assert_eq!(parts.iter().filter(ended).count(), ranks);
        let called = |bar: &&crate::events::Bar| {
            bar.category == "call" && bar.name == "barrier" && trace.around(bar).is_some()
        };
        let calls: Vec<_> = trace.bars.iter().filter(called).collect();
        assert!(calls.len() >= ranks, "{:?}", trace.bars);
        assert!(calls.iter().all(|call| trace.around(call).unwrap().name == "waits"));
        for row in 0..ranks {
            let own = trace.calls(&format!("rank {row}"));
            assert!(own.iter().any(|call| call.starts_with("barrier at ")), "{own:?}");
        }
        // Of the rank that was there first.
        assert!(trace.bars.iter().any(|bar| bar.name == "fetch"), "{:?}", trace.bars);
    });
}

/// Many that wait at a time, each of which is looked at now and then.
#[test]
fn many_that_wait() {
    fn body(ctx: &Ctx) -> Result<()> {
        let comms: Vec<Comm> = (0..200).map(|_| ctx.dup()).collect::<Result<_>>()?;
        let wait = |comm: Comm| {
            ctx.task().name("waits").spawn(move || {
                comm.allreduce_value(1, Sum)?;
                comm.allreduce_value(1, Sum)
            })
        };
        let tasks: Vec<Task<usize>> = comms.into_iter().map(wait).collect();
        ctx.barrier()?;
        assert_eq!(Task::wait_all(tasks)?, [ctx.size(); 200]);
        Ok(())
    }
    everywhere("many_that_wait", body, |trace, ranks| {
        let ended = trace.tasks("waits").into_iter().filter(|bar| bar.args["end"] == "value");
        assert_eq!(ended.count(), 200 * ranks);
        assert!(!trace.rows_of("worker").is_empty(), "{:?}", trace.rows);
    });
}

/// Calls of a thread of the program's own are in a row of that.
#[test]
fn threads_of_ones_own() {
    fn body(ctx: &Ctx) -> Result<()> {
        let comm = ctx.dup()?;
        let sum = std::thread::scope(|threads| {
            let named = std::thread::Builder::new().name("mine".into());
            let thread = named.spawn_scoped(threads, move || comm.allreduce_value(1, Sum));
            thread.expect("a thread").join().expect("it does not panic")
        })?;
        assert_eq!(sum, ctx.size());
        Ok(())
    }
    let places = [("processes", 2), ("threads", 2)];
    in_places("threads_of_ones_own", &places, body, |trace, ranks| {
        let calls = trace.calls("thread mine");
        assert!(calls.len() == ranks && calls[0].starts_with("allreduce_value of 1"), "{calls:?}");
    });
}

/// Calls that were started go on beside the bars of their rank; parts of a task on a row of their own.
#[test]
fn what_goes_on_beside() {
    fn body(ctx: &Ctx) -> Result<()> {
        let started = ctx.allreduce_start(vec![1.0; 1000], vec![0.0; 1000], Sum)?;
        ctx.barrier()?;
        started.wait()?;
        let both = spmd::tasks::join(|| nap(30), || nap(30));
        assert_eq!((both.0?, both.1?), (30, 30));
        // A block in the rank has rows of its own.
        spmd(2, |inner| inner.barrier()).map(drop)
    }
    everywhere("what_goes_on_beside", body, |trace, ranks| {
        assert_eq!(trace.beside.len(), ranks, "{:?}", trace.beside);
        assert!(trace.beside.values().all(|both| both[0].name.starts_with("allreduce")));
        let barriers: usize = trace.bars.iter().filter(|bar| bar.name == "barrier").count();
        assert_eq!(barriers, 3 * ranks);
    });
}
