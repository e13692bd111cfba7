//! Spawning tasks on other ranks.

use std::any::type_name;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_collectives::Split;
use spmd_core::internal::{RankHook, discard, panic_text};
use spmd_core::{Ctx, Error, Result};

use super::errand::Errand;
use super::function::{RemoteFn, Run, from_bytes, known, to_bytes};
use super::service::{Answer, Limits, OfAny, Served, Service};
use crate::about::About;
use crate::failure::Failure;
use crate::group::Group;
use crate::header::{Header, Runnable, has_one_less, needs_one_more};
use crate::node::{Node, Work};
use crate::placing::scope_here;
use crate::rank::{group_here, serves};
use crate::scope::enter_group;
use crate::task::Task;
use crate::work::{Begun, Once};

/// Makes functions known to all ranks of the program, so that one may have another one run them:
/// [`Tasks::spawn_on`](crate::Tasks::spawn_on). It stands where items stand, once for each function. Of several
/// programs in one job (`spmdrun ./a : ./b`) all have such functions, or none: their ranks begin with a call
/// (`dup`) that those of the others would not make.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::tasks::remote;
///
/// fn square(x: f64) -> Result<f64> {
///     Ok(x * x)
/// }
///
/// fn hypotenuse(a: f64, b: f64) -> Result<f64> {
///     Ok(a.hypot(b))
/// }
///
/// remote!(square, hypotenuse);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! remote {
    ($($function:path),+ $(,)?) => {
        $(
            $crate::internal::submit! {
                $crate::internal::Known::new(
                    || $crate::internal::name_of($function),
                    |args| $crate::internal::run($function, args),
                )
            }
        )+
        $crate::internal::submit! { $crate::internal::HOOK }
    };
}

/// What ranks of a program with remote functions do first: those that are processes of one host make what
/// they ask each other by.
pub const HOOK: RankHook = RankHook(begin);

fn begin(ctx: &Ctx) -> Result<()> {
    let rank = ctx.internals();
    if rank.is_process() && !rank.spans_processes() && ctx.size() > 1 {
        serves(rank, |group| {
            let comm = ctx.dup()?;
            let (mine, told) = (Arc::downgrade(group), Arc::downgrade(group));
            let serve =
                move |service: &Arc<Service>, errand: Served, call: (&str, &[u8]), limits| {
                    if let Some(group) = mine.upgrade() {
                        serve(service, &group, errand, call, limits);
                    }
                };
            let tell = move || told.upgrade().iter().for_each(|group| group.sleeper().wake());
            let workers = group.pool.workers();
            Service::start(comm, workers, Box::new(serve), Box::new(tell))
        })?;
    }
    Ok(())
}

/// Runs a function for another rank, as a task of this one.
fn serve(
    service: &Arc<Service>,
    group: &Arc<Group>,
    (by, errand): Served,
    call: (&str, &[u8]),
    limits: Limits,
) {
    let (name, args) = (call.0.to_owned(), call.1.to_vec());
    let service = service.clone();
    let (site, about) = (Location::caller(), named(&name, limits, None));
    let run = move || {
        let start = Instant::now();
        let outcome = match known(&name) {
            _ if errand.is_cancelled() => Err(None),
            Some(run) => carry_out(run, &args, None, errand).map_err(Some),
            None => Err(Some(format!("this rank runs another program, which has no {name}"))),
        };
        service.answer(by, outcome, start.elapsed());
        Ok(())
    };
    drop(Task::put(group, (site, Some(about)), Once(run)));
}

/// Runs a function, as on this rank of the process, if it is one for a certain rank, and waits for the end
/// of all that it spawns. What came of it, or what went wrong.
fn carry_out(
    run: Run,
    args: &[u8],
    rank: Option<usize>,
    errand: Arc<Errand>,
) -> Result<Vec<u8>, String> {
    let (site, around) = (Location::caller(), group_here());
    let rank = rank.unwrap_or(around.ranks().rank);
    let outcome = enter_group(Group::within_on(around, rank), site, |scope| {
        let run = || Ok(catch_unwind(AssertUnwindSafe(|| run(args))));
        let about = About { errand: Some(errand), ..About::default() };
        scope.put((site, Some(Box::new(about))), Begun(run)).take()
    });
    match outcome.map_err(|error| error.to_string())? {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic_text(&*panic);
            discard(panic);
            Err(format!("it panicked: {text}"))
        }
    }
}

/// Of a task that runs such a function, within these limits, on this rank if it is another one.
fn named(name: &str, limits: Limits, rank: Option<usize>) -> Box<About> {
    Box::new(About { name: Some(name.into()), scope: limits, rank, ..About::default() })
}

/// What a task does whose function another rank runs: it has the answer when it begins.
struct Remote<R> {
    answer: Arc<OnceLock<Answer>>,
    decode: fn(&[u8]) -> Result<R>,
}

impl<R: Send> Work for Remote<R> {
    type Value = R;
    const HAS_BEGUN: bool = true;

    fn run(self, task: &Header) -> Result<R, Failure> {
        let failed = |why: Arc<Error>| Failure::returned(task.described(), why);
        match self.answer.get() {
            Some(Err(why)) if matches!(**why, Error::Cancelled(_)) => {
                Err(Failure::cancelled(task.described()))
            }
            Some(Ok(bytes)) => (self.decode)(bytes).map_err(|why| failed(Arc::new(why))),
            Some(Err(why)) => Err(failed(why.clone())),
            None => Err(failed(Arc::new("no answer has come".into()))),
        }
    }
}

/// [`Tasks::spawn_on`](crate::Tasks::spawn_on) of this group, or, without a rank,
/// [`Tasks::spawn_any`](crate::Tasks::spawn_any).
pub(crate) fn put_on<F, A, R>(
    group: &Arc<Group>,
    site: &'static Location<'static>,
    rank: Option<usize>,
    (_, args): (F, A),
) -> Task<R>
where
    F: RemoteFn<A, R>,
    A: Serialize,
    R: DeserializeOwned + Send + 'static,
{
    let name = type_name::<F>();
    let refused = |why: Error| {
        // It runs nowhere.
        Task::put_anywhere(group, (site, Some(named(name, None, None))), Once(|| Err(why)))
    };
    let Some(run) = known(name) else {
        let why = format!("no rank knows the function {name}; write `spmd::tasks::remote!` for it");
        return refused(Error::argument(why));
    };
    let args = match to_bytes(&args) {
        Ok(args) => args,
        Err(why) => return refused(why),
    };
    let ranks = group.ranks();
    if let Some(rank) = rank.filter(|rank| *rank >= ranks.size) {
        let why = format!("spawn_on at {site}: there is no rank {rank} among {}", ranks.size);
        return refused(Error::argument(why));
    }
    let limits = scope_here();
    let among = limits.as_ref().and_then(|scope| scope.ranks(ranks.size));
    if let Some(scope) = limits.as_ref() {
        let why = match rank {
            Some(rank) if !scope.has_rank(rank) => Some(format!("spawn_on rank {rank}")),
            None if among.as_ref().is_some_and(Vec::is_empty) => {
                Some(format!("spawn_any among {} ranks", ranks.size))
            }
            _ => None,
        };
        if let Some(what) = why {
            return refused(Error::argument(format!("{what} at {site}: the scope is {scope}")));
        }
    }
    let is_here = ranks.one_process || ranks.size == 1 || rank == Some(ranks.rank);
    let service = match ranks.service.lock().clone() {
        _ if is_here => {
            // Its own rank, if it may.
            let first = || among.filter(|among| !among.contains(&ranks.rank))?.first().copied();
            let rank = rank.or_else(first);
            let errand = Arc::<Errand>::default();
            let about = About { errand: Some(errand.clone()), ..*named(name, limits, rank) };
            let run =
                move || from_bytes(&carry_out(run, &args, rank, errand).map_err(Error::from)?);
            return Task::put(group, (site, Some(Box::new(about))), Once(run));
        }
        Some(service) => service,
        None => {
            let why = "ranks of several hosts, or joined by MPI, run no tasks for each other";
            return refused(Error::argument(why.to_owned()));
        }
    };
    let answer = Arc::<OnceLock<Answer>>::default();
    let work = Remote { answer: answer.clone(), decode: from_bytes::<R> };
    let errand = Arc::<Errand>::default();
    let about = About { errand: Some(errand.clone()), ..*named(name, None, None) };
    let task = Arc::new(Node::new(Header::new(group, site, Some(Box::new(about))), work));
    needs_one_more(&*task);
    group.waits(|| task.clone());
    task.is_made(group);
    let waits = task.clone();
    let answered = move |came: Answer| {
        // Once.
        let _ = answer.set(came);
        has_one_less(waits);
    };
    match rank {
        Some(rank) => {
            let answered = move |came: Answer, _: Duration| answered(came);
            service.ask(rank, (name, &args), (limits, &errand), Box::new(answered));
        }
        None => {
            let explained = task.clone();
            let told = move |why: String| explained.header().runs(why);
            let (answered, told) = (Box::new(answered), Box::new(told));
            let of_any = OfAny { errand, answered, told };
            service.spread((name, args), limits, of_any);
        }
    }
    Task::new(task)
}
