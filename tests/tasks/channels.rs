//! Channels between tasks, and tasks in sequence.

use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};

use spmd::prelude::*;
use spmd::tasks::{Sequence, channel, spawn, spawn_sequential};

use crate::support::World;

#[test]
fn pipelines() -> Result<()> {
    World::default().everywhere("channels::pipelines", &[1, 3], |ctx| {
        for (depth, values) in [(0, 100), (1, 1000), (7, 1000), (100, 10), (3, 0)] {
            let (first, inbox) = channel(depth);
            let (second, outbox) = channel(depth);
            let numbers = ctx.spawn(move || (0..values).try_for_each(|x: u64| first.send(x)));
            let squares = ctx
                .spawn(move || inbox.iter().try_for_each(|x| x.and_then(|x| second.send(x * x))));
            let received = outbox.iter().collect::<Result<Vec<u64>>>()?;
            assert!(received.into_iter().eq((0..values).map(|x| x * x)), "depth {depth}");
            assert_eq!(outbox.recv()?, None);
            numbers.take()?;
            squares.take()?;
        }
        Ok(())
    })
}

/// Never more values than there is room for, from many to many, and none lost.
#[test]
fn many_ends() -> Result<()> {
    World::default().everywhere("channels::many_ends", &[1, 2], |ctx| {
        let (sender, receiver) = channel::<Arc<AtomicUsize>>(3);
        let inside = Arc::new(AtomicUsize::new(0));
        let senders = (0..20).map(|_| {
            let (sender, inside) = (sender.clone(), inside.clone());
            ctx.spawn(move || (0..50).try_for_each(|_| sender.send(inside.clone())))
        });
        let senders: Vec<_> = senders.collect();
        drop(sender);
        let receivers = (0..10).map(|_| {
            let receiver = receiver.clone();
            ctx.spawn(move || {
                receiver.iter().try_fold(0, |count, value| {
                    value?.fetch_add(1, SeqCst);
                    Ok(count + 1)
                })
            })
        });
        let counts = Task::wait_all(receivers.collect())?;
        assert_eq!(counts.iter().sum::<usize>(), 1000);
        assert_eq!(inside.load(SeqCst), 1000);
        Task::wait_all(senders).map(drop)
    })
}

/// Who waits is woken, also if another one was that had its turn already.
#[test]
fn nobody_is_forgotten() -> Result<()> {
    let world = World { resources: "cpu=4", ..World::default() };
    world.everywhere("channels::nobody_is_forgotten", &[1], |ctx| {
        for _ in 0..400 {
            let (sender, receiver) = channel::<usize>(1);
            let send = |_| {
                let sender = sender.clone();
                ctx.spawn(move || (0..2).try_for_each(|value| sender.send(value)))
            };
            let senders: Vec<_> = (0..4).map(send).collect();
            let receive = |_| {
                let receiver = receiver.clone();
                ctx.spawn(move || (0..4).try_for_each(|_| receiver.recv().map(drop)))
            };
            Task::wait_all((0..2).map(receive).collect())?;
            Task::wait_all(senders)?;
        }
        Ok(())
    })
}

#[test]
fn the_other_end_is_gone() -> Result<()> {
    World::default().everywhere("channels::the_other_end_is_gone", &[1], |ctx| {
        let (sender, receiver) = channel(2);
        let sends = ctx.spawn(move || {
            let sent = (0..).map(|x: usize| sender.send(x)).take_while(Result::is_ok).count();
            Ok((sent, sender.send(0).expect_err("nobody receives").to_string()))
        });
        assert_eq!(receiver.recv()?, Some(0));
        drop(receiver);
        let (sent, error) = sends.take()?;
        assert!((1..=3).contains(&sent), "{sent}");
        assert!(error.contains("tests/tasks/channels.rs"), "{error}");
        Ok(())
    })
}

/// Ends that a failed rank's tasks wait at.
#[test]
fn a_rank_fails_meanwhile() {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        let ended = block.run(|ctx| {
            let (sender, receiver) = channel::<u8>(1);
            let kept = sender.clone();
            for _ in 0..10 {
                let (sender, receiver) = (sender.clone(), receiver.clone());
                drop(ctx.spawn(move || receiver.recv().map(drop)));
                drop(ctx.spawn(move || (0..100).try_for_each(|_| sender.send(1))));
            }
            if ctx.rank() == 1 { Err("enough".into()) } else { Ok(()) }.inspect_err(|_| drop(kept))
        });
        assert!(ended.is_err());
    }
}

#[test]
fn one_after_the_other() -> Result<()> {
    World::default().everywhere("channels::one_after_the_other", &[1, 2], |ctx| {
        let (log, sequence) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Sequence::new()));
        let put = |number: usize| {
            let log = log.clone();
            move || {
                let before = log.lock().expect("no panic").len();
                std::thread::yield_now();
                let mut log = log.lock().expect("no panic");
                assert_eq!(log.len(), before, "two at a time");
                log.push(number);
                if number % 7 == 3 { Err("it fails".into()) } else { Ok(number) }
            }
        };
        let tasks: Vec<_> = (0..200).map(|i| ctx.spawn_sequential(&sequence, put(i))).collect();
        let failed = tasks.iter().filter(|task| task.fetch().is_err()).count();
        assert_eq!(failed, (0..200).filter(|i| i % 7 == 3).count());
        // From a task, too.
        let (inner, one) = (sequence.clone(), put(200));
        ctx.spawn(move || spawn_sequential(&inner, one).take()).take()?;
        spawn(|| Ok(())).take()?;
        assert!(log.lock().expect("no panic").iter().copied().eq(0..=200));
        Ok(())
    })
}

/// A task that is cancelled, or whose scope gives up, does not let the next one pass the one before.
#[test]
fn a_cancelled_one_in_between() -> Result<()> {
    World::default().everywhere("channels::a_cancelled_one_in_between", &[1], |ctx| {
        let sequence = Sequence::new();
        let inside = Arc::new(AtomicUsize::new(0));
        let one = || {
            let inside = inside.clone();
            move || {
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at a time");
                std::thread::sleep(std::time::Duration::from_millis(2));
                inside.fetch_sub(1, SeqCst);
                Ok(())
            }
        };
        for _ in 0..20 {
            let first = ctx.spawn_sequential(&sequence, one());
            let second = ctx.spawn_sequential(&sequence, one());
            let third = ctx.spawn_sequential(&sequence, one());
            second.cancel();
            third.take()?;
            first.take()?;
            assert!(matches!(second.take(), Err(Error::Cancelled { .. })));
        }
        Ok(())
    })
}
