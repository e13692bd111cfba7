//! Tasks of a rank, as its waits and the end of its block see them.

use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;

use super::endpoint::Endpoint;
use super::layout::Agent;
use super::waiter::Waiter;
use crate::call::{Call, Kind};
use crate::error::Result;
use crate::group::Scope;
use crate::wait::{self, tasks::Sleeper};

impl Endpoint {
    /// Waits for something that tasks of this rank do, of its own agent.
    ///
    /// Errors: it waits in a cycle; all ranks are stopped. What happens to single ranks ends no task.
    pub(crate) fn wait_for_tasks(
        &self,
        scope: &Scope,
        (call, what): (&Call<'_>, Option<&str>),
        sleeper: &Sleeper,
        mut done: impl FnMut() -> bool,
    ) -> Result<()> {
        let noted = self.note(call);
        let noted = what.map_or(noted, |what| noted.on(self.number_of(what)));
        let waiter = Waiter::new(self, scope, call, noted).despite_failures();
        waiter.waits_on(Some(self.rank));
        waiter.ended_by(Agent::ACT);
        self.fetches.fetch_add(1, Relaxed);
        let waited = waiter.until_at(|| sleeper.bell(), || Ok(()), || done().then_some(()));
        self.fetches.fetch_sub(1, Relaxed);
        waited
    }

    /// Waits until all tasks are over, at the end of a block. Gives what went wrong with them that
    /// nobody knows, first.
    pub(super) fn end_tasks(&self, block: u32, site: &'static Location<'static>) -> Result<()> {
        let Some(tasks) = self.tasks.get() else { return Ok(()) };
        let wait_for = |over: &dyn Fn() -> bool| {
            if over() {
                return Ok(());
            }
            let (call, scope) = (Call::new(Kind::End, site), self.scope_of_the_end(block));
            self.wait_for_tasks(&scope, (&call, None), tasks.sleeper(), over)
        };
        wait_for(&|| tasks.all_over())?;
        tasks.parts();
        // What other ranks have here ends before they part.
        wait_for(&|| tasks.is_parted() && tasks.all_over())?;
        tasks.take_failure().map_or(Ok(()), Err)
    }

    /// Ends them, as this rank has failed.
    pub(super) fn give_up_tasks(&self) {
        let Some(tasks) = self.tasks.get() else { return };
        if !tasks.all_over() {
            tasks.give_up();
            wait::until_done(tasks.sleeper().bell(), || tasks.all_over());
        }
        drop(tasks.take_failure());
        tasks.ends();
    }
}
