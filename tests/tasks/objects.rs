//! Objects that stay on a rank: who uses them, and until when.

use std::sync::atomic::{AtomicUsize, Ordering::*};

use spmd::prelude::*;
use spmd::tasks::{Mutable, Scope, Shard, remote, spawn};

use crate::support::{World, finish, is_process_rank, spmdrun_self};

/// A sum, and how many have it at a time.
#[derive(Default)]
struct Account {
    sum: u64,
    users: usize,
}

/// Adds to it, and waits for a task of its own meanwhile.
fn add(account: Mutable<Account>, value: u64) -> Result<u64> {
    account.with(|account| {
        account.users += 1;
        let same = spawn(move || Ok(value)).take()?;
        account.sum += same;
        account.users -= 1;
        assert_eq!(account.users, 0, "used by one at a time");
        Ok(account.sum)
    })?
}

fn spoil(account: Mutable<Account>) -> Result<()> {
    account.with(|account| {
        account.sum += 1000;
        panic!("in the middle");
    })
}

fn sum(account: Mutable<Account>) -> Result<u64> {
    account.with(|account| account.sum)
}

fn count(shard: Shard<u64>) -> Result<u64> {
    shard.with(|count| {
        *count += 1;
        *count
    })
}

remote!(add, spoil, sum, count);

#[test]
fn on_one_rank() -> Result<()> {
    World::default().everywhere("objects::on_one_rank", &[1, 2, 3], |ctx| {
        let (me, size) = (ctx.rank(), ctx.size());
        for owner in 0..size {
            let account = ctx.mutable(owner, Account::default)?;
            assert_eq!(account.rank(), owner);
            let adds = (1..=50).map(|value| ctx.spawn_on(owner, add, (account, value)));
            Task::wait_all(adds.collect())?;
            ctx.barrier()?;
            let all = 1275 * size as u64;
            assert_eq!(ctx.spawn_on(owner, sum, (account,)).take()?, all);
            // Elsewhere it is not, whatever the place: not for the rank, and not for its tasks.
            match account.with(|account| account.sum) {
                Ok(sum) => assert_eq!((sum, me), (all, owner)),
                Err(error) => {
                    let text = error.to_string();
                    assert!(me != owner && text.contains(&format!("rank {owner}")), "{text}");
                    assert!(text.contains("tests/tasks/objects.rs"), "{text}");
                }
            }
            assert_eq!(ctx.spawn(move || sum(account)).take().is_ok(), me == owner);
            ctx.barrier()?;
            // Who panics leaves it to the others.
            let spoiled = ctx.spawn_on(owner, spoil, (account,)).take().expect_err("it panics");
            assert!(spoiled.to_string().contains("in the middle"), "{spoiled}");
            ctx.barrier()?;
            let spoiled = all + 1000 * size as u64;
            assert_eq!(ctx.spawn_on(owner, sum, (account,)).take()?, spoiled);
        }
        Ok(())
    })
}

#[test]
fn on_each_rank() -> Result<()> {
    World::default().everywhere("objects::on_each_rank", &[1, 2, 3], |ctx| {
        let start = 100 * ctx.rank() as u64;
        let (shard, other) = (ctx.shard(|| start)?, ctx.shard(|| String::from("another"))?);
        let tasks = (0..ctx.size()).map(|rank| ctx.spawn_on(rank, count, (shard,)));
        for (rank, count) in Task::wait_all(tasks.collect())?.into_iter().enumerate() {
            let first = 100 * rank as u64;
            assert!((first + 1..=first + ctx.size() as u64).contains(&count), "{rank}: {count}");
        }
        ctx.barrier()?;
        assert_eq!(shard.with(|count| *count)?, start + ctx.size() as u64);
        assert_eq!(other.with(|text| text.len())?, 7);
        Ok(())
    })
}

/// A name that comes from elsewhere may be of anything.
#[test]
fn names_that_are_wrong() -> Result<()> {
    spmd(1, |ctx| {
        let account = ctx.mutable(0, Account::default)?;
        let bytes = postcard::to_stdvec(&account).expect("two numbers");
        let other: Mutable<String> = postcard::from_bytes(&bytes).expect("the same numbers");
        assert!(other.with(|_| ()).unwrap_err().to_string().contains("another type"));
        let none: Mutable<Account> = postcard::from_bytes(&[0, 77]).expect("two numbers");
        assert!(none.with(|_| ()).unwrap_err().to_string().contains("no such object"));
        assert!(std::thread::spawn(move || account.with(|_| ()).is_err()).join().unwrap());
        Ok(())
    })?;
    // All ranks name the same one.
    let ended = spmd(2, |ctx| ctx.mutable(ctx.rank(), || 1).map(drop));
    let text = ended.unwrap_err().to_string();
    for part in ["do not match", "root 1", "tests/tasks/objects.rs"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(spmd(2, |ctx| ctx.mutable(2, || 1).map(drop)).is_err());
    Ok(())
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

struct Counted;

impl Counted {
    fn new() -> Counted {
        ALIVE.fetch_add(1, SeqCst);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, SeqCst);
        panic!("at its end");
    }
}

fn block(ctx: &Ctx) -> Result<()> {
    let (one, each) = (ctx.mutable(0, Counted::new)?, ctx.shard(Counted::new)?);
    each.with(|_| ())?;
    if ctx.rank() == 0 {
        one.with(|_| ())?;
    }
    Ok(())
}

/// Whatever their ends do, they come with the block's.
#[test]
fn they_end_with_their_block() -> Result<()> {
    if is_process_rank() {
        for _ in 0..3 {
            spmd::run(block)?;
            assert_eq!(ALIVE.load(SeqCst), 0);
        }
        return Ok(());
    }
    for place in [Spmd::new(3).threads(), Spmd::new(3).virtual_ranks()] {
        place.run(block)?;
        assert_eq!(ALIVE.load(SeqCst), 0);
    }
    let ran = finish(&mut spmdrun_self("objects::they_end_with_their_block", 2));
    assert_eq!(ran.out.matches("1 passed").count(), 2, "{}\n{}", ran.out, ran.err);
    Ok(())
}

/// A rank that fails while a task has an object, and others wait for it.
#[test]
fn a_rank_fails_meanwhile() {
    let ended = spmd(2, |ctx| {
        let (object, never) = (ctx.mutable(0, || 0)?, ctx.dup());
        if ctx.rank() == 1 {
            ctx.recv(&mut [0u8], 0, 0)?;
            return Err("no more data".into());
        }
        let never = never?;
        let has_it = ctx.spawn(move || object.with(|_| never.recv(&mut [0u8], 1, 7).map(drop))?);
        let waits: Vec<_> = (0..20).map(|_| ctx.spawn(move || object.with(|n| *n += 1))).collect();
        ctx.send(&[1u8], 1, 0)?;
        has_it.take()?;
        Task::wait_all(waits).map(drop)
    });
    let error = ended.expect_err("a rank fails").to_string();
    assert!(error.contains("no more data"), "{error}");
}

/// Each worker has its own, and what runs on none has another one.
#[test]
fn shards_of_workers() -> Result<()> {
    let world = World { resources: "cpu=3", ..World::default() };
    world.everywhere("objects::shards_of_workers", &[1, 2], |ctx| {
        let mut made = 0;
        let counts = ctx.shard_per_worker(|| {
            made += 1;
            0
        })?;
        assert_eq!(made, 4);
        for number in 0..3 {
            let seen = ctx.with_scope(Scope::worker(number), || {
                let count = move || counts.with(|n| std::mem::replace(n, *n + number + 1));
                Task::wait_all((0..10).map(|_| ctx.spawn(count)).collect())
            })?;
            assert_eq!(seen, (0..10).map(|i| i * (number + 1)).collect::<Vec<_>>());
        }
        let elsewhere = ctx.task().cpu(0).spawn(move || counts.with(|n| *n));
        assert_eq!(elsewhere.take()?, 0);
        ctx.barrier()
    })
}
