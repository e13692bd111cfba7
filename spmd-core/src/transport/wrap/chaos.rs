//! A transport that takes its time, for tests: ranks meet in orders that a quiet machine does not
//! show, and messages from different sources overtake each other.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::hash::mix;
use crate::transport::Transport;
use crate::transport::message::{Envelope, MatchPattern, SendMode};
use crate::transport::pending::PendingSend;
use crate::transport::shared::Arrived;
use crate::transport::shared::posted::Arrivals;
use crate::transport::shared::waiter::Waiter;
use crate::wait;

/// The longest delay of a thread.
const LONGEST: Duration = Duration::from_micros(300);
/// Turns that a delay gives to others.
const TURNS: u64 = 20;

/// Delays before and after every call, the same for the same seed, as far as the program itself
/// is the same.
pub(crate) struct Chaos {
    inner: Arc<dyn Transport>,
    state: AtomicU64,
    ranks: usize,
}

impl Chaos {
    pub(crate) fn new(inner: Arc<dyn Transport>, seed: u64, rank: usize, ranks: usize) -> Chaos {
        Chaos { inner, state: AtomicU64::new(mix(seed ^ mix(rank as u64))), ranks }
    }

    fn below(&self, limit: u64) -> u64 {
        let number = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        mix(number) % limit
    }

    /// Half of the time nothing, else some turns for others, rarely a sleep.
    fn pause(&self) {
        match self.below(16) {
            0..8 => {}
            15 if !wait::scheduler::in_coroutine() => {
                std::thread::sleep(LONGEST * self.below(100) as u32 / 100);
            }
            _ => (0..self.below(TURNS)).for_each(|_| wait::relax()),
        }
    }
}

impl Transport for Chaos {
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
        let pending = unsafe { self.inner.post(to, envelope, data, mode, waiter) };
        self.pause();
        pending
    }

    /// From any source: from one at random, of those that have a message here.
    fn needs_sender(&self, to: usize) -> bool {
        self.inner.needs_sender(to)
    }

    fn take<'a>(&'a self, pattern: &MatchPattern) -> Result<Option<Arrived<'a>>> {
        if pattern.source.is_none() {
            let first = self.below(self.ranks as u64) as usize;
            for step in 0..self.ranks {
                let source = Some((first + step) % self.ranks);
                let arrived = self.inner.take(&MatchPattern { source, ..*pattern })?;
                if arrived.is_some() {
                    return Ok(arrived);
                }
            }
        }
        self.inner.take(pattern)
    }

    fn peek(&self, pattern: &MatchPattern) -> Result<Option<Envelope>> {
        self.inner.peek(pattern)
    }

    fn send_at_once(&self, to: usize, envelope: &Envelope, data: &View<'_>) -> Result<bool> {
        let sent = self.inner.send_at_once(to, envelope, data);
        self.pause();
        sent
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
        self.pause();
        self.inner.around(call, way, run);
        self.pause();
    }
}
