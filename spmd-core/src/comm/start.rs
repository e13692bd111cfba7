//! Started calls of a communicator. They go on tracks: each is the communicator once more, on an
//! area of its own, on which one call follows another. So what calls rely on, that a rank has ended
//! one when it begins the next, stays true on each area, and calls on different tracks end in any
//! order.

use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::communicator::{Comm, Tracks};
use super::entry::User;
use super::polls::Polling;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::{Scope, TRACKS};
use crate::transport::shared::collective::CollectiveArea;
use crate::wait::{self, StartedCall};

impl Comm {
    /// Starts a call: `body` carries it out on the communicator that it is given, of the same
    /// ranks, and runs here as far as it can go without waiting. All ranks start it, between the
    /// same other calls. Any number may be started, of which [`TRACKS`] are under way at a time;
    /// the others follow in order. They end in any order.
    ///
    /// Errors: as for a call that is not started; the communicator spans processes without common
    /// memory; the system has no room for a stack.
    ///
    /// # Safety
    /// What `body` uses lives until the call is over: what this gives is dropped, not forgotten,
    /// before any of it, by the agent that starts the call.
    pub(crate) unsafe fn start<'a>(
        &'a self,
        call: &Call<'_>,
        body: impl FnOnce(&'a Comm) -> Result<()> + 'a,
    ) -> Result<StartedCall<'a>> {
        let entered = self.user.enter(call)?;
        if self.hierarchy.is_some() {
            return Err(Error::unavailable(
                format!("{call}, started"),
                "the communicator spans processes without common memory".into(),
                "make the call without starting it".into(),
            ));
        }
        let tracks = self.started.get_or_init(|| {
            self.endpoint.use_tracks(self.area.index);
            Box::new(Tracks::of(self))
        });
        let (start, moment) = (tracks.starts.get(), self.area.moment());
        tracks.starts.set(start + 1);
        self.endpoint.acts();
        drop(entered);
        let (track, turn) = (start as usize % TRACKS, start / TRACKS as u64);
        let (comm, over, bell) = (&tracks.comms[track], &tracks.over[track], self.endpoint.bell());
        let in_turn = move || {
            wait::for_own_turn(bell, || over.get() == turn);
            comm.area.follows(moment, start);
            let result = catch_unwind(AssertUnwindSafe(|| body(comm)));
            over.set(turn + 1);
            result.unwrap_or_else(|payload| resume_unwind(payload))
        };
        // SAFETY: what `body` uses lives until the call is over, as what this gives is dropped, not
        // forgotten, before any of it, by the agent that starts the call (this function's
        // contract). The tracks and the bell are borrowed from `self`, and so live at least as long
        // as what this gives.
        let started = unsafe { wait::start(bell, in_turn) };
        // Nothing of it has run: the next one takes its turn.
        started.inspect_err(|_| tracks.starts.set(start))
    }

    /// The same ranks on the area of a track.
    fn track(&self, track: usize) -> Comm {
        let index = self.endpoint.world.memory.layout.area_of_track(self.area.index, track);
        Comm {
            endpoint: self.endpoint.clone(),
            route: self.route.clone(),
            scope: Scope { track, ..self.scope.clone() },
            me: self.me,
            here: self.here,
            hierarchy: None,
            beyond: self.beyond.clone(),
            offload: self.offload.clone(),
            area: CollectiveArea::new(index, self.scope.context),
            notes: Default::default(),
            origin: self.origin,
            choices: self.choices.copied(),
            polling: Polling::default(),
            user: User::default(),
            started: OnceCell::new(),
            primary: true,
            _part: None,
        }
    }
}

impl Tracks {
    fn of(comm: &Comm) -> Tracks {
        let comms = std::array::from_fn(|track| comm.track(1 + track));
        Tracks { comms, over: Default::default(), starts: Cell::new(0) }
    }

    /// How many rounds this rank has begun on each.
    pub(super) fn rounds(&self) -> [u64; TRACKS] {
        std::array::from_fn(|track| self.comms[track].area.rounds())
    }
}
