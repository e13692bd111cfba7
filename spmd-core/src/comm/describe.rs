//! A communicator in words.

use super::communicator::Comm;
use crate::plane::Planes;

impl Comm {
    /// How the ranks of this communicator reach each other, in words: how many there are and what they
    /// are, what carries their messages, and the planes that are asked for each collective before the
    /// algorithms of shared memory are taken, the first first (`nccl`, `local`, `aware` and `staged` are for buffers
    /// on GPUs: what the first call on such buffers has found stands beside them). For people: the text may
    /// change. One rank calls it, without the others.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let said = Spmd::new(2).threads().run(|ctx| Ok(ctx.describe()))?;
    /// assert_eq!(said[0], "2 ranks, as threads; messages: shared memory; planes: none");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn describe(&self) -> String {
        let (size, mode) = (self.size(), self.endpoint.world.mode);
        let here = self.scope.here.len();
        let over = match &self.beyond.cluster {
            Some(cluster) if here < size => {
                format!("shared memory among {here} of them, else {}", cluster.fabric.name())
            }
            _ => "shared memory".into(),
        };
        let planes = self.offload().map_or(&[][..], Planes::kept).iter().map(|it| {
            let name = it.plane.name();
            it.plane
                .found(self)
                .map_or_else(|| name.to_owned(), |found| format!("{name} ({found})"))
        });
        let planes = planes.collect::<Vec<_>>().join(", ");
        let planes = if planes.is_empty() { "none" } else { &planes };
        let only = self.internals().device_plane();
        let only = only.map_or_else(String::new, |only| format!(" (on GPUs {only} alone)"));
        format!("{size} ranks, as {mode}; messages: {over}; planes: {planes}{only}")
    }
}
