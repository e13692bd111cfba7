//! The locks of a window.

use super::elsewhere::Asked;
use super::window::RawWindow;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::transport::cluster::one_sided::What;
use crate::transport::shared::layout::Agent;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::window::{Lock, LockKind, Mode, Node, Queue, lock_of};

/// Which lock of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOf {
    /// Of all parts together.
    Window,
    /// Of the part of a rank.
    Part(usize),
    /// Of those who change elements of several words in the part of a rank.
    Update(usize),
}

impl LockOf {
    /// On whose part it lies, and which of the locks there it is.
    fn place(self) -> (usize, LockKind) {
        match self {
            LockOf::Window => (0, LockKind::Window),
            LockOf::Part(rank) => (rank, LockKind::Part),
            LockOf::Update(rank) => (rank, LockKind::Update),
        }
    }
}

impl RawWindow {
    /// Takes a lock; waits in its queue if it must.
    ///
    /// Errors: a rank has failed, or left while it has the lock; the ranks wait for each other.
    pub fn lock(&self, call: &Call<'_>, which: LockOf, mode: Mode) -> Result<()> {
        self.check_own(call)?;
        if self.is_elsewhere(which.place().0) {
            return self.lock_elsewhere(call, which, mode);
        }
        self.comm.carried(call, || {
            let waiter = self.comm.waiter(call)?;
            let (lock, me) = (self.lock_of(which)?, self.comm.me);
            let entered = lock.enter(me, mode, self).inspect_err(|error| waiter.give_up(error))?;
            if entered {
                return Ok(());
            }
            let own = self.node(me)?;
            waiter.ended_by(Agent::LOCK);
            let granted = waiter.until(|| {
                if lock.is_granted(me, own) {
                    return Some(());
                }
                let holder = lock.holder().filter(|rank| *rank < self.ranks() && *rank != me);
                waiter.waits_on(holder.map(|rank| self.comm.world_rank(rank)));
                None
            });
            granted.inspect_err(|error| waiter.give_up(error))
        })
    }

    /// Leaves a lock that this rank has, to the next in its queue. It waits for nobody.
    ///
    /// Errors: a process has written into the queue what no rank writes.
    pub fn unlock(&self, call: &Call<'_>, which: LockOf) -> Result<()> {
        if self.is_elsewhere(which.place().0) {
            return self.unlock_elsewhere(which);
        }
        let left = self.lock_of(which).and_then(|lock| lock.leave(self.comm.me, self));
        left.inspect_err(|error| {
            let (endpoint, scope) = (&self.comm.endpoint, &self.comm.scope);
            Waiter::new(endpoint, scope, call, self.comm.note(call)).give_up(error);
        })
    }

    fn lock_of(&self, which: LockOf) -> Result<&Lock> {
        let (rank, kind) = which.place();
        Ok(lock_of(self.head(rank)?, kind))
    }

    /// [`RawWindow::lock`] of one that lies elsewhere.
    fn lock_elsewhere(&self, call: &Call<'_>, which: LockOf, mode: Mode) -> Result<()> {
        let (target, kind) = which.place();
        self.comm.carried(call, || {
            let answer = self.ask(call, target, Asked::only(What::Lock(kind, mode)))?;
            let granted = self.await_answer(call, &answer, Agent::LOCK);
            granted.map(drop).inspect_err(|error| {
                if let Ok(waiter) = self.comm.waiter(call) {
                    waiter.give_up(error);
                }
            })
        })
    }

    /// [`RawWindow::unlock`] of one that lies elsewhere: what this rank has sent there before is done
    /// before.
    fn unlock_elsewhere(&self, which: LockOf) -> Result<()> {
        let (target, kind) = which.place();
        let Some(elsewhere) = &self.elsewhere else { return Ok(()) };
        elsewhere.send(self.comm.me, target, 0, Asked::only(What::Unlock(kind)))
    }
}

impl Queue for RawWindow {
    fn node(&self, rank: usize) -> Result<&Node> {
        if rank >= self.ranks() {
            return Err(self.corrupt());
        }
        match self.elsewhere.as_ref().filter(|_| self.is_elsewhere(rank)) {
            Some(elsewhere) => elsewhere.node(rank).ok_or_else(|| self.corrupt()),
            None => Ok(&self.head(rank)?.node),
        }
    }

    fn ranks(&self) -> usize {
        self.parts.count()
    }

    fn wake(&self, rank: usize) {
        match self.elsewhere.as_ref().filter(|_| self.is_elsewhere(rank)) {
            Some(elsewhere) => elsewhere.serving().grant(rank),
            None => self.comm.endpoint.world.bell(self.comm.world_rank(rank)).ring(),
        }
    }

    fn corrupt(&self) -> Error {
        let what = "the queue of a window's lock is not one";
        Error::corrupt(self.comm.world_rank(0), what)
    }
}
