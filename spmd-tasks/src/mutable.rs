//! Objects that stay on a rank, and that tasks there use.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};
use spmd_collectives::{Allreduce, Barrier, Broadcast};
use spmd_core::{Ctx, Error, Max, Result};

use crate::lock::Lock;
use crate::rank::{group_here, group_of};

/// An object that lives on one rank, made by [`Tasks::mutable`](crate::Tasks::mutable), and used by what
/// runs there: the rank itself and the tasks that are sent to it (Dagger's `@mutable`). This is its name,
/// which may be copied, captured, and given to functions of other ranks.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Mutable<T> {
    rank: usize,
    number: u64,
    #[serde(skip)]
    of: PhantomData<fn() -> T>,
}

/// An object of each rank, made by [`Tasks::shard`](crate::Tasks::shard): whoever uses it gets that of the
/// rank, or worker, that it runs on (Dagger's `@shard`). This is its name, as [`Mutable`] is one.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Shard<T> {
    number: u64,
    #[serde(skip)]
    of: PhantomData<fn() -> T>,
}

/// What reports call one.
const OBJECT: &str = "the object";

/// An object for each worker of the process, and one for what runs elsewhere on the rank.
struct PerWorker<T>(Box<[Lock<T>]>);

impl<T: Send + 'static> Mutable<T> {
    /// The rank on which it lives.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Uses it, on its rank: waits until nobody else does; a task is suspended meanwhile. It is used by one at
    /// a time, in any order, and stays as it is if `f` panics.
    ///
    /// Errors: this runs on another rank, or where no rank is; the object's block is over; the rank has
    /// failed, or waits in a cycle, as one does that uses the object within `f` again.
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R> {
        let site = Location::caller();
        use_object(site, self.number, f, |here| match here == self.rank {
            true => Ok(()),
            false => Err(format!(
                "the object lives on rank {}, and this runs on rank {here}: send a task there \
                 (`spawn_on`)",
                self.rank
            )),
        })
    }
}

impl<T: Send + 'static> Shard<T> {
    /// Uses that of the rank that this runs on: as [`Mutable::with`].
    ///
    /// Errors: as those of that, but that every rank has one.
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R> {
        use_object(Location::caller(), self.number, f, |_| Ok(()))
    }
}

/// Uses the object of this number of the rank that this runs on, if `may` allows it there.
fn use_object<T: Send + 'static, R>(
    site: &'static Location<'static>,
    number: u64,
    f: impl FnOnce(&mut T) -> R,
    may: impl FnOnce(usize) -> Result<(), String>,
) -> Result<R> {
    let group = group_here();
    let refused = |why: &str| Error::argument(format!("with at {site}: {why}"));
    if let Some(why) = group.refusal() {
        return Err(refused(&why.to_string()));
    }
    let here = group.ranks().rank;
    may(here).map_err(|why| refused(&why))?;
    let found = group.pool.objects.get((here, number));
    let found = found.ok_or_else(|| refused("there is no such object, or its block is over"))?;
    let object = match (found.downcast_ref(), found.downcast_ref::<PerWorker<T>>()) {
        (Some(object), _) => object,
        (None, Some(each)) => &each.0[group.pool.worker_here()],
        (None, None) => return Err(refused("it has another type")),
    };
    let mut locked = object.lock_at(site)?;
    Ok(f(&mut locked))
}

/// [`Tasks::mutable`](crate::Tasks::mutable) of this rank.
#[track_caller]
pub(crate) fn make_mutable<T: Send + 'static>(
    ctx: &Ctx,
    rank: usize,
    make: impl FnOnce() -> T,
    site: &'static Location<'static>,
) -> Result<Mutable<T>> {
    let number = next_number(ctx)?;
    let owner = ctx.rank() == rank;
    if owner {
        insert(ctx, number, make(), site)?;
    }
    // Nobody has its name before it is there.
    ctx.broadcast_value(owner.then_some(number), rank)?;
    Ok(Mutable { rank, number, of: PhantomData })
}

/// [`Tasks::shard`](crate::Tasks::shard) of this rank.
#[track_caller]
pub(crate) fn make_shard<T: Send + 'static>(
    ctx: &Ctx,
    make: impl FnOnce() -> T,
    site: &'static Location<'static>,
) -> Result<Shard<T>> {
    let number = next_number(ctx)?;
    insert(ctx, number, make(), site)?;
    ctx.barrier()?;
    Ok(Shard { number, of: PhantomData })
}

/// [`Tasks::shard_per_worker`](crate::Tasks::shard_per_worker) of this rank.
#[track_caller]
pub(crate) fn make_shard_per_worker<T: Send + 'static>(
    ctx: &Ctx,
    mut make: impl FnMut() -> T,
    site: &'static Location<'static>,
) -> Result<Shard<T>> {
    let number = next_number(ctx)?;
    let pool = &group_of(ctx.internals()).pool;
    let each =
        (0..=pool.workers()).map(|_| Lock::new(OBJECT, site, make())).collect::<Result<_>>()?;
    pool.objects.insert((ctx.rank(), number), Arc::new(PerWorker::<T>(each)));
    ctx.barrier()?;
    Ok(Shard { number, of: PhantomData })
}

/// A number that no object has on any rank.
#[track_caller]
fn next_number(ctx: &Ctx) -> Result<u64> {
    let made = &group_of(ctx.internals()).ranks().objects;
    let number = ctx.allreduce_value(made.load(Relaxed), Max)?;
    // Others say it.
    let next = number.checked_add(1).ok_or("another rank counts more objects than there can be")?;
    made.store(next, Relaxed);
    Ok(number)
}

fn insert<T: Send + 'static>(
    ctx: &Ctx,
    number: u64,
    value: T,
    site: &'static Location<'static>,
) -> Result<()> {
    let object = Lock::new(OBJECT, site, value)?;
    group_of(ctx.internals()).pool.objects.insert((ctx.rank(), number), Arc::new(object));
    Ok(())
}

impl<T> Clone for Mutable<T> {
    fn clone(&self) -> Mutable<T> {
        *self
    }
}

impl<T> Copy for Mutable<T> {}

impl<T> fmt::Debug for Mutable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutable { rank, number, .. } = self;
        f.debug_struct("Mutable").field("rank", rank).field("number", number).finish()
    }
}

impl<T> Clone for Shard<T> {
    fn clone(&self) -> Shard<T> {
        *self
    }
}

impl<T> Copy for Shard<T> {}

impl<T> fmt::Debug for Shard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("number", &self.number).finish()
    }
}
