//! A communicator, and what it is made of.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::mem::replace;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use super::attributes::Attributes;
use super::beyond::{Beyond, Offload};
use super::choices::Choices;
use super::entry::User;
use super::one_thread::UsedByThreads;
use super::part::Part;
use super::polls::Polling;
use super::send_order::SendOrders;
use crate::call::Call;
use crate::error::{Error, RankOutOfRange, Result};
use crate::group::{Group, Scope, TRACKS};
use crate::transport::cluster::Hierarchy;
use crate::transport::registry::Route;
use crate::transport::shared::collective::CollectiveArea;
use crate::transport::shared::contexts::area_of;
use crate::transport::shared::record::Noted;
use crate::transport::shared::{Common, Endpoint};

/// A communicator: ranks that call collectives together and exchange messages that no other
/// communicator sees.
///
/// It can be moved to another thread, not shared: calls start from one thread at a time, and
/// collectives in the same order on all its ranks. It frees itself when dropped.
///
/// ```
/// use spmd::prelude::*;
///
/// fn to_the_right(comm: &Comm) -> Result<usize> {
///     comm.send(&[comm.rank()], (comm.rank() + 1) % comm.size(), 0)?;
///     let left = (comm.rank() + comm.size() - 1) % comm.size();
///     Ok(comm.recv_vec::<usize>(left, 0)?.0[0])
/// }
/// assert_eq!(spmd(3, |ctx| to_the_right(ctx))?, [2, 0, 1]);
/// # Ok::<(), Error>(())
/// ```
///
/// As long as a rank has a communicator besides its block's own on which nobody waits, any thread
/// of its process may be about to use it: one that this library does not know, or one that runs
/// another rank, which does not wait. A cycle of waits through this rank is then not found. A time
/// limit still bounds them ([`Spmd::timeout`](crate::Spmd::timeout), `SPMD_TIMEOUT`).
pub struct Comm {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) route: Route,
    pub(super) scope: Scope,
    pub(super) me: usize,
    /// This rank among those of its process.
    pub(super) here: usize,
    /// How its ranks lie in processes without common memory.
    pub(super) hierarchy: Option<Arc<Hierarchy>>,
    pub(super) beyond: Arc<Beyond>,
    /// What carries out its calls by other means than the arena; `None` if nothing does.
    pub(super) offload: Option<Arc<dyn Offload>>,
    pub(super) area: CollectiveArea,
    pub(super) notes: [Cell<(usize, u64, Noted)>; 16],
    /// The number of the text that names the call which made it; 0 of the block's own.
    pub(super) origin: u16,
    pub(super) choices: Choices,
    pub(super) polling: Polling,
    pub(super) user: User,
    /// How many calls it has started.
    pub(super) starts: Cell<u64>,
    /// Those calls, once there are any.
    pub(super) tracks: OnceCell<Arc<Tracks>>,
    /// Its sends that go on.
    pub(super) sends: Arc<SendOrders>,
    /// What planes keep with it.
    pub(super) attributes: Attributes,
    /// The block's own communicator, not one made by the program, or a track.
    pub(super) primary: bool,
    /// The same once more, for messages that go on while the rank does something else.
    pub(super) beside: bool,
    /// Of the block's own, where it spans processes: what its ranks share in this one.
    pub(super) _part: Option<Common<Part>>,
}

// SAFETY: it applies to nothing, as no type is `UsedByThreads`: `Comm` is not `Sync`. What this adds is
// the message for those who need it to be.
unsafe impl Sync for Comm where for<'a> &'a Comm: UsedByThreads {}

/// The started calls of a communicator: the same ranks, on areas of their own.
pub(super) struct Tracks {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) scope: Mutex<Scope>,
    /// On each goes one call after another; `None` while one has it.
    pub(super) comms: [Mutex<Option<Comm>>; TRACKS],
    /// How many calls there have been on each that are over.
    pub(super) over: [AtomicU64; TRACKS],
    /// The area of the communicator itself, once that has been dropped.
    pub(super) area: Mutex<Option<Area>>,
}

/// The area of a communicator that is gone while calls go on that it has started.
pub(super) struct Area {
    area: CollectiveArea,
    scope: Scope,
}

impl Drop for Tracks {
    /// No call is under way, and the communicator is gone.
    fn drop(&mut self) {
        let Some(area) = self.area.get_mut().take() else { return };
        let (world, rank) = (&self.endpoint.world, self.endpoint.rank);
        for comm in self.comms.each_mut().map(Mutex::get_mut).into_iter().flatten() {
            comm.hierarchy.iter().for_each(|hierarchy| hierarchy.drop_by(world, rank));
        }
        // How many rounds this rank has begun on each.
        let rounds = |comm: &mut Mutex<Option<Comm>>| {
            comm.get_mut().as_ref().map_or(0, |comm| comm.area.rounds())
        };
        let rounds = self.comms.each_mut().map(rounds);
        self.endpoint.retire_area(&area.area, &area.scope, rounds);
    }
}

/// Marks the whole of a block among what the ranks of a process have in common.
const WHOLE: u64 = 1 << 61;

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Comm");
        fields.field("rank", &self.rank()).field("size", &self.size()).finish_non_exhaustive()
    }
}

impl Comm {
    pub(crate) fn world(endpoint: Arc<Endpoint>, block: u32, beyond: Arc<Beyond>) -> Comm {
        let part = || Part::of(Group::World(endpoint.world.size()));
        let at = (u64::from(block), area_of(block));
        let (part, here, hierarchy) = match &beyond.cluster {
            Some(cluster) if cluster.size() > cluster.local().len() => {
                let part = Common::of(&endpoint.world, (at.0, WHOLE), part);
                let processes = cluster.fabric.world();
                let hierarchy = part.hierarchy(cluster, processes, at, endpoint.rank, true);
                let here = part.here(Some(cluster));
                (Some(part), here, Some(hierarchy))
            }
            _ => (None, Group::World(endpoint.world.size()), None),
        };
        let group = Group::World(endpoint.world.size());
        let scope = Scope::new(u64::from(block), block, area_of(block), group, here);
        let here = scope.here.local(endpoint.rank).expect("a rank lives in its process");
        let (me, area) = (endpoint.rank, CollectiveArea::new(area_of(block), u64::from(block)));
        let route = Route::of(&endpoint, beyond.cluster.as_ref());
        let choices = Choices::of(&endpoint.world, endpoint.world.size());
        let (notes, polling, user) = Default::default();
        let origin = 0;
        let offload = beyond.part(hierarchy.is_some());
        Comm {
            endpoint,
            route,
            scope,
            me,
            here,
            hierarchy,
            beyond,
            offload,
            area,
            notes,
            origin,
            choices,
            polling,
            user,
            starts: Cell::default(),
            tracks: OnceCell::new(),
            sends: Arc::default(),
            attributes: Attributes::default(),
            primary: true,
            beside: false,
            _part: part,
        }
    }

    /// This rank in this communicator, from 0.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(spmd(3, |ctx| Ok(ctx.rank()))?, [0, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn rank(&self) -> usize {
        self.me
    }

    /// How many ranks this communicator has.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(spmd(3, |ctx| Ok(ctx.size()))?, [3; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.scope.group.len()
    }

    /// The rank in the world of a rank of this communicator, as errors name it. It may panic for a
    /// number that is none.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(spmd(3, |ctx| Ok(ctx.world_rank(2)))?, [2; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn world_rank(&self, rank: usize) -> usize {
        self.scope.group.world(rank)
    }

    /// Numbers of a call's texts; a call met again costs one comparison.
    #[inline]
    pub(super) fn note(&self, call: &Call<'_>) -> Noted {
        let dtype = call.dtype.map_or(0, |dtype| dtype.id);
        let what = dtype ^ call.op.map_or(0, |op| op.identity().rotate_left(32));
        self.noted(call.site, what).unwrap_or_else(|| {
            let noted = self.endpoint.note(call).on(self.origin);
            let (site, place) = self.note_of(call.site);
            place.set((site, what, noted));
            noted
        })
    }

    /// The same, where it was met just before, of the call made there with this type.
    #[inline]
    pub(super) fn noted(&self, site: &'static Location<'static>, what: u64) -> Option<Noted> {
        let (site, place) = self.note_of(site);
        let (known_site, known_what, known) = place.get();
        ((known_site, known_what) == (site, what)).then_some(known)
    }

    #[inline]
    fn note_of(&self, site: &'static Location<'static>) -> (usize, &Cell<(usize, u64, Noted)>) {
        let site = std::ptr::from_ref(site) as usize;
        (site, &self.notes[(site >> 3) % self.notes.len()])
    }

    /// Makes a call, with what is wrapped around the transport. Where nothing is, it costs nothing:
    /// to go through the transport's table took a tenth of a barrier of two ranks.
    ///
    /// Errors: another call is under way.
    #[inline]
    pub(super) fn carried<R>(&self, call: &Call<'_>, run: impl FnOnce() -> Result<R>) -> Result<R> {
        let _entered = self.user.enter(call)?;
        self.endpoint.acts();
        if self.route.plain { run() } else { self.wrapped(call, run) }
    }

    #[cold]
    #[inline(never)]
    fn wrapped<R>(&self, call: &Call<'_>, run: impl FnOnce() -> R) -> R {
        let (mut run, mut result) = (Some(run), None);
        let way = self.choices.take();
        self.route.transport.around(call, way, &mut || result = run.take().map(|run| run()));
        result.expect("a transport makes each call once")
    }

    /// What carries out calls by other means than the arena.
    #[inline]
    pub(crate) fn offload(&self) -> Option<&dyn Offload> {
        self.offload.as_deref()
    }

    pub(super) fn check_rank(
        &self,
        call: &Call<'_>,
        what: &'static str,
        given: usize,
    ) -> Result<()> {
        let size = self.size();
        if given < size {
            return Ok(());
        }
        Err(Error::RankOutOfRange(Box::new(RankOutOfRange {
            call: call.to_string(),
            what,
            given,
            size,
        })))
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if !self.primary {
            if !self.scope.confined {
                self.endpoint.closes_comm();
            }
            let (world, rank) = (&self.endpoint.world, self.endpoint.rank);
            self.hierarchy.iter().for_each(|hierarchy| hierarchy.drop_by(world, rank));
            let Some(tracks) = self.tracks.take() else {
                return self.endpoint.retire_area(&self.area, &self.scope, [0; TRACKS]);
            };
            let area = replace(&mut self.area, CollectiveArea::new(0, 0));
            // It is given back with the last call that goes on, or here.
            *tracks.area.lock() = Some(Area { area, scope: self.scope.clone() });
        }
    }
}
