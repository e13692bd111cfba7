//! Transports: how ranks reach each other.
//!
//! Every rank has an `Endpoint`, its end of the arena that the ranks of its host share:
//! there it waits, shows its calls and learns of failures, and on its areas the collectives of
//! ranks that share an arena run as concrete code (`collective/`). What carries messages, and what
//! may be wrapped around calls, is a `Transport`. `registry.rs` names them all.

mod arrived;
pub(crate) mod cluster;
#[doc(hidden)]
pub mod fabric;
pub(crate) mod message;
pub(crate) mod pending;
pub(crate) mod registry;
pub mod shared;
pub(crate) mod wrap;

use std::any::Any;
use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::Call;
use crate::error::{Error, Result};
use message::{Envelope, MatchPattern, SendMode};
use pending::PendingSend;
use shared::Arrived;
use shared::posted::Arrivals;
use shared::waiter::Waiter;

/// One rank's way to the others.
pub(crate) trait Transport: Send + Sync {
    /// Sends a message to world rank `to`.
    ///
    /// # Safety
    /// The viewed buffer stays alive and unwritten until the result has been completed; a
    /// result that is dropped instead takes the data back first.
    unsafe fn post<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        mode: SendMode,
        waiter: &Waiter<'_>,
    ) -> Result<PendingSend<'a>>;

    /// Sends a message to world rank `to` if nothing is to be waited for: whether it is gone.
    fn send_at_once(&self, to: usize, envelope: &Envelope, data: &View<'_>) -> Result<bool>;

    /// Whether the data of a large message to there need its sender's calls on their way.
    fn needs_sender(&self, to: usize) -> bool;

    /// Takes the first message that fits, if one has come.
    fn take<'a>(&'a self, pattern: &MatchPattern) -> Result<Option<Arrived<'a>>>;

    /// Looks at the first message that fits, if one has come.
    fn peek(&self, pattern: &MatchPattern) -> Result<Option<Envelope>>;

    /// Gives what has come to the receives that were posted for it; to `take`, if that needs nothing
    /// more, what is for those whose messages come to `arrivals`, with their numbers there. What has
    /// come may be locked meanwhile: `take` calls nothing that looks for messages.
    ///
    /// Errors: what is wrong, and with what comes from which world rank, if that is known.
    fn deliver(
        &self,
        arrivals: &Arc<Arrivals>,
        take: &mut dyn FnMut(usize, Arrived<'_>),
    ) -> std::result::Result<(), (Option<usize>, Error)>;

    /// A message that a posted receive has got is about to be received.
    fn receives(&self, arrived: &Arrived<'_>) -> Result<()>;

    /// Takes to `into` data that this transport has found and left where their sender has them, and
    /// tells the sender. False if it has withdrawn them.
    ///
    /// # Safety
    /// `into` is valid for writes of the envelope's bytes, and nobody else touches these until this
    /// returns.
    unsafe fn fetch(
        &self,
        there: Box<dyn Any + Send>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool>;

    /// Tells the sender of such data that they will not be taken.
    fn refuse(&self, there: Box<dyn Any + Send>, envelope: &Envelope, waiter: &Waiter<'_>);

    /// Makes one call of the rank API, which is `run`: once, and by this algorithm if it has a
    /// choice. A transport that is wrapped around another one does its part before and after.
    fn around(&self, call: &Call<'_>, way: Option<Algorithm>, run: &mut dyn FnMut());
}
