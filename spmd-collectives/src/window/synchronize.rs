//! Fences, locks and flushes.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, LockOf, Mode};
use spmd_core::{Element, Result};

use super::windows::Window;

/// Of the lock of all parts: those who have all parts locked, and those who have single ones locked
/// exclusively, exclude each other.
const ALL: Mode = Mode::Shared;
const SINGLE: Mode = Mode::SharedToo;

impl<T: Element> Window<T> {
    /// Ends an epoch and begins the next one (MPI 5.0 section 12.5.1). All ranks call it. What any
    /// rank has done to any part before, all see after.
    ///
    /// An epoch in which nothing is accessed is none, so that locks may follow a fence.
    ///
    /// Cost: a barrier.
    ///
    /// Errors: this rank has a part locked; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u32>(1)?;
    ///     window.fence()?;
    ///     window.put(&[7], 1 - ctx.rank(), 0)?;
    ///     window.fence()?;
    ///     assert_eq!(window.read(..)?, [7]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn fence(&self) -> Result<()> {
        let call = Call::new(Kind::Fence, Location::caller());
        self.epochs.may_fence(&call)?;
        self.raw.complete(&call, None)?;
        self.raw.meet(&call)?;
        self.epochs.fenced(&call);
        Ok(())
    }

    /// Locks the part of rank `target`, so that no other rank has it locked (MPI 5.0 section 12.5.3).
    /// This rank alone calls it; it waits until it has the lock, after those who have asked before.
    ///
    /// Cost: two atomic changes of words where nobody else has it; of a part in another process, two
    /// answers.
    ///
    /// Errors: `target` is no rank; this rank has the part, or all parts, locked already, or has
    /// accessed parts since a fence; the ranks wait for each other; a rank has failed, or has left
    /// while it has the part locked.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let window = ctx.window::<u64>(2)?;
    ///     window.lock(0)?;
    ///     let mut pair = [0; 2];
    ///     window.get(&mut pair, 0, 0)?;
    ///     window.put(&[pair[0] + 1, pair[1] + 2], 0, 0)?;
    ///     window.unlock(0)?;
    ///     ctx.barrier()?;
    ///     if ctx.rank() == 0 {
    ///         assert_eq!(window.read(..)?, [3, 6]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn lock(&self, target: usize) -> Result<()> {
        let call = Call::new(Kind::Lock, Location::caller()).message(Some(target), None);
        self.may_lock(&call, target)?;
        let first = self.epochs.exclusive() == 0;
        if first {
            self.raw.lock(&call, LockOf::Window, SINGLE)?;
        }
        if let Err(error) = self.raw.lock(&call, LockOf::Part(target), Mode::Exclusive) {
            if first {
                self.raw.unlock(&call, LockOf::Window)?;
            }
            return Err(error);
        }
        self.epochs.locked(target, true, call.site);
        Ok(())
    }

    /// Locks the part of rank `target` beside others that do so (MPI 5.0 section 12.5.3), so that none
    /// has it locked exclusively. This rank alone calls it.
    ///
    /// Errors: as [`Window::lock`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let window = ctx.window::<u64>(1)?;
    ///     window.lock_shared(2)?;
    ///     window.get(&mut [0], 2, 0)?;
    ///     window.unlock(2)
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn lock_shared(&self, target: usize) -> Result<()> {
        let call = Call::new(Kind::Lock, Location::caller()).message(Some(target), None);
        let call = call.form(Form::Shared);
        self.may_lock(&call, target)?;
        self.raw.lock(&call, LockOf::Part(target), Mode::Shared)?;
        self.epochs.locked(target, false, call.site);
        Ok(())
    }

    /// Locks all parts beside others that do so or have some locked with
    /// [`lock_shared`](Window::lock_shared) (MPI 5.0 section 12.5.3). This rank alone calls it.
    ///
    /// Cost: an atomic change of a word, whatever the number of ranks, or an answer of the process of
    /// rank 0.
    ///
    /// Errors: this rank has a part locked, or has accessed parts since a fence; the rest as
    /// [`Window::lock`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let window = ctx.window::<u64>(1)?;
    ///     window.lock_all()?;
    ///     (0..3).try_for_each(|rank| window.accumulate(&[1], rank, 0, Sum))?;
    ///     window.unlock_all()?;
    ///     window.fence()?;
    ///     assert_eq!(window.read(..)?, [3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn lock_all(&self) -> Result<()> {
        let call = Call::new(Kind::Lock, Location::caller()).form(Form::All);
        self.epochs.may_lock_all(&call)?;
        self.raw.lock(&call, LockOf::Window, ALL)?;
        self.epochs.locked_all(call.site);
        Ok(())
    }

    /// Ends [`lock`](Window::lock) or [`lock_shared`](Window::lock_shared) of rank `target`: what this
    /// rank has done to its part is complete. It waits for nobody, but for the answer of another
    /// process to which something is on its way.
    ///
    /// Errors: the part is not locked by this rank.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u64>(1)?;
    ///     window.lock(0)?;
    ///     window.unlock(0)?;
    ///     assert!(window.unlock(0).unwrap_err().to_string().contains("not locked"));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn unlock(&self, target: usize) -> Result<()> {
        let call = Call::new(Kind::Unlock, Location::caller()).message(Some(target), None);
        let exclusive = self.epochs.unlock(&call, target)?;
        self.raw.complete(&call, Some(target))?;
        self.raw.unlock(&call, LockOf::Part(target))?;
        if exclusive && self.epochs.exclusive() == 0 {
            self.raw.unlock(&call, LockOf::Window)?;
        }
        Ok(())
    }

    /// Ends [`lock_all`](Window::lock_all): what this rank has done to all parts is complete. It waits
    /// for nobody, but for the answers of other processes to which something is on its way.
    ///
    /// Errors: this rank has not called `lock_all`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u64>(1)?;
    ///     window.lock_all()?;
    ///     window.unlock_all()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn unlock_all(&self) -> Result<()> {
        let call = Call::new(Kind::Unlock, Location::caller()).form(Form::All);
        self.epochs.unlock_all(&call)?;
        self.raw.complete(&call, None)?;
        self.raw.unlock(&call, LockOf::Window)
    }

    /// Completes what this rank has done to the part of rank `target` since it has locked it: others
    /// see it, and what this rank does next comes after it (MPI 5.0 section 12.5.4). Where ranks share
    /// cores, others may run meanwhile, and what other processes ask for is done: a loop that looks for
    /// what they do calls it.
    ///
    /// Errors: the part is not locked by this rank; a rank has failed.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u64>(2)?;
    ///     window.lock_all()?;
    ///     if ctx.rank() == 0 {
    ///         window.put(&[42], 1, 1)?;
    ///         window.flush(1)?;
    ///         window.fetch_and_op(1, 1, 0, Replace)?;
    ///     } else {
    ///         while window.fetch_and_op(0, 1, 0, NoOp)? == 0 {
    ///             window.flush(1)?;
    ///         }
    ///         assert_eq!(window.read(1..)?, [42]);
    ///     }
    ///     window.unlock_all()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn flush(&self, target: usize) -> Result<()> {
        let site = Location::caller();
        let call = || Call::new(Kind::Flush, site).message(Some(target), None);
        self.flush_as(Some(target), call)
    }

    /// [`Window::flush`] of all parts that this rank has locked.
    ///
    /// Errors: as [`Window::flush`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u64>(1)?;
    ///     window.lock_all()?;
    ///     window.put(&[1], 1 - ctx.rank(), 0)?;
    ///     window.flush_all()?;
    ///     window.unlock_all()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn flush_all(&self) -> Result<()> {
        let site = Location::caller();
        self.flush_as(None, || Call::new(Kind::Flush, site).form(Form::All))
    }

    fn flush_as(&self, target: Option<usize>, call: impl Fn() -> Call<'static>) -> Result<()> {
        if !self.epochs.may_flush(target) {
            return Err(self.epochs.no_flush(&call()));
        }
        if self.raw.may_be_stopped() {
            self.raw.check(&call())?;
        }
        if self.raw.has_sent() {
            self.raw.complete(&call(), target)?;
        }
        self.raw.flush();
        Ok(())
    }

    /// Ends the window, when all ranks have come to this (MPI 5.0 section 12.2.5). All ranks call it.
    /// Dropping the window does the same without a meeting.
    ///
    /// Errors: this rank has a part locked; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| ctx.window::<u64>(1)?.free())?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn free(self) -> Result<()> {
        let call = Call::new(Kind::Free, Location::caller());
        self.epochs.not_locked(&call)?;
        self.raw.complete(&call, None)?;
        self.raw.meet(&call)
    }

    fn may_lock(&self, call: &Call<'_>, target: usize) -> Result<()> {
        self.raw.comm().internals().check_target(call, target)?;
        self.epochs.may_lock(call, target)
    }
}
