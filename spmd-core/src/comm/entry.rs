//! One call at a time: what every call of a communicator passes on its way in and out.
//!
//! A communicator is used by one thread at a time, as it is not `Sync`. On that thread two calls
//! meet nevertheless where a call runs code of the program's (an operation of a reduction), and
//! where virtual ranks of a worker share a communicator, in a thread-local or a `Rc`: one of them
//! is suspended in its call when the other makes one. All state of a communicator, and what keeps a
//! buffer until no peer reads it, belongs to one call.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::call::Call;
use crate::error::{Error, Reentrant, Result};
use crate::wait::{self, scheduler};

/// Who uses a communicator: one of the values below, or, beyond them, the slot in its worker of the
/// virtual rank that is between the calls of a longer one. One thread alone looks at it.
#[derive(Default)]
pub(super) struct User(AtomicUsize);

/// Nobody, or a thread, which comes from its call before it makes another one.
const NOBODY: usize = 0;
/// A virtual rank is in a call.
const CALLING: usize = 1;
/// See [`User`].
const HOLDING: usize = 2;

/// A call under way, until it is dropped.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct CallGuard<'a> {
    /// What to put back; `None` where nothing was noted.
    before: Option<(&'a User, usize)>,
}

impl Drop for CallGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((user, before)) = self.before {
            user.0.store(before, Relaxed);
        }
    }
}

impl User {
    /// Begins a call, which lasts as long as what this gives.
    ///
    /// Errors: another one is under way, or an operation of a reduction runs.
    #[inline]
    pub(super) fn enter(&self, call: &Call<'_>) -> Result<CallGuard<'_>> {
        if wait::is_in_operation() {
            return Err(reentered(call, IN_OPERATION));
        }
        if !scheduler::in_coroutine() {
            return Ok(CallGuard { before: None });
        }
        let before = self.0.load(Relaxed);
        if before != NOBODY && !holds(before) {
            return Err(reentered(call, IN_CALL));
        }
        self.0.store(CALLING, Relaxed);
        Ok(CallGuard { before: Some((self, before)) })
    }

    /// Keeps others from making calls as long as what this gives lives: between the calls that a
    /// longer one is made of.
    ///
    /// Errors: as [`User::enter`].
    pub(super) fn hold(&self, call: &Call<'_>) -> Result<CallGuard<'_>> {
        let entered = self.enter(call)?;
        if let (Some((user, _)), Some(slot)) = (entered.before, scheduler::slot()) {
            user.0.store(HOLDING + slot, Relaxed);
        }
        Ok(entered)
    }
}

/// Whether it is the virtual rank that runs here that holds the communicator. All who can come to
/// one at a time are of one worker.
#[cold]
fn holds(user: usize) -> bool {
    scheduler::slot().is_some_and(|slot| user == HOLDING + slot)
}

/// Inside what a call was made, and what to do.
pub(crate) const IN_OPERATION: &str =
    "from inside a reduction operation; an operation must not communicate";
const IN_CALL: &str = "while another call of its communicator is under way; each virtual rank needs a \
                       communicator of its own";

#[cold]
fn reentered(call: &Call<'_>, meanwhile: &'static str) -> Error {
    Error::Reentrant(Box::new(Reentrant { call: call.to_string(), meanwhile }))
}
