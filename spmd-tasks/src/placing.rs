//! Who spawns tasks in which scope.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

use spmd_core::{Error, Result};

use crate::about::About;
use crate::choice::Either;
use crate::group::Group;
use crate::header::Header;
use crate::placement::Scope;
use crate::rank::part_here;
use crate::request::{Asks, Request};

thread_local! {
    /// The scopes that code on this thread has entered and not left, each with the task or rank whose code that
    /// is. Both stay on their threads.
    static ENTERED: RefCell<Vec<(*const Header, Arc<Scope>)>> = const { RefCell::new(Vec::new()) };
}

/// The scope of whoever runs here.
pub(crate) fn scope_here() -> Option<Arc<Scope>> {
    let has_entered = ENTERED.with_borrow(|entered| !entered.is_empty());
    let entered = || {
        let here = part_here()?;
        ENTERED.with_borrow(|entered| {
            let mine = entered.iter().rev().find(|(part, _)| *part == here);
            mine.map(|(_, scope)| scope.clone())
        })
    };
    has_entered.then(entered).flatten().or_else(|| Header::here()?.scope().cloned())
}

/// [`Tasks::with_scope`](crate::Tasks::with_scope) of whoever runs here.
pub(crate) fn enter_scope<R>(
    site: &'static Location<'static>,
    scope: Scope,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    struct Entered(*const Header);
    impl Drop for Entered {
        fn drop(&mut self) {
            ENTERED.with_borrow_mut(|entered| {
                let mine = entered.iter().rposition(|(part, _)| *part == self.0);
                mine.map(|place| entered.remove(place))
            });
        }
    }
    let refused = |why: String| Err(Error::argument(format!("with_scope at {site}: {why}")));
    let Some(here) = part_here() else { return refused("no rank is here".into()) };
    let around = scope_here();
    let inside = around.iter().fold(scope.clone(), |inside, around| inside & (**around).clone());
    if inside.is_empty() {
        let around = around.map(|around| format!(" within one that is {around}"));
        return refused(format!("the scope {scope}{} is empty", around.unwrap_or_default()));
    }
    ENTERED.with_borrow_mut(|entered| entered.push((here, Arc::new(inside))));
    let _entered = Entered(here);
    f()
}

/// What is said of a task of this group that is spawned here.
#[inline]
pub(crate) fn placed(group: &Group, about: Option<Box<About>>) -> Option<Box<About>> {
    let given = about.as_ref().and_then(|about| about.scope.clone());
    let has_choice = about.as_ref().is_some_and(|about| about.either.is_some());
    match given.or_else(scope_here) {
        None if !has_choice => about,
        scope => Some(restricted(group, about.unwrap_or_default(), scope)),
    }
}

#[cold]
fn restricted(group: &Group, mut about: Box<About>, scope: Option<Arc<Scope>>) -> Box<About> {
    let rank = about.rank.unwrap_or(group.ranks().rank);
    let never = match (&mut about.either, &scope) {
        (Some(either), scope) => limit(group, either, scope.as_deref().map(|scope| (scope, rank))),
        (None, Some(scope)) => {
            let asks = about.asks.take();
            let mut request = asks.map(|asks| asks.request.clone()).unwrap_or_default();
            scope.restrict(rank, &mut request);
            let asks = || Arc::new(Asks::new(request.clone()));
            about.asks = (request != Request::default()).then(asks);
            None
        }
        (None, None) => None,
    };
    if never.is_some() {
        about.asks = Some(Arc::new(Asks::new(Request { never, ..Request::default() })));
    }
    about.scope = scope;
    about
}

/// Leaves what there is to choose from. If that is nothing, why.
fn limit(group: &Group, either: &mut Either, scope: Option<(&Scope, usize)>) -> Option<String> {
    if let Some((scope, rank)) = scope {
        let has_gpus = !group.pool.ledger.units("gpu").is_empty();
        let both = either.host.take().zip(either.gpu.take()).unwrap_or_default();
        (either.host, either.gpu) = scope.restrict_either(rank, has_gpus, both);
    }
    let lacks = |request: &Request| group.pool.lacks(request);
    let (no_host, no_gpu) =
        (either.host.as_ref().and_then(lacks), either.gpu.as_ref().and_then(lacks));
    either.host.take_if(|_| no_host.is_some());
    either.gpu.take_if(|_| no_gpu.is_some());
    if either.host.is_some() || either.gpu.is_some() {
        return None;
    }
    let nowhere = || Some(format!("its scope is {}, which has nothing of its rank", scope?.0));
    no_gpu.or(no_host).or_else(nowhere)
}
