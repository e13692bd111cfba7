//! Messages of some bytes that are as the one before them, but for their data: the ring has a short form
//! of these ([`ring`](crate::transport::shared)), and they are most of those that follow each other closely.
//! Such a one is sent and received here, if nothing at all stands in its way. All else goes the way of
//! every call, which finds out what it is.

use std::panic::Location;

use super::communicator::Comm;
use crate::buffer::{Place, View, ViewMut};
use crate::rank::Status;
use crate::transport::message::MatchPattern;
use crate::transport::shared::Header;
use crate::wait;

impl Comm {
    /// Whether a call may do without a look at anything but the ring: no operation runs, nothing has
    /// failed.
    #[inline]
    fn has_plain_rings(&self) -> bool {
        let seen = self.scope.faults_seen.get();
        self.route.is_ring && !wait::is_in_operation() && self.endpoint.world.faults_seen() == seen
    }

    /// Sends a message if it is as the one before it to this rank, and goes at once. Whether it has.
    pub(super) fn sends_repeat(
        &self,
        view: &View<'_>,
        (dest, tag): (usize, u32),
        site: &'static Location<'static>,
    ) -> bool {
        if !self.has_plain_rings() || dest >= self.size() || !self.sends.are_clear() {
            return false;
        }
        let (Some(data), Place::Host) = (view.contiguous(), view.place()) else { return false };
        let Some(noted) = self.noted(site, view.dtype().id) else { return false };
        self.endpoint.acts();
        let envelope = self.envelope((view, view.dtype()), tag, site, noted);
        let (header, data) = (Header::of(&envelope), (data, envelope.bytes));
        // SAFETY: the view has its elements in one piece on the host: as many bytes as the envelope says.
        unsafe { self.endpoint.send_repeat(self.scope.group.world(dest), &header, data) }
    }

    /// Receives a message that is as the one before it, if it is the next one that has come, and is for
    /// this call.
    pub(super) fn takes_repeat(
        &self,
        view: &mut ViewMut<'_>,
        (source, tag): (Option<usize>, Option<u32>),
    ) -> Option<Status> {
        let (dtype, room, place) = (view.dtype(), view.bytes(), view.place());
        let source = source.filter(|source| self.has_plain_rings() && *source < self.size())?;
        let into =
            view.contiguous_mut().filter(|_| place == Place::Host && dtype.valid.is_none())?;
        self.endpoint.acts();
        let from = self.scope.group.world(source);
        let pattern = MatchPattern { context: self.scope.context, source: Some(from), tag };
        // SAFETY: the buffer has its elements in one piece on the host, room for so many bytes; all bytes
        // are values of its type, which is the message's.
        let (tag, len) = unsafe { self.endpoint.take_repeat(&pattern, dtype, (into, room))? };
        Some(Status { source, tag, len })
    }
}
