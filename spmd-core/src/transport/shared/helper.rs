//! The thread that carries out what a rank has started, while the rank does something else.

use std::sync::Arc;

use super::endpoint::Endpoint;
use crate::current;
use crate::error::Result;
use crate::wait::{self, Bell, Helped, HelperThread, Policy, Startable, StartedHandle, scheduler};

impl Endpoint {
    /// Starts a call on the thread that carries out what this rank's own agent starts, if that runs
    /// here; else as [`wait::start`].
    ///
    /// Errors: the system refuses a thread; as [`wait::start`].
    ///
    /// # Safety
    /// What the call uses lives until it is over.
    #[cold]
    pub(crate) unsafe fn start_beside<'a>(
        self: &Arc<Endpoint>,
        call: Box<dyn Startable + Send + 'a>,
        bell: Bell<'_>,
    ) -> Result<StartedHandle> {
        // SAFETY: what the call uses lives until it is over (this function's contract).
        unsafe {
            match self.helper()? {
                Some(helper) => helper.start_call(call, bell.is_polled()),
                None => wait::start(bell, call),
            }
        }
    }

    /// The thread, which is there from the first time on; `None` if a virtual rank or another thread
    /// than the rank's runs here.
    pub(crate) fn helper(self: &Arc<Endpoint>) -> Result<Option<Arc<HelperThread>>> {
        let own = current::with(|rank| rank.is_some_and(|it| it.is_of(&**self)));
        if !own || scheduler::in_coroutine() {
            return Ok(None);
        }
        let mut helper = self.helper.lock();
        if helper.is_none() {
            let name = format!("rank {} progress", self.rank);
            *helper = Some(Arc::new(HelperThread::start(self.clone(), name)?));
        }
        Ok(helper.clone())
    }

    /// The rank starts nothing more, and what it has started is over.
    pub(crate) fn end_helper(&self) {
        let helper = self.helper.lock().take();
        drop(helper);
    }
}

impl Helped for Endpoint {
    fn bell(&self) -> Bell<'_> {
        self.world.bell(self.rank)
    }

    fn policy(&self) -> &Policy {
        &self.world.policy
    }

    fn serve(&self) -> bool {
        Endpoint::serve(self)
    }

    fn overdue(&self) {
        self.collect_all();
    }

    fn hands_over(&self) {
        self.begins_started();
    }

    fn is_taken(&self) {
        self.ends_started();
    }
}
