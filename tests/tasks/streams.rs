//! Streams between ranks, in every place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spmd::prelude::*;

use crate::support::World;

/// Each rank is a stage that adds one, in its own code or in a task.
#[test]
fn pipelines() -> Result<()> {
    World::default().everywhere("streams::pipelines", &[1, 2, 4], |ctx| {
        for (depth, count) in [(0, 50), (1, 300), (2, 0), (7, 300), (100, 20), (usize::MAX, 50)] {
            let (me, last) = (ctx.rank(), ctx.size() - 1);
            let mut inbox = None;
            let mut outbox = None;
            for stage in 0..=last {
                let (sender, receiver) =
                    ctx.stream::<u64>(stage, if stage == last { 0 } else { stage + 1 }, depth)?;
                outbox = sender.or(outbox);
                inbox = receiver.or(inbox);
            }
            let (inbox, outbox) = (inbox.expect("one comes"), outbox.expect("one goes"));
            if me > 0 {
                // In a task, or in the rank's own code.
                let add = move || inbox.iter().try_for_each(|x| x.and_then(|x| outbox.send(x + 1)));
                if depth % 2 == 0 {
                    add()?
                } else {
                    ctx.spawn(add).take()?
                }
                continue;
            }
            let sends = ctx.spawn(move || (0..count).try_for_each(|x| outbox.send(x + 1)));
            let came = inbox.iter().collect::<Result<Vec<u64>>>()?;
            assert!(came.into_iter().eq((0..count).map(|x| x + last as u64 + 1)), "depth {depth}");
            assert_eq!(inbox.recv()?, None);
            sends.take()?;
        }
        Ok(())
    })
}

/// So many values go into a stream whose receiver takes none, and not one more.
#[test]
fn who_sends_waits_for_room() -> Result<()> {
    World::default().everywhere("streams::who_sends_waits_for_room", &[2, 3], |ctx| {
        for depth in [1, 2, 5] {
            let (sender, receiver) = ctx.stream::<Vec<u64>>(1, 0, depth)?;
            let sent = Arc::new(AtomicUsize::new(0));
            let count = sent.clone();
            let sends = sender.map(|sender| {
                ctx.spawn(move || {
                    (0..40u64).try_for_each(|x| {
                        sender.send(vec![x; 5000])?;
                        count.fetch_add(1, SeqCst);
                        Ok(())
                    })
                })
            });
            // Long enough for all of them.
            std::thread::sleep(Duration::from_millis(50));
            let sent = sent.load(SeqCst);
            assert!(sent <= depth, "{sent} were sent where {depth} have room");
            ctx.barrier()?;
            if let Some(receiver) = receiver {
                for (x, values) in (0..).zip(receiver.iter()) {
                    assert_eq!(values?, vec![x; 5000]);
                }
            }
            sends.map_or(Ok(()), Task::take)?;
        }
        Ok(())
    })
}

#[test]
fn many_ends() -> Result<()> {
    World::default().everywhere("streams::many_ends", &[2], |ctx| {
        let (sender, receiver) = ctx.stream::<usize>(0, 1, 3)?;
        let mut sums = Vec::new();
        for task in 0..10 {
            if let Some(sender) = sender.clone() {
                sums.push(
                    ctx.spawn(move || (0..50).try_for_each(|_| sender.send(task)).and(Ok(0))),
                );
            }
            if let Some(receiver) = receiver.clone() {
                sums.push(ctx.spawn(move || receiver.iter().sum::<Result<usize>>()));
            }
        }
        drop((sender, receiver));
        let sum: usize = Task::wait_all(sums)?.iter().sum();
        assert_eq!(sum, if ctx.rank() == 1 { 45 * 50 } else { 0 });
        Ok(())
    })
}

/// Who sends is told, some values later, and all goes well otherwise.
#[test]
fn the_receiver_is_gone() -> Result<()> {
    World::default().everywhere("streams::the_receiver_is_gone", &[1, 2], |ctx| {
        for (depth, taken) in [(1, 0), (2, 5), (10, 3)] {
            let (sender, receiver) = ctx.stream::<u64>(0, ctx.size() - 1, depth)?;
            let takes = receiver.map(|receiver| {
                ctx.spawn(move || receiver.iter().take(taken).try_for_each(|value| value.map(drop)))
            });
            if let Some(sender) = sender {
                let told = (0..).find_map(|x| sender.send(x).err()).expect("there is an end");
                let told = told.to_string();
                assert!(
                    told.contains("receivers of the stream made at tests/tasks/streams.rs"),
                    "{told}"
                );
            }
            takes.map_or(Ok(()), Task::take)?;
            ctx.barrier()?;
        }
        // One that has ended before that sends no more, and is not told.
        let (sender, receiver) = ctx.stream::<u64>(0, ctx.size() - 1, 10)?;
        sender.map_or(Ok(()), |sender| (0..5).try_for_each(|x| sender.send(x)))?;
        drop(receiver);
        ctx.barrier()
    })
}

/// A number that does not travel if it is odd, and that nobody takes for one if it is over 100.
#[derive(Debug, PartialEq)]
struct Picky(u64);

impl Serialize for Picky {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 % 2 {
            0 => to.serialize_u64(self.0),
            _ => Err(serde::ser::Error::custom("it is odd")),
        }
    }
}

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Picky, D::Error> {
        match u64::deserialize(from)? {
            many @ 101.. => Err(serde::de::Error::custom(format!("{many} is too many"))),
            few => Ok(Picky(few)),
        }
    }
}

#[test]
fn values_that_do_not_travel() -> Result<()> {
    World::default().everywhere("streams::values_that_do_not_travel", &[2, 3], |ctx| {
        // Before and after it, both ends go well, and both ranks go on.
        for (values, sent) in [([0, 2, 3], false), ([2, 102, 4], true)] {
            let (sender, receiver) = ctx.stream::<Picky>(0, 1, 2)?;
            if let Some(sender) = sender {
                let told = values.into_iter().map(|x| sender.send(Picky(x)));
                let told = told.chain((0..20).map(|_| sender.send(Picky(4))));
                let told = told.collect::<Result<()>>().expect_err("it is told").to_string();
                // What the other rank made of it is that rank's error.
                let words = if sent { "are gone" } else { "to serialize" };
                assert!(told.contains(words), "{told}");
            }
            if let Some(receiver) = receiver {
                let mut came = receiver.iter();
                assert_eq!(came.next().expect("a value")?, Picky(values[0]));
                let error = came.find_map(Result::err).expect("it is told").to_string();
                assert!(
                    error.contains(if sent { "to deserialize" } else { "to serialize" }),
                    "{error}"
                );
                // Whoever asks is told.
                receiver.recv().expect_err("it did not end well");
            }
            ctx.barrier()?;
        }
        Ok(())
    })
}

#[test]
fn wrong_ends() -> Result<()> {
    World::default().everywhere("streams::wrong_ends", &[2, 3], |ctx| {
        let n = ctx.size();
        let error = ctx.stream::<u8>(0, n, 1).expect_err("there is none").to_string();
        assert!(error.contains(&format!("there is no rank {n} among {n}")), "{error}");
        let differ = [ctx.stream::<u8>(ctx.rank(), 0, 1), ctx.stream::<u8>(0, 1, ctx.rank())];
        for differ in differ {
            let error = differ.expect_err("they differ").to_string();
            assert!(error.contains("different ends"), "{error}");
            assert!(error.contains("stream at tests/tasks/streams.rs"), "{error}");
        }
        Ok(())
    })
}
