//! What planes have to do with a split.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spmd_core::internal::{Args, Call, Plane};
use spmd_core::{Comm, Result, Spmd};

use super::{Split, split_for_messages};
use crate::{Topology, Windows};

/// Keeps a number with communicators, and the sum of that and a part's first rank with the part.
#[derive(Debug, Default)]
struct Keeper {
    splits: AtomicUsize,
}

impl Plane for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn is_for(&self, _spans_processes: bool) -> bool {
        true
    }

    fn can_split(&self, comm: &Comm) -> bool {
        comm.internals().attribute::<usize>().is_some()
    }

    fn split(&self, comm: &Comm, _: &Call<'_>, part: Option<&Comm>) -> Result<()> {
        let kept: usize = comm.internals().attribute().expect("all ranks have said so");
        self.splits.fetch_add(1, Relaxed);
        if kept == 0 {
            return Err("it keeps nothing".into());
        }
        part.into_iter().for_each(|part| part.internals().keep(kept + part.world_rank(0)));
        Ok(())
    }

    fn serves(&self, _: &Comm, _: &Args<'_>) -> bool {
        false
    }

    unsafe fn run(&self, _: &Comm, _: &Call<'_>, _: &Args<'_>) -> Result<()> {
        unreachable!("it serves no call")
    }
}

fn everywhere() -> [(Spmd, Arc<Keeper>); 2] {
    [Spmd::new(4).threads(), Spmd::new(4).virtual_ranks()].map(|block| {
        let keeper = Arc::new(Keeper::default());
        (block.plane(keeper.clone()), keeper)
    })
}

fn kept(comm: Option<&Comm>) -> Option<usize> {
    comm.and_then(|comm| comm.internals().attribute())
}

#[test]
fn a_plane_splits_what_all_ranks_keep() -> Result<()> {
    for (block, keeper) in everywhere() {
        let parts = block.run(|ctx| {
            ctx.internals().keep(10usize);
            let color = [Some(0), Some(1), Some(1), None][ctx.rank()];
            let part = ctx.split(color, -(ctx.rank() as i32))?;
            let again = part.as_ref().map(|part| part.split(Some(5), 0)).transpose()?.flatten();
            let grid = ctx.cartesian(&[4], &[false])?;
            Ok((kept(part.as_ref()), kept(again.as_ref()), kept(grid.as_deref())))
        })?;
        let all = Some(10);
        let pair = (Some(12), Some(14), all);
        assert_eq!(parts, [(all, all, all), pair, pair, (None, None, all)]);
        assert_eq!(keeper.splits.load(Relaxed), 4 + 3 + 4);
    }
    Ok(())
}

/// If one rank keeps nothing, none splits it; nor for what is no split, or for messages alone.
#[test]
fn a_plane_splits_nothing_else() -> Result<()> {
    for (block, keeper) in everywhere() {
        block.run(|ctx| {
            if ctx.rank() != 2 {
                ctx.internals().keep(10usize);
            }
            assert_eq!(kept(ctx.split(Some(0), 0)?.as_ref()), None);
            if ctx.rank() == 2 {
                ctx.internals().keep(10usize);
            }
            assert_eq!(kept(Some(&ctx.dup()?)), None);
            assert_eq!(kept(split_for_messages(ctx, Some(0), 0)?.as_ref()), None);
            ctx.window::<u64>(1).map(drop)
        })?;
        assert_eq!(keeper.splits.load(Relaxed), 0);
    }
    Ok(())
}

#[test]
fn its_error_is_that_of_the_split() {
    for (block, _) in everywhere() {
        let ended = block.run(|ctx| {
            ctx.internals().keep(usize::from(ctx.rank() != 1));
            ctx.split(Some(0), 0).map(drop)
        });
        assert_eq!(ended.expect_err("one rank's plane refuses").to_string(), "it keeps nothing");
    }
}
