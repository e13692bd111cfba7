//! What a communicator is to the other crates of this workspace, beyond what programs use.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use super::choices::Choices;
use super::communicator::Comm;
use super::entry::CallGuard;
use super::part::Part;
use super::polls::Polling;
use crate::call::Call;
use crate::error::Result;
use crate::group::{Group, Scope};
use crate::mode::Mode;
use crate::transport::fabric::ProcessGroup;
use crate::transport::shared::Endpoint;
use crate::transport::shared::collective::{CollectiveArea, FLAT, Round};
use crate::transport::shared::contexts::{CONTEXT_STEP, RANK_BITS};
use crate::wait::tasks::Sleeper;

/// A communicator as verbs, planes and measurements see it: rounds on the arena, choices of
/// algorithms, parts of it. It may change with every version.
#[doc(hidden)]
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Internals<'a>(pub(super) &'a Comm);

impl Comm {
    /// What the other crates of this workspace are written with.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn internals(&self) -> Internals<'_> {
        Internals(self)
    }
}

impl<'a> Internals<'a> {
    /// This rank's end of the arena.
    pub(crate) fn endpoint(self) -> &'a Arc<Endpoint> {
        &self.0.endpoint
    }

    /// Waits for something that tasks of this rank do, on the communicator of its block.
    pub(crate) fn wait_for_tasks(
        self,
        call: (&Call<'_>, Option<&str>),
        sleeper: &Sleeper,
        done: impl FnMut() -> bool,
    ) -> Result<()> {
        self.0.endpoint.wait_for_tasks(&self.0.scope, call, sleeper, done)
    }
}

impl<'a> Internals<'a> {
    /// How many cycles of waits this rank has been told that it is in.
    pub fn cycles_told(self) -> u64 {
        self.endpoint().cycles_told().0
    }

    /// Stops this communicator if this rank has been told of another one since there were `before`: what it
    /// says then may be no more than how a rank ends that has failed. Whether it has.
    pub fn stop_after_cycle(self, before: u64) -> bool {
        let (told, last) = self.endpoint().cycles_told();
        let last = last.filter(|_| told > before);
        last.iter().for_each(|fault| self.endpoint().stop(&self.0.scope, fault));
        last.is_some()
    }

    /// Runs a collective on the shared arena: what algorithms of `spmd-collectives` are made of.
    ///
    /// All ranks of the communicator call it, in the same order, with calls of equal
    /// fingerprints. Errors: what `body` gives, or the fault that stops the communicator.
    #[inline]
    pub fn collective<R>(
        self,
        call: &'a Call<'a>,
        body: impl FnOnce(&Round<'a>) -> Result<R>,
    ) -> Result<R> {
        self.0.carried(call, || {
            let noted = self.0.note(call);
            Round::run(
                &self.0.endpoint,
                &self.0.scope,
                &self.0.area,
                self.0.here,
                call,
                noted,
                body,
            )
        })
    }

    /// Keeps others from making calls as long as what this gives lives: between the calls that a
    /// longer one is made of.
    ///
    /// Errors: another call is under way, or an operation of a reduction runs.
    pub fn hold(self, call: &Call<'_>) -> Result<CallGuard<'a>> {
        self.0.user.hold(call)
    }

    /// Up to how many ranks a small collective is best done flat, everybody reading everybody:
    /// ranks that share a core only add up the work.
    pub fn flat_limit(self) -> usize {
        if self.0.endpoint.world.mode == Mode::Virtual { 4 } else { FLAT }
    }

    /// Up to how many ranks small data that go one way are best shown to those alone who want them:
    /// beyond that, and in the combining barrier, a meeting of all lets more ranks go on at once.
    pub fn one_way_limit(self) -> usize {
        if self.has_combining() { 1 } else { FLAT }
    }

    /// Whether the ranks meet in one place, so that one of them arrives last and can work for all
    /// ([`Round::arrive_and`]).
    #[inline]
    pub fn has_combining(self) -> bool {
        self.0.endpoint.combining(&self.0.scope).is_some()
    }

    /// Whether all ranks know that all may read each other's private memory through the kernel.
    pub fn reads_private(self) -> bool {
        self.0.area.reads_private()
    }

    /// And that this is faster than a copy in between.
    pub fn prefers_private(self) -> bool {
        self.0.area.prefers_private()
    }

    /// Whether the job has more ranks than cores.
    pub fn shares_cores(self) -> bool {
        self.0.endpoint.world.size() > self.0.endpoint.world.policy.cores
    }

    /// Refuses a target that is not a rank of this communicator.
    pub fn check_target(self, call: &Call<'_>, target: usize) -> Result<()> {
        self.0.check_rank(call, "target", target)
    }

    /// Refuses a root that is not a rank of this communicator.
    #[inline]
    pub fn check_root(self, call: &Call<'_>) -> Result<()> {
        call.root.map_or(Ok(()), |root| self.0.check_rank(call, "root", root))
    }
}

/// What making new communicators needs, for `split` and `dup` in `spmd-collectives`.
impl Internals<'_> {
    /// Makes in `call` the communicator of a part of this one, in which this rank is number `me`,
    /// with what [`Internals::processes_of`] gave for it. `None` if another thread of this rank has
    /// taken the area since it was free. Members must meet once more before they use it.
    ///
    /// Its number is made of `base`, of this communicator's area and of its lowest world rank,
    /// so that of communicators that share a rank no two have the same, even if two threads of
    /// the rank make them at a time: from communicators on different areas.
    ///
    /// # Safety
    /// All members call this with the same arguments but `me`, and use the result only if all of
    /// them have got one. `area` and `base` are of the [`ContextOffer`](super::context_offer::ContextOffer) that all ranks of this
    /// communicator that take part have together, and `me` is this rank's place in `part`.
    pub unsafe fn child(
        self,
        call: &Call<'_>,
        (part, me): (&Part, usize),
        (area, base): (usize, u64),
        processes: Option<Arc<dyn ProcessGroup>>,
    ) -> Option<Comm> {
        self.skip_contexts(base);
        let group = part.group.clone();
        let lowest = group.lowest();
        let context = base + ((self.0.area.index as u64) << RANK_BITS | lowest as u64);
        if !self.0.endpoint.take_area(area, context) {
            return None;
        }
        let cluster = self.0.beyond.cluster.as_ref();
        let hierarchy = processes.zip(cluster).map(|(processes, cluster)| {
            part.hierarchy(cluster, processes, (context, area), self.0.endpoint.rank, false)
        });
        let here = part.here(cluster.map(|cluster| &**cluster));
        let size = group.len();
        let scope =
            Scope::new(context, self.0.scope.block, area, group, here).within(&self.0.scope);
        let scope = Scope { together: Some(part.together.clone()), ..scope };
        let here = scope.here.local(self.0.endpoint.rank)?;
        self.0.endpoint.opens_comm();
        Some(Comm {
            endpoint: self.0.endpoint.clone(),
            route: self.0.route.clone(),
            scope,
            me,
            here,
            offload: self.0.beyond.part(hierarchy.is_some()),
            beyond: self.0.beyond.clone(),
            hierarchy,
            area: CollectiveArea::new(area, context),
            notes: Default::default(),
            origin: self.0.endpoint.note_origin(call),
            choices: Choices::of(&self.0.endpoint.world, size),
            polling: Polling::default(),
            user: Default::default(),
            starts: Cell::default(),
            tracks: OnceCell::new(),
            sends: Arc::default(),
            attributes: Default::default(),
            primary: false,
            beside: false,
            _part: None,
        })
    }

    /// The same once more, for a thread that receives while another one sends; gone before the first.
    #[must_use]
    pub fn receiver(self) -> Comm {
        self.0.receiver()
    }

    /// These ranks of this communicator, each once.
    #[must_use]
    pub fn part_of(self, ranks: &[usize]) -> Part {
        if ranks.iter().copied().eq(0..self.0.size()) {
            return self.part_of_all();
        }
        let world = &self.0.scope.group;
        Part::of(Group::of(ranks.iter().map(|rank| world.world(*rank))))
    }

    /// All of them: of these there is a list already.
    #[must_use]
    pub fn part_of_all(self) -> Part {
        Part::of(self.0.scope.group.clone())
    }

    /// The number by which this communicator is told from others.
    #[must_use]
    pub fn context(self) -> u64 {
        self.0.scope.context
    }

    /// Takes note that `base` has been used, on a rank that gets no communicator now.
    pub fn skip_contexts(self, base: u64) {
        self.0.endpoint.skip_contexts(base + CONTEXT_STEP);
    }

    /// Where this communicator lies on the areas of its members.
    #[must_use]
    pub fn area(self) -> usize {
        self.0.area.index
    }

    /// Which host this rank is on, as a color for `split`.
    #[must_use]
    pub fn host_color(self) -> u32 {
        let cluster = self.0.beyond.cluster.as_ref();
        cluster.map_or(0, |cluster| cluster.fabric.hosts()[cluster.fabric.process()])
    }

    /// How many ranks of the world come before this one on its host.
    #[must_use]
    pub fn place_on_host(self) -> usize {
        let (cluster, rank) = (self.0.beyond.cluster.as_ref(), self.0.endpoint.rank);
        cluster.map_or(rank, |cluster| cluster.place_on_host(rank))
    }
}
