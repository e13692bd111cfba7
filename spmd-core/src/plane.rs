//! Planes: what carries out whole calls by its own means.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::args::Args;
use crate::call::Call;
use crate::comm::Comm;
use crate::comm::beyond::Offload;
use crate::element::hash_text;
use crate::error::Result;

/// The planes of a block or of a communicator, the first that serves a call first.
pub(crate) struct Planes(Box<[Numbered]>);

impl Planes {
    /// `None` if there are none.
    pub(crate) fn of(planes: &[Arc<dyn Plane>]) -> Option<Arc<dyn Offload>> {
        Planes::some(planes.iter().cloned().map(Numbered::new).collect())
    }

    fn some(planes: Box<[Numbered]>) -> Option<Arc<dyn Offload>> {
        if planes.is_empty() { None } else { Some(Arc::new(Planes(planes))) }
    }

    /// Those of a communicator, which keeps them.
    pub(crate) fn kept(offload: &dyn Offload) -> &[Numbered] {
        let planes: &dyn Any = offload;
        planes.downcast_ref::<Planes>().map_or(&[], |planes| &planes.0)
    }
}

impl Offload for Planes {
    fn part(&self, spans_processes: bool) -> Option<Arc<dyn Offload>> {
        let its = |it: &&Numbered| it.plane.is_for(spans_processes);
        Planes::some(self.0.iter().filter(its).cloned().collect())
    }
}

/// A plane, with what tells a call that it carries out from others.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) plane: Arc<dyn Plane>,
    pub(crate) id: u64,
}

impl Numbered {
    fn new(plane: Arc<dyn Plane>) -> Numbered {
        let id = hash_text(plane.name());
        Numbered { plane, id }
    }
}

/// Carries out collectives of a communicator by means of its own: the native collectives of a
/// library that joins processes, or kernels on a device. What no plane serves, the arena does.
///
/// A plane is asked by each rank for itself, and all of a communicator must get the same answer: so
/// that may depend on what all ranks of a call give alike, and on the place of memory, in which
/// they must agree, too.
pub trait Plane: fmt::Debug + Send + Sync {
    /// What reports call it.
    fn name(&self) -> &str;

    /// Whether it is for communicators whose ranks live in several processes without common memory
    /// (`spans_processes`), or for others.
    fn is_for(&self, spans_processes: bool) -> bool;

    /// Agrees with the other ranks on what it needs to know before it is asked whether it serves calls
    /// on memory of a device. All ranks of the communicator call it before each such call that no plane
    /// before it serves; where the call is started, on the communicator that carries it out.
    ///
    /// Errors: a rank has failed, left, or makes another call.
    fn prepare(&self, _: &Comm, _: &Call<'_>, _: &Args<'_>) -> Result<()> {
        Ok(())
    }

    /// Why it does not serve a call, where it knows, and what to do.
    fn refusal(&self, _: &Comm, _: &Args<'_>) -> Option<String> {
        None
    }

    /// What [`Plane::prepare`] has found of a communicator, in words; `None` before that.
    fn found(&self, _: &Comm) -> Option<String> {
        None
    }

    /// Whether this rank can take part in [`Plane::split`] of this communicator now. Where that is so, it
    /// has waited for the device: one rank may be asked without the others.
    fn can_split(&self, _: &Comm) -> bool {
        false
    }

    /// Makes what it keeps with parts of a communicator of what it keeps with that. All ranks call it,
    /// once all have said that they [can](Plane::can_split); `part` is the one that this rank is in,
    /// if it is in any.
    ///
    /// Errors: a rank has failed or left; it came to nothing.
    fn split(&self, _: &Comm, _: &Call<'_>, _part: Option<&Comm>) -> Result<()> {
        Ok(())
    }

    /// Whether it carries out such a call of this communicator.
    fn serves(&self, comm: &Comm, args: &Args<'_>) -> bool;

    /// Carries it out.
    ///
    /// Errors: as the call's.
    ///
    /// # Safety
    /// As [`dispatch`](crate::dispatch::dispatch), and [`Plane::serves`] has said yes.
    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()>;
}
