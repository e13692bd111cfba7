//! Reduce as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Persistent, Result};

#[cfg(doc)]
use super::Reduce;
use crate::Split;
use crate::sealed::Sealed;

/// [`Reduce`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait ReduceInit: Sealed {
    /// Makes [`Reduce::reduce`] a persistent call, on a communicator of its own (MPI 5.0 section
    /// 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Reduce::reduce`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.reduce_init(vec![1; 4], vec![0; 4], Sum, 0)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_ones, sums) = call.into_buffers()?;
    ///     assert_eq!(sums, if ctx.rank() == 0 { [3; 4] } else { [0; 4] });
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_init<S, R, O>(
        &self,
        send: S,
        recv: R,
        op: O,
        root: usize,
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Makes [`Reduce::reduce_in_place`] a persistent call, on a communicator of its own (MPI 5.0
    /// section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Reduce::reduce_in_place`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.reduce_in_place_init(vec![1; 4], Sum, 0)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let sums = call.into_buffers()?;
    ///     assert!(ctx.rank() != 0 || sums == [3; 4]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_in_place_init<R, O>(&self, buf: R, op: O, root: usize) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static;
}

impl ReduceInit for Comm {
    fn reduce_init<S, R, O>(
        &self,
        send: S,
        recv: R,
        op: O,
        root: usize,
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Reduce, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len())
            .root(root);
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::reduce(comm, send, recv, &op, root, site)
        })
    }

    fn reduce_in_place_init<R, O>(&self, buf: R, op: O, root: usize) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Reduce, site)
            .form(Form::Init)
            .data(&R::Elem::DTYPE, buf.erased().len())
            .root(root);
        let comm = self.dup()?;
        Internals::persistent(comm, call, buf, None, move |comm, buf| {
            super::reduce_in_place(comm, buf, &op, root, site)
        })
    }
}
