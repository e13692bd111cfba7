//! What a plane asks of a communicator, beside what verbs do: what it has kept there, and whether ranks
//! have been stopped while a device has work of it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::communicator::Comm;
use super::internals::Internals;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::Scope;
use crate::mode::Mode;
use crate::plane::{Numbered, Planes};
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::{Endpoint, Health};

impl Internals<'_> {
    /// What this rank has [kept](Internals::keep) of this type.
    pub fn attribute<T: Any + Clone>(self) -> Option<T> {
        self.0.attributes.get()
    }

    /// Keeps a value until the communicator is dropped. A type is kept once.
    pub fn keep<T: Any + Send>(self, value: T) {
        self.0.attributes.keep(value);
    }

    /// Whether this is the communicator of calls that go on while their rank does something else.
    pub fn is_track(self) -> bool {
        self.0.scope.track != 0
    }

    /// Whether its calls can be started: not where it spans processes that go on when others fail.
    pub fn can_start(self) -> bool {
        !self.0.hierarchy.as_ref().is_some_and(|hierarchy| hierarchy.cluster().survives())
    }

    /// Whether a thread runs one rank alone, which it may keep waiting.
    pub fn has_own_thread(self) -> bool {
        self.0.endpoint.world.mode != Mode::Virtual
    }

    /// Whether this rank is a process among others, with the same host.
    pub fn is_process(self) -> bool {
        self.0.endpoint.world.mode == Mode::Processes && self.0.hierarchy.is_none()
    }

    /// The plane that alone carries out calls on memory of a device, if `SPMD_TRANSPORT` names one.
    pub fn device_plane(self) -> Option<&'static str> {
        self.0.endpoint.world.tuning.device_plane
    }

    /// Which planes [can split](crate::plane::Plane::can_split) what they keep with this communicator, as
    /// far as this rank is concerned: a bit each, at most 63.
    pub fn splitting_planes(self) -> u64 {
        let bit = |(it, place): (&Numbered, u32)| u64::from(it.plane.can_split(self.0)) << place;
        self.planes().map(bit).sum()
    }

    /// Has those [split](crate::plane::Plane::split) it whose bits all ranks have set.
    ///
    /// Errors: as that.
    pub fn split_planes(self, call: &Call<'_>, which: u64, part: Option<&Comm>) -> Result<()> {
        let mut chosen = self.planes().filter(|(_, place)| which >> place & 1 == 1);
        chosen.try_for_each(|(it, _)| it.plane.split(self.0, call, part))
    }

    fn planes(&self) -> impl Iterator<Item = (&Numbered, u32)> {
        self.0.offload().map_or(&[][..], Planes::kept).iter().zip(0..63)
    }

    /// For who waits for something else than ranks.
    #[must_use]
    pub fn watch(self) -> Watch {
        // It may be used when the communicator is gone, and with it the area.
        let scope = Scope { held: false, ..self.0.scope.clone() };
        Watch { endpoint: self.0.endpoint.clone(), scope: Mutex::new(scope) }
    }
}

/// Tells whether a communicator has been stopped, on any thread, also when it has been dropped.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Watch {
    endpoint: Arc<Endpoint>,
    scope: Mutex<Scope>,
}

impl Watch {
    /// What has stopped it, told of a call.
    #[must_use]
    pub fn stopped(&self, call: &Call<'_>) -> Option<Error> {
        let scope = self.scope.lock();
        Waiter::new(&self.endpoint, &scope, call, self.endpoint.note(call)).stopped()
    }

    /// Whether the process of a rank of the world is gone.
    #[must_use]
    pub fn is_dead(&self, world_rank: usize) -> bool {
        self.endpoint.world.is_dead(world_rank)
    }

    /// Has the rank's waits that last look after what it uses, as long as that lives.
    pub fn looks_after(&self, it: &Arc<dyn Health>) {
        self.endpoint.health.add(it);
    }

    /// How long its calls wait at most.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.endpoint.world.timeout
    }
}

#[cfg(test)]
mod tests {
    use crate::spmd;

    #[test]
    fn a_communicator_keeps_a_value_of_each_type() {
        let kept = spmd(2, |ctx| {
            let internals = ctx.internals();
            assert_eq!(internals.attribute::<u32>(), None);
            internals.keep(7u32);
            internals.keep("seven");
            Ok((internals.attribute::<u32>(), internals.attribute::<&str>()))
        });
        assert_eq!(kept.unwrap(), [(Some(7), Some("seven")); 2]);
    }
}
