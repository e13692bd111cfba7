//! The wait for a call that the agent itself has started.

use std::time::Duration;

use super::Waiter;
use crate::error::{Error, Result};
use crate::transport::shared::Endpoint;
use crate::transport::shared::layout::Agent;
use crate::wait::WaitHooks;

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
        self.0.endpoint.make_room()
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
