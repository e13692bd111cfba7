//! Small collectives of virtual ranks, which go through their combining barrier: ranks that run
//! ahead of others, and what is found when they do not make the same calls.

use spmd_collectives::*;
use spmd_core::{Error, Result, Spmd, Sum, spmd};

/// More calls than the combining barrier keeps on record.
const MANY: usize = 200;

fn each_placement(test: impl Fn(Spmd, usize) -> Result<()>) -> Result<()> {
    for workers in [1, 2, 3] {
        for ranks in [2, 3, 4, 7, 16, 33] {
            test(Spmd::new(ranks).virtual_ranks().workers(workers), ranks)?;
        }
    }
    Ok(())
}

#[test]
fn roots_run_ahead() -> Result<()> {
    each_placement(|spmd, ranks| {
        spmd.run(|ctx| {
            for turn in 0..MANY {
                for root in [0, ranks - 1, turn % ranks] {
                    let mut got = [if ctx.rank() == root { turn * ranks + root } else { 0 }; 3];
                    ctx.broadcast(&mut got, root)?;
                    assert_eq!(got, [turn * ranks + root; 3]);
                }
            }
            Ok(())
        })?;
        Ok(())
    })
}

#[test]
fn calls_through_the_combining_barrier_and_past_it() -> Result<()> {
    each_placement(|spmd, ranks| {
        spmd.run(|ctx| {
            let (me, all) = (ctx.rank(), ranks * (ranks - 1) / 2);
            for turn in 0..MANY {
                let root = turn % ranks;
                assert_eq!(ctx.broadcast_value((me == root).then_some(turn), root)?, turn);
                assert_eq!(ctx.reduce_value(me, Sum, root)?, (me == root).then_some(all));
                let mut large = vec![me; 100];
                ctx.broadcast(&mut large, root)?;
                assert_eq!(large, vec![root; 100]);
                if turn % 3 == 0 {
                    ctx.barrier()?;
                }
                let gathered = ctx.gather_value(me, root)?;
                assert_eq!(gathered.is_some(), me == root);
                assert_eq!(ctx.allreduce_value(me, Sum)?, all);
            }
            Ok(())
        })?;
        Ok(())
    })
}

/// All ranks of one worker make one call, those of the other another one, and none waits in it.
#[test]
fn workers_that_disagree() {
    let outcome = Spmd::new(4).virtual_ranks().workers(2).run(|ctx| {
        let root = ctx.rank() / 2 * 2;
        ctx.broadcast(&mut [0u64], root)?;
        ctx.broadcast(&mut [0u64], root)?;
        ctx.barrier()
    });
    let error = outcome.expect_err("the roots differ").to_string();
    for part in ["different roots", "ranks 0, 1", "root 0", "ranks 2, 3", "root 2", file!()] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Each rank is named with its own source line, though one of them alone writes the call down.
#[test]
fn lines_of_all_ranks() {
    let line = line!() + 2;
    let outcome = spmd_virtual(|ctx| match ctx.rank() {
        0 => ctx.barrier(),
        1 => ctx.barrier(),
        _ => ctx.broadcast(&mut [0u8], 0),
    });
    let error = outcome.expect_err("one rank makes another call").to_string();
    for (rank, line) in [line, line + 1, line + 2].iter().enumerate() {
        assert!(error.contains(&format!("rank {rank}: ")), "{error}");
        assert!(error.contains(&format!("{}:{line}", file!())), "{error}");
    }
}

fn spmd_virtual(f: impl Fn(&spmd_core::Ctx) -> Result<()> + Sync) -> Result<Vec<()>> {
    Spmd::new(3).virtual_ranks().workers(1).run(f)
}

/// A panic in an operation stops the others, whoever folds.
#[test]
fn an_operation_that_panics() {
    let op = spmd_core::Op::new(|a: u32, b: u32| if a + b == 5 { panic!("five") } else { a + b });
    for workers in [1, 2] {
        let block = Spmd::new(4).virtual_ranks().workers(workers);
        let outcome = block.run(|ctx| ctx.allreduce_value(ctx.rank() as u32, op));
        let Err(Error::Panicked(panic)) = outcome else { panic!("{outcome:?}") };
        assert!(panic.message.starts_with("five"), "{panic}");
    }
    assert!(spmd(2, |ctx| ctx.barrier()).is_ok());
}
