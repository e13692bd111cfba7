//! Threads of the program's own that wait for a virtual rank which cannot run.

use std::time::Duration;

use super::Waiter;
use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::transport::shared::World;
use crate::transport::shared::layout::Agent;
use crate::wait::scheduler::{self, Home};

/// How long a worker may be seen to wait outside the library while a thread of the program's own
/// waits for a rank that it runs.
const HELD_UP: Duration = Duration::from_secs(2);

impl Waiter<'_> {
    /// Complains, on a thread of the program's own that uses a communicator of a virtual rank, if
    /// the rank that it waits for cannot run, because another one of its worker waits outside the
    /// library, and nobody is left who could end that wait: all workers stand still, and all other
    /// threads wait in the library, between two looks the same ones.
    pub(super) fn held_up(&self, on: u32) -> Result<()> {
        let world = &self.endpoint.world;
        if world.mode != Mode::Virtual || scheduler::in_coroutine() || on == Agent::ANY {
            return Ok(());
        }
        let before = self.standstill.take();
        let Some(rank) = (on as usize).checked_sub(1) else { return Ok(()) };
        if world.home(rank).is_none_or(|home| home.held_up() < HELD_UP) || !world.stands_still() {
            return Ok(());
        }
        let Some(now) = world.all_wait() else { return Ok(()) };
        if before != Some(now) {
            self.standstill.set(Some(now));
            return Ok(());
        }
        Err(Error::argument(format!(
            "{} cannot complete: rank {rank} cannot run, as a virtual rank of its worker waits for \
             something outside the library, such as a thread that it joins; use thread ranks, or call \
             iprobe until the thread has finished",
            self.call
        )))
    }
}

impl World {
    /// Whether no worker of this process runs a rank, or will before another thread does something.
    fn stands_still(&self) -> bool {
        let mut before: Option<&Home> = None;
        self.local().filter_map(|rank| self.home(rank)).all(|home| {
            let same = before.replace(home).is_some_and(|before| before.is_progressing(home));
            same || home.stands_still(HELD_UP)
        })
    }
}
