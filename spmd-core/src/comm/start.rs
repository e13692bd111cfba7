//! Started calls of a communicator. They go on tracks: each is the communicator once more, on an
//! area of its own, on which one call follows another. So what calls rely on, that a rank has ended
//! one when it begins the next, stays true on each area, and calls on different tracks end in any
//! order.
//!
//! A call has the communicator of its track while it is under way, and gives it back. So it needs
//! nothing of the communicator that has started it, which may be dropped, or moved to another thread,
//! before the call is over: the area is given back with the last of them.

use std::array::from_fn;
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::communicator::{Comm, Tracks};
use super::entry::User;
use super::polls::Polling;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::{Scope, TRACKS};
use crate::transport::shared::collective::{CollectiveArea, Moment};
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::waiter::started::AwaitsStarted;
use crate::wait::{self, Startable, StartedHandle};

/// A call that is under way while its rank does something else, and goes on whether anybody holds
/// this or not.
#[derive(Clone)]
pub(super) struct StartedCall {
    handle: StartedHandle,
    /// They live as long as the call goes on.
    tracks: Weak<Tracks>,
    call: Call<'static>,
    noted: Noted,
}

impl StartedCall {
    /// Goes on with the calls that whoever runs here has started. Whether this one is over.
    ///
    /// Errors: another agent has started it.
    pub(super) fn test(&self) -> Result<bool> {
        self.check_own().map(|()| self.handle.test())
    }

    /// Whether it is over, as far as is known.
    pub(super) fn is_over(&self) -> bool {
        self.handle.is_over()
    }

    /// Waits until the call is over, and gives its result. A panic of an operation goes on here.
    ///
    /// Errors: the call's; another agent has started it.
    pub(super) fn wait(&self) -> Result<()> {
        self.until_over()?;
        self.handle.result()
    }

    /// What went wrong with it, which is over, if nobody knows.
    pub(super) fn failure(&self) -> Result<()> {
        self.handle.failure()
    }

    /// Whether it is over, and nobody has to know more.
    pub(super) fn is_settled(&self) -> bool {
        self.handle.is_settled()
    }

    /// Ends it, whatever happens: where its rank panics, it gives up.
    pub(super) fn end(&self) {
        if self.is_over() {
            return;
        }
        if std::thread::panicking() {
            wait::refuse();
        }
        if let Some(tracks) = self.tracks.upgrade() {
            wait::until_done(tracks.endpoint.bell(), || self.is_over());
        }
    }

    /// Waits until it is over.
    ///
    /// Errors: another agent has started it.
    pub(super) fn until_over(&self) -> Result<()> {
        self.check_own()?;
        if !self.is_over() {
            self.until(|| self.is_over());
        }
        Ok(())
    }

    /// Waits, on record as for this call, until those that the agent has started have brought that
    /// about; or until this one is over.
    pub(super) fn until(&self, over: impl Fn() -> bool) {
        let Some(tracks) = self.tracks.upgrade() else { return };
        let (endpoint, scope) = (&*tracks.endpoint, tracks.scope.lock().clone());
        let waiter = Waiter::new(endpoint, &scope, &self.call, self.noted);
        wait::until_over(endpoint.bell(), &mut AwaitsStarted::new(waiter), over);
    }

    /// Errors: another agent has started it, and it is not over.
    pub(super) fn check_own(&self) -> Result<()> {
        if self.is_over() || self.handle.is_own() {
            return Ok(());
        }
        let text = "a request belongs to the rank or thread that has started it";
        Err(Error::argument(format!("{}: {text}", self.call)))
    }

    /// Of a call whose failure has been told: that it was.
    #[cold]
    pub(super) fn told(&self) -> Error {
        Error::argument(format!("{}: it has failed, which was told before", self.call))
    }
}

impl Comm {
    /// Starts a call: `body` carries it out on the communicator that it is given, of the same
    /// ranks, and runs here as far as it can go without waiting. All ranks start it, between the
    /// same other calls. Any number may be started, of which [`TRACKS`] are under way at a time;
    /// the others follow in order. They end in any order.
    ///
    /// Errors: as for a call that is not started, of what is known at once; the communicator spans
    /// processes without common memory; the system has no room for a stack.
    ///
    /// # Safety
    /// What `body` uses lives until the call is over.
    pub(super) unsafe fn start_call<'a>(
        &self,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<()> + 'a,
    ) -> Result<StartedCall> {
        let entered = self.user.enter(&call)?;
        if self.hierarchy.is_some() {
            return Err(Error::unavailable(
                format!("{call}, started"),
                "the communicator spans processes without common memory".into(),
                "make the call without starting it".into(),
            ));
        }
        let tracks = self.tracks.get_or_init(|| {
            self.endpoint.use_tracks(self.area.index);
            Arc::new(Tracks::of(self))
        });
        let (start, moment) = (self.starts.get(), self.area.moment());
        self.starts.set(start + 1);
        self.endpoint.acts();
        drop(entered);
        let (track, turn) = (start as usize % TRACKS, start / TRACKS as u64);
        let of_track = OnTrack { tracks: tracks.clone(), track, turn, start, moment, body };
        // SAFETY: what `body` uses lives until the call is over (this function's contract). The
        // rest is the call's own.
        let started = unsafe { wait::start(self.endpoint.bell(), Box::new(of_track)) };
        // Nothing of it has run: the next one takes its turn.
        let handle = started.inspect_err(|_| self.starts.set(start))?;
        if handle.is_over() {
            handle.result()?;
        }
        let noted = self.note(&call);
        Ok(StartedCall { handle, tracks: Arc::downgrade(tracks), call, noted })
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
            starts: Default::default(),
            tracks: OnceCell::new(),
            primary: true,
            _part: None,
        }
    }
}

impl Tracks {
    fn of(comm: &Comm) -> Tracks {
        Tracks {
            endpoint: comm.endpoint.clone(),
            scope: Mutex::new(comm.scope.clone()),
            comms: from_fn(|track| Mutex::new(Some(comm.track(1 + track)))),
            over: Default::default(),
            area: Mutex::default(),
        }
    }
}

/// A call on its track.
struct OnTrack<F> {
    tracks: Arc<Tracks>,
    track: usize,
    turn: u64,
    /// Where among the communicator's other calls it was started.
    start: u64,
    moment: Moment,
    body: F,
}

impl<F: FnOnce(&Comm) -> Result<()>> Startable for OnTrack<F> {
    fn has_turn(&self) -> bool {
        self.tracks.over[self.track].load(Acquire) == self.turn
    }

    fn skip(&self) {
        self.tracks.pass(self.track, self.turn);
    }

    fn run(self: Box<Self>) -> Result<()> {
        let OnTrack { tracks, track, turn, start, moment, body } = *self;
        let comm = tracks.comms[track].lock().take();
        let comm = comm.expect("who has the turn on a track finds its communicator");
        comm.area.follows(moment, start);
        // What it waits for is told where it waits.
        comm.endpoint.begins_started();
        let result = catch_unwind(AssertUnwindSafe(|| body(&comm)));
        comm.endpoint.ends_started();
        *tracks.comms[track].lock() = Some(comm);
        tracks.pass(track, turn);
        result.unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl Tracks {
    /// The call with this turn on a track is over: the next one has it, whoever has started that.
    fn pass(&self, track: usize, turn: u64) {
        self.over[track].store(turn + 1, Release);
        self.endpoint.bell().ring();
    }
}
