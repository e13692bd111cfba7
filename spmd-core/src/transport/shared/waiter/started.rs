//! The wait for calls that the agent itself has started.

use std::panic::Location;
use std::time::Duration;

use super::Waiter;
use crate::call::{Call, Kind};
use crate::error::{Error, Result};
use crate::transport::shared::Endpoint;
use crate::transport::shared::layout::Agent;
use crate::wait::{self, Bell, Outcome, WaitHooks};

/// The hooks of such a wait, which nothing but the end of the call ends: the call hears of what
/// fails. The wait is on record all the same, as the agent can do nothing else meanwhile.
pub(crate) struct AwaitsStarted<'a>(Waiter<'a>);

impl<'a> AwaitsStarted<'a> {
    pub(crate) fn new(waiter: Waiter<'a>) -> AwaitsStarted<'a> {
        waiter.waits_on(Some(waiter.endpoint.rank));
        waiter.ended_by(Agent::STARTED);
        AwaitsStarted(waiter)
    }
}

impl Endpoint {
    /// A call that this rank has started is under way from now on: where it does not wait on
    /// record, the rank may act.
    pub(crate) fn begins_started(&self) {
        self.agents.leave_off_record();
    }

    /// It is over.
    pub(crate) fn ends_started(&self) {
        self.agents.is_told();
    }
}

impl Endpoint {
    /// Waits until all tasks and calls are over that this rank has started and not waited for, at the
    /// end of its block. Gives what went wrong with the first of them.
    pub(crate) fn end_started(
        &self,
        block: u32,
        site: &'static Location<'static>,
    ) -> Option<Outcome> {
        if let Err(error) = self.end_tasks(block, site) {
            return Some(Ok(Err(error)));
        }
        let own = self.of_agent();
        wait::finish(own);
        if !wait::all_over(own) {
            let (call, scope) = (Call::new(Kind::End, site), self.scope_of_the_end(block));
            let waiter = Waiter::new(self, &scope, &call, self.note(&call));
            let over = || wait::all_over(own);
            wait::until_over(self.bell(), &mut AwaitsStarted::new(waiter), over);
        }
        wait::unknown_failure(own)
    }

    /// The bell of what the agent has started in this block: any, of a virtual rank, which ends with
    /// it. A thread may have started some in the block around it.
    fn of_agent(&self) -> Option<Bell<'_>> {
        if wait::scheduler::in_coroutine() { None } else { Some(self.bell()) }
    }

    /// Ends them, as this rank has failed: they give up where they wait.
    pub(crate) fn give_up_started(&self) {
        self.give_up_tasks();
        let own = self.of_agent();
        if !wait::all_over(own) {
            wait::refuse();
            wait::until_done(self.bell(), || wait::all_over(own));
        }
        drop(wait::unknown_failure(own));
    }
}

impl WaitHooks for AwaitsStarted<'_> {
    fn interrupted(&self) -> Option<Error> {
        None
    }

    fn asleep(&mut self) {
        self.0.sleeps();
    }

    fn awake(&mut self) {
        self.0.is_over();
    }

    fn calls_went_on(&mut self) {
        self.0.unrecord();
    }

    fn serve(&mut self) -> bool {
        self.0.endpoint.serve()
    }

    fn overdue(&mut self, waited: Duration, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        if !self.0.lasts() {
            self.0.record();
        }
        self.0.endpoint.collect_all();
        self.0.confirm(waited, ready);
        Ok(())
    }
}
