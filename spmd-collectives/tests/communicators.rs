//! Communicators made of others: who is in them, that they are apart, and that what they used is
//! used again.

use spmd_collectives::{Allreduce, Barrier, Split};
use spmd_core::{ANY, Ctx, Error, Max, Result, Spmd, Sum};

/// Runs `f` as threads and as virtual ranks, on 1 to 20 ranks.
fn everywhere(f: impl Fn(&Ctx) -> Result<()> + Sync) {
    for n in [1, 2, 3, 4, 7, 8, 16, 20] {
        Spmd::new(n).threads().run(&f).unwrap();
        Spmd::new(n).virtual_ranks().run(&f).unwrap();
    }
    Spmd::new(33).virtual_ranks().run(&f).unwrap();
}

#[test]
fn split_orders_by_key_then_rank() {
    everywhere(|ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        let color = (me % 4 != 3).then_some(me as u32 % 4);
        let key = -((me / 8) as i32);
        let part = ctx.split(color, key)?;
        let mut members: Vec<usize> = (0..n).filter(|rank| rank % 4 == me % 4).collect();
        members.sort_by_key(|rank| (-((rank / 8) as i32), *rank));
        match part {
            None => assert_eq!(me % 4, 3),
            Some(part) => {
                assert_eq!(part.size(), members.len());
                assert_eq!(members[part.rank()], me);
                let world: Vec<usize> = (0..part.size()).map(|r| part.world_rank(r)).collect();
                assert_eq!(world, members);
                let sum = part.allreduce_value(me, Sum)?;
                assert_eq!(sum, members.iter().sum::<usize>());
            }
        }
        Ok(())
    });
}

#[test]
fn children_of_children_are_apart() {
    everywhere(|ctx| {
        let half = ctx.split(Some(u32::from(ctx.rank() < ctx.size() / 2)), 0)?.unwrap();
        let quarter = half.split(Some(u32::from(half.rank() < half.size() / 2)), 0)?.unwrap();
        let copy = quarter.dup()?;
        for _ in 0..20 {
            assert_eq!(quarter.allreduce_value(1, Sum)?, quarter.size());
            assert_eq!(half.allreduce_value(1, Sum)?, half.size());
            assert_eq!(copy.allreduce_value(1, Sum)?, quarter.size());
            assert_eq!(ctx.allreduce_value(1, Sum)?, ctx.size());
        }
        let host = copy.split_host()?;
        assert_eq!((host.rank(), host.size()), (copy.rank(), copy.size()));
        Ok(())
    });
}

#[test]
fn messages_stay_in_their_communicator() {
    everywhere(|ctx| {
        let (a, b) = (ctx.dup()?, ctx.dup()?);
        let (next, before) = ((ctx.rank() + 1) % ctx.size(), ctx.size() + ctx.rank() - 1);
        let before = before % ctx.size();
        ctx.send(&[0usize, ctx.rank()], next, 5)?;
        a.send(&[1usize, ctx.rank()], next, 5)?;
        b.send(&[2usize, ctx.rank()], next, 5)?;
        let mut got = [9; 2];
        for (which, comm) in [(2, &b), (1, &a), (0, &**ctx)] {
            let status = comm.recv(&mut got, ANY, ANY)?;
            assert_eq!((got, status.source()), ([which, before], before));
        }
        Ok(())
    });
}

#[test]
fn a_child_works_on_another_thread_while_its_parent_is_busy() {
    Spmd::new(3)
        .threads()
        .run(|ctx| {
            let other = ctx.dup()?;
            std::thread::scope(|scope| {
                let there = scope.spawn(move || {
                    (0..500).try_for_each(|turn| {
                        assert_eq!(other.allreduce_value(turn, Max)?, turn);
                        Result::Ok(())
                    })
                });
                for turn in 0..500 {
                    assert_eq!(ctx.allreduce_value(turn, Sum)?, 3 * turn);
                    if turn % 100 == 0 {
                        let short = ctx.split(Some(0), turn)?.unwrap();
                        assert_eq!(short.allreduce_value(1, Sum)?, 3);
                    }
                }
                there.join().unwrap()
            })
        })
        .unwrap();
}

#[test]
fn areas_are_used_again() {
    let cycles = |ctx: &Ctx| {
        for turn in 0..600u32 {
            let part = ctx.split((ctx.rank() as u32 != turn % 5).then_some(turn % 2), 0)?;
            if let Some(part) = part {
                part.barrier()?;
                let inner = part.dup()?;
                assert_eq!(inner.allreduce_value(1, Sum)?, part.size());
            }
        }
        Ok(())
    };
    Spmd::new(4).threads().run(cycles).unwrap();
    Spmd::new(4).virtual_ranks().run(cycles).unwrap();
    // 128 areas a rank here.
    let many = |ctx: &Ctx| {
        for turn in 0..300 {
            let half = ctx.split(Some(u32::from(ctx.rank() < 100)), turn)?.unwrap();
            half.barrier()?;
        }
        Ok(())
    };
    Spmd::new(300).virtual_ranks().run(many).unwrap();
}

#[test]
fn running_out_of_areas_is_an_error_on_all_ranks() {
    let errors = Spmd::new(2)
        .threads()
        .run(|ctx| {
            let mut kept = Vec::new();
            let error = loop {
                match ctx.dup() {
                    Ok(comm) => kept.push(comm),
                    Err(error) => break error,
                }
            };
            assert!(kept.len() > 1000);
            drop(kept);
            ctx.barrier()?;
            ctx.dup()?.barrier()?;
            Ok(matches!(error, Error::Unavailable(_)))
        })
        .unwrap();
    assert_eq!(errors, [true, true]);
}

#[test]
fn split_and_dup_do_not_match() {
    let error = Spmd::new(2)
        .threads()
        .run(|ctx| if ctx.rank() == 0 { ctx.dup().map(drop) } else { ctx.split(None, 0).map(drop) })
        .unwrap_err()
        .to_string();
    assert!(error.contains("dup at") && error.contains("split at"), "{error}");
}

#[test]
fn thousands_of_virtual_ranks() {
    Spmd::new(4096)
        .virtual_ranks()
        .stack_size(128 << 10)
        .run(|ctx| {
            let copy = ctx.dup()?;
            assert_eq!(copy.allreduce_value(1, Sum)?, 4096);
            let row = ctx.split(Some(ctx.rank() as u32 / 64), 0)?.unwrap();
            assert_eq!((row.size(), row.rank()), (64, ctx.rank() % 64));
            let first = ctx.rank() / 64 * 64;
            assert_eq!(row.allreduce_value(ctx.rank(), Max)?, first + 63);
            Ok(())
        })
        .unwrap();
}

/// Agents of one rank that make communicators at once don't get the same area or number.
#[test]
fn agents_make_communicators_at_once() {
    let work = |ctx: &Ctx| {
        let mut agents = Vec::new();
        for agent in 0..3 {
            let mine = ctx.dup()?;
            agents.push(std::thread::spawn(move || {
                for round in 0..20 {
                    let copy = mine.dup()?;
                    let value = 100 * agent + round;
                    assert_eq!(copy.allreduce_value(value, Max)?, value);
                    copy.send(&[value], (copy.rank() + 1) % copy.size(), 0)?;
                    let half = mine.split(Some(mine.rank() as u32 % 2), 0)?.unwrap();
                    assert_eq!(half.allreduce_value(value, Max)?, value);
                    assert_eq!(copy.recv_vec::<usize>(ANY, 0)?.0, [value]);
                }
                Ok(())
            }));
        }
        agents.into_iter().try_for_each(|agent| agent.join().unwrap())
    };
    for n in [1, 2, 5] {
        Spmd::new(n).threads().run(work).unwrap();
    }
}

/// Colors of every type make the same parts; what is no color, or no key, is told before ranks meet.
#[test]
fn colors_of_every_type() {
    everywhere(|ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        let odd = |comm: Option<spmd_core::Comm>| comm.expect("every rank has a color").size();
        let expected = if me % 2 == 1 { n / 2 } else { n.div_ceil(2) };
        assert_eq!(odd(ctx.split(me % 2, 0)?), expected);
        assert_eq!(odd(ctx.split(me as i32 % 2, me)?), expected);
        assert_eq!(odd(ctx.split(me as u32 % 2, 0u8)?), expected);
        assert_eq!(odd(ctx.split(me % 2 == 1, -(me as i64))?), expected);
        assert_eq!(odd(ctx.split(Some(me as u32 % 2), 0)?), expected);
        assert!(ctx.split(None::<u32>, 0)?.is_none());
        let wrong = [
            (ctx.split(-1, 0), "-1 is no color"),
            (ctx.split(1usize << 40, 0), "1099511627776 is no color"),
            (ctx.split(0, i64::MAX), "the key is no `i32`"),
        ];
        for (ended, told) in wrong {
            assert!(ended.is_err_and(|error| error.to_string().contains(told)), "{told}");
        }
        ctx.barrier()
    });
}
