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

use super::beyond::OnlyChecks;
use super::communicator::{Comm, Tracks};
use super::entry::User;
use super::going::Going;
use super::polls::Polling;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::{Scope, TRACKS};
use crate::progress::Progress;
use crate::transport::cluster::{Hierarchy, STARTED};
use crate::transport::shared::Endpoint;
use crate::transport::shared::collective::{CollectiveArea, Moment};
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::waiter::started::AwaitsStarted;
use crate::wait::{self, AgentKey, Completion, Startable, StartedHandle};

/// A call that is under way while its rank does something else, and goes on whether anybody holds
/// this or not.
pub(super) struct StartedCall {
    handle: StartedHandle,
    endpoint: Arc<Endpoint>,
    /// They live as long as the call goes on, but for its last steps, where another thread carries it
    /// out.
    tracks: Weak<Tracks>,
    call: Call<'static>,
    noted: Noted,
}

impl StartedCall {
    /// Waits until calls that the agent has started have brought that about: as for this call, on
    /// record if nothing else can.
    fn until(&self, on_record: bool, over: impl Fn() -> bool) {
        let endpoint = &*self.endpoint;
        let Some(tracks) = self.tracks.upgrade() else {
            return wait::until_done(endpoint.bell(), over);
        };
        let scope = tracks.scope.lock().clone();
        let waiter = Waiter::new(endpoint, &scope, &self.call, self.noted);
        let waiter = if on_record { waiter } else { waiter.off_record() };
        wait::until_over(endpoint.bell(), &mut AwaitsStarted::new(waiter), over);
    }
}

impl Going for StartedCall {
    fn completion(&self) -> &Completion {
        self.handle.completion()
    }

    fn agent(&self) -> AgentKey {
        self.handle.agent()
    }

    fn test(&self) -> bool {
        self.handle.test()
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        (!self.is_over()).then(|| self.endpoint.clone())
    }

    fn until_over(&self) -> Result<()> {
        self.check_own()?;
        if !self.is_over() {
            self.handle.go_on_alone(&self.endpoint.world.policy);
        }
        if !self.is_over() {
            self.until(true, || self.is_over());
        }
        Ok(())
    }

    fn releasers(&self) -> u64 {
        0
    }

    fn until_any(&self, alike: bool, over: &dyn Fn() -> bool) -> Result<()> {
        self.until(alike, over);
        Ok(())
    }

    fn failure(&self) -> Result<()> {
        self.handle.failure()
    }

    fn is_settled(&self) -> bool {
        self.handle.is_settled()
    }

    fn end(&self) {
        if self.is_over() {
            return;
        }
        if std::thread::panicking() {
            wait::refuse();
        }
        wait::until_done(self.endpoint.bell(), || self.is_over());
    }

    fn described(&self) -> String {
        self.call.to_string()
    }
}

impl Comm {
    /// Starts a call: `body` carries it out on the communicator that it is given, of the same
    /// ranks, and runs here as far as it can go without waiting, unless a thread beside the rank
    /// carries it out. All ranks start it, between the same other calls. Any number may be started,
    /// of which [`TRACKS`] are under way at a time; the others follow in order. They end in any order.
    ///
    /// Errors: as for a call that is not started, of what is known at once; the communicator spans
    /// processes that go on when others fail; the system has no room for a stack, or a thread.
    ///
    /// # Safety
    /// What `body` uses lives until the call is over.
    pub(super) unsafe fn start_call<'a>(
        &self,
        call: Call<'static>,
        body: impl FnOnce(&Comm) -> Result<()> + Send + 'a,
    ) -> Result<StartedCall> {
        let entered = self.user.enter(&call)?;
        if !self.internals().can_start() {
            return Err(Error::unavailable(
                format!("{call}, started"),
                "the communicator spans processes of which some may fail and others go on".into(),
                "make the call without starting it".into(),
            ));
        }
        let tracks = self.tracks.get_or_init(|| {
            self.endpoint.use_tracks(self.area.index);
            Arc::new(Tracks::of(self))
        });
        let (start, moment) = (self.starts.get(), self.area.moment());
        let used = if self.hierarchy.is_some() { 1 } else { TRACKS };
        let (track, turn) = (start as usize % used, start / used as u64);
        if let Some(hierarchy) = &self.hierarchy {
            hierarchy.start(&self.started_in(hierarchy), self.endpoint.rank)?;
            self.area.notes_start();
        }
        self.starts.set(start + 1);
        self.endpoint.acts();
        drop(entered);
        let of_track = OnTrack { tracks: tracks.clone(), track, turn, start, moment, body };
        let of_track = Box::new(of_track);
        // What comes from other processes rings nothing.
        let bell = self.endpoint.bell().polled(self.hierarchy.is_some());
        // SAFETY: what `body` uses lives until the call is over (this function's contract). The
        // rest is the call's own.
        let started = unsafe {
            match self.endpoint.world.policy.progress {
                Progress::Calls => wait::start(bell, of_track),
                Progress::Thread => self.endpoint.start_beside(of_track, bell),
            }
        };
        // Nothing of it has run: the next one takes its turn.
        let handle = started.inspect_err(|_| self.starts.set(start))?;
        if handle.is_over() {
            handle.result()?;
        }
        let noted = self.note(&call);
        let endpoint = self.endpoint.clone();
        Ok(StartedCall { handle, endpoint, tracks: Arc::downgrade(tracks), call, noted })
    }

    /// The same ranks and messages, for what goes on while the rank does something else.
    pub(super) fn beside(&self) -> Comm {
        let mut comm = self.track(0);
        comm.beside = true;
        comm
    }

    /// The same ranks and messages, for another thread.
    pub(super) fn receiver(&self) -> Comm {
        self.track(0)
    }

    /// The same ranks, whose collectives look at their arguments and do nothing else.
    pub(super) fn only_checking(&self) -> Comm {
        let mut comm = self.track(0);
        comm.offload = Some(Arc::new(OnlyChecks));
        comm
    }

    fn started_in(&self, hierarchy: &Hierarchy) -> Arc<Hierarchy> {
        let layout = self.endpoint.world.memory.layout;
        hierarchy.started(layout.area_of_track(self.area.index, STARTED))
    }

    /// The same ranks on the area of a track, or, of track 0, on none that is used.
    fn track(&self, track: usize) -> Comm {
        let index = self.endpoint.world.memory.layout.area_of_track(self.area.index, track);
        let spans = self.hierarchy.as_ref().filter(|_| track == STARTED);
        let hierarchy = spans.map(|hierarchy| self.started_in(hierarchy));
        Comm {
            endpoint: self.endpoint.clone(),
            route: self.route.clone(),
            scope: Scope { track, ..self.scope.clone() },
            me: self.me,
            here: self.here,
            hierarchy,
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
            sends: self.sends.clone(),
            attributes: self.attributes.clone(),
            primary: true,
            beside: false,
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
    /// Gone before the rest where it is not carried out: by then it must have no buffers any more.
    body: F,
    tracks: Arc<Tracks>,
    track: usize,
    turn: u64,
    /// Where among the communicator's other calls it was started.
    start: u64,
    moment: Moment,
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
        *tracks.comms[track].lock() = Some(comm);
        tracks.pass(track, turn);
        tracks.endpoint.ends_started();
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
