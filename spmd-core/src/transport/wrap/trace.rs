//! A transport that writes down every call, for a picture of who did what when (`trace.rs`).

use std::any::Any;
use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::trace::Trace;
use crate::transport::Transport;
use crate::transport::message::{Envelope, MatchPattern, SendMode};
use crate::transport::pending::PendingSend;
use crate::transport::shared::Arrived;
use crate::transport::shared::posted::Arrivals;
use crate::transport::shared::waiter::Waiter;

/// Writes down the calls of one rank.
pub(crate) struct Traced {
    inner: Arc<dyn Transport>,
    rank: usize,
    trace: Arc<Trace>,
}

impl Traced {
    pub(crate) fn new(inner: Arc<dyn Transport>, rank: usize, trace: Arc<Trace>) -> Traced {
        Traced { inner, rank, trace }
    }
}

impl Drop for Traced {
    /// The last communicator of its rank may have outlived the block.
    fn drop(&mut self) {
        self.trace.flush();
    }
}

impl Transport for Traced {
    unsafe fn post<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        mode: SendMode,
        waiter: &Waiter<'_>,
    ) -> Result<PendingSend<'a>> {
        // SAFETY: the viewed buffer stays alive and unwritten until what this gives has been
        // completed or dropped (contract of `Transport::post`): it is what `inner` gives.
        unsafe { self.inner.post(to, envelope, data, mode, waiter) }
    }

    fn needs_sender(&self, to: usize) -> bool {
        self.inner.needs_sender(to)
    }

    fn take<'a>(&'a self, pattern: &MatchPattern) -> Result<Option<Arrived<'a>>> {
        self.inner.take(pattern)
    }

    fn peek(&self, pattern: &MatchPattern) -> Result<Option<Envelope>> {
        self.inner.peek(pattern)
    }

    fn send_at_once(&self, to: usize, envelope: &Envelope, data: &View<'_>) -> Result<bool> {
        self.inner.send_at_once(to, envelope, data)
    }

    fn deliver(
        &self,
        arrivals: &Arc<Arrivals>,
        take: &mut dyn FnMut(usize, Arrived<'_>),
    ) -> std::result::Result<(), (Option<usize>, Error)> {
        self.inner.deliver(arrivals, take)
    }

    fn receives(&self, arrived: &Arrived<'_>) -> Result<()> {
        self.inner.receives(arrived)
    }

    unsafe fn fetch(
        &self,
        there: Box<dyn Any + Send>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        // SAFETY: `into` is valid for writes of the envelope's bytes, and nobody else touches these
        // until this returns (contract of `Transport::fetch`): until `inner` has.
        unsafe { self.inner.fetch(there, envelope, into, waiter) }
    }

    fn refuse(&self, there: Box<dyn Any + Send>, envelope: &Envelope, waiter: &Waiter<'_>) {
        self.inner.refuse(there, envelope, waiter);
    }

    fn around(&self, call: &Call<'_>, way: Option<Algorithm>, run: &mut dyn FnMut()) {
        let _bar = self.trace.begin_call(call, way, self.rank);
        self.inner.around(call, way, run);
    }
}
