//! A lock that suspends the task that waits for it, and may be held over calls.

use std::ops::{Deref, DerefMut};
use std::panic::Location;

use spmd_core::Result;

use crate::channel::{Receiver, Sender, channel_of};

/// A value that one at a time has: a channel of one place, where it is when nobody has it.
pub(crate) struct Lock<T> {
    out: Receiver<Box<T>>,
    back: Sender<Box<T>>,
}

/// The value, which goes back when this ends.
pub(crate) struct Locked<'a, T: Send> {
    /// Taken at the end alone.
    value: Option<Box<T>>,
    back: &'a Sender<Box<T>>,
}

impl<T: Send> Lock<T> {
    /// Reports call it `what`, made at this line.
    ///
    /// Errors: the rank has failed.
    pub(crate) fn new(
        what: &'static str,
        site: &'static Location<'static>,
        value: T,
    ) -> Result<Lock<T>> {
        let (back, out) = channel_of(what, 1, site);
        back.send(Box::new(value))?;
        Ok(Lock { out, back })
    }

    /// The value, once nobody else has it.
    ///
    /// Errors: the rank has failed, or waits in a cycle.
    pub(crate) fn lock_at(&self, site: &'static Location<'static>) -> Result<Locked<'_, T>> {
        Ok(Locked { value: self.out.recv_at(site)?, back: &self.back })
    }
}

const HELD: &str = "who has locked it has the value";

impl<T: Send> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(HELD)
    }
}

impl<T: Send> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(HELD)
    }
}

impl<T: Send> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        // There is room for it: it was there, and nobody else puts one back.
        let _ = self.value.take().map(|value| self.back.send(value));
    }
}
