//! What stops a communicator, or a wait.

use super::notices::{EVERYBODY, Look, look_at};
use super::told::is_cycle;
use crate::fault::Fault;
use crate::group::Scope;
use crate::sync::atomic::Ordering::*;
use crate::transport::shared::agents::Wait;
use crate::transport::shared::endpoint::Endpoint;
use crate::transport::shared::layout::{FAULT_BYTES, FaultPlace};
use crate::transport::shared::world::World;

/// How often to look for a fault that is being written.
const PATIENCE: u32 = 10_000;

impl World {
    /// Looks at the faults after number `examined`, in their order.
    fn look<T>(&self, examined: u32, see: impl FnMut(u32, u32) -> Option<T>) -> Look<T> {
        self.look_until(self.faults_claimed(), examined, see)
    }

    /// The same up to number `last`.
    fn look_until<T>(
        &self,
        last: u32,
        examined: u32,
        see: impl FnMut(u32, u32) -> Option<T>,
    ) -> Look<T> {
        if last.saturating_sub(examined) as usize > self.memory.layout.notices() {
            return Look::TooMany;
        }
        look_at(
            examined.saturating_add(1)..=last,
            PATIENCE,
            |number| self.memory.notice(number),
            see,
        )
    }

    /// The places in which `by` may have written what stops this communicator.
    fn places_of(&self, scope: &Scope, by: u32) -> impl Iterator<Item = &FaultPlace> {
        let all = (by == EVERYBODY).then(|| self.memory.death(self.size()));
        let rank = Some(by as usize).filter(|rank| *rank < self.size());
        let places = rank.map(|rank| {
            [
                self.memory.death(rank),
                self.memory.failure(rank, scope.block),
                &self.memory.area(rank, scope.area).fault,
            ]
        });
        let (context, block) = (scope.context, u64::from(scope.block));
        let its = move |place: &&FaultPlace| {
            place.label().is_some_and(|(_, stops)| [0, context, block].contains(&stops))
        };
        all.into_iter().chain(places.into_iter().flatten()).filter(its)
    }

    /// What fault `number` of `by` says of this communicator, if that concerns it: of one that is
    /// no member, nothing does.
    fn concerning(&self, scope: &Scope, number: u32, by: u32) -> Option<Fault> {
        if by != EVERYBODY && scope.group.local(by as usize).is_none() {
            return None;
        }
        let mut its = self.places_of(scope, by).filter_map(|place| self.read(place));
        its.find(|(its, ..)| *its == number).map(|(.., fault)| fault)
    }

    /// The first fault of this communicator, from all its members: what is cheaper than to look at
    /// the faults one by one when there have been many.
    #[cold]
    fn first_of_all(&self, scope: &Scope) -> Option<Fault> {
        let count = &self.memory.header().faults;
        let ready = count.ready.load(Acquire);
        let claimed = count.claimed.load(Acquire);
        let members = scope.group.iter().map(|rank| rank as u32).chain([EVERYBODY]);
        let places = members.flat_map(|by| self.places_of(scope, by));
        let first = places.filter_map(|place| self.read(place)).min_by_key(|(number, ..)| *number);
        if first.is_none() && ready == claimed {
            scope.has_examined(claimed);
        }
        first.map(|(_, _, fault)| fault)
    }
}

impl Endpoint {
    /// The first fault that stops this communicator.
    pub(crate) fn first_fault(&self, scope: &Scope) -> Option<Fault> {
        if let Some(fault) = scope.fault.get() {
            return Some(Fault::clone(fault));
        }
        let see = |number, by| self.world.concerning(scope, number, by);
        let look = || match self.world.look(scope.examined(), see) {
            Look::Found(fault) => Some(fault),
            Look::TooMany => self.world.first_of_all(scope),
            Look::Nothing(examined) => {
                scope.has_examined(examined);
                None
            }
        };
        let fault = scope.fault_of_others().or_else(look)?;
        scope.has_stopped(&fault);
        self.is_told(&fault);
        if scope.held {
            let page = self.world.memory.area(self.rank, scope.area);
            page.told.0.store(1, Release);
        }
        Some(fault)
    }

    /// Remembers that this rank has learnt of it.
    pub(in crate::transport::shared) fn is_told(&self, fault: &Fault) {
        self.told.lock().add(fault);
    }

    /// Whether this is one of the last faults that this rank has been told of.
    pub(crate) fn was_told(&self, fault: &Fault) -> bool {
        self.told.lock().contains(fault)
    }

    /// How many cycles of waits this rank has been told of, and the last one.
    pub(crate) fn cycles_told(&self) -> (u64, Option<Fault>) {
        self.told.lock().cycles()
    }

    /// Stops a communicator that this rank has, and wakes everybody.
    pub(crate) fn stop(&self, scope: &Scope, fault: &Fault) {
        if !scope.held {
            return;
        }
        let page = self.world.memory.area(self.rank, scope.area);
        if self.world.record(&page.fault, scope.context, self.rank as u32, fault) {
            self.world.ring_all();
        }
    }

    /// Ends these waits of others by `fault`; whether it could: the owners of those that it has
    /// ended before must know.
    pub(in crate::transport::shared) fn condemn(&self, waits: &[Wait], fault: &Fault) -> bool {
        if waits.is_empty() {
            return true;
        }
        let mut condemned = self.condemned.lock();
        condemned.retain(|wait| self.world.lasts(*wait));
        if !condemned.is_empty() {
            return false;
        }
        let place = self.world.memory.verdict(self.rank);
        place.clear();
        let text = |fault| postcard::to_allocvec(&(waits, fault)).unwrap_or_default();
        let mut bytes = text(fault);
        if bytes.len() > FAULT_BYTES {
            bytes = text(&fault.shortened(FAULT_BYTES / 4));
        }
        condemned.extend(waits);
        let last = &self.world.memory.header().faults.verdict;
        let known = |number| {
            last.fetch_max(number, AcqRel);
        };
        if self.world.record_text(place, 0, self.rank as u32, &bytes, known) {
            self.world.ring_all();
        }
        true
    }

    /// The verdict on this wait, if there is one among the faults after number `examined`.
    pub(in crate::transport::shared) fn verdict_on(
        &self,
        wait: Wait,
        examined: u32,
    ) -> Option<Fault> {
        let world = &self.world;
        let see = |_, by: u32| {
            let rank = Some(by as usize).filter(|rank| *rank < world.size())?;
            let written = world.memory.verdict(rank).get()?;
            let (waits, fault): (Vec<Wait>, Fault) = postcard::from_bytes(&written.text).ok()?;
            (is_cycle(&fault) && waits.contains(&wait)).then_some(fault)
        };
        // Faults that come later, of which there may be one for each rank, are no verdicts.
        let last = world.memory.header().faults.verdict.load(Acquire);
        match world.look_until(last.min(world.faults_claimed()), examined, see) {
            Look::Found(fault) => Some(fault),
            Look::TooMany => (0..world.size() as u32).find_map(|by| see(0, by)),
            Look::Nothing(_) => None,
        }
    }
}
