//! ReduceScatter as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Persistent, Result};

#[cfg(doc)]
use super::ReduceScatter;
use crate::Split;
use crate::sealed::Sealed;

/// [`ReduceScatter`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait ReduceScatterInit: Sealed {
    /// Makes [`ReduceScatter::reduce_scatter`] a persistent call, on a communicator of its own (MPI
    /// 5.0 section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`ReduceScatter::reduce_scatter`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.reduce_scatter_init([1, 2, 3], [0], Sum)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_mine, sum) = call.into_buffers()?;
    ///     assert_eq!(sum, [3 * (ctx.rank() + 1)]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_init<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Makes [`ReduceScatter::reduce_scatterv`] a persistent call, on a communicator of its own
    /// (MPI 5.0 section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`ReduceScatter::reduce_scatterv`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mine = vec![0; ctx.rank()];
    ///     let mut call = ctx.reduce_scatterv_init([1; 3], mine, &[0, 1, 2], Sum)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_all, mine) = call.into_buffers()?;
    ///     assert_eq!(mine, vec![3; ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatterv_init<S, R, O>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        op: O,
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Makes [`ReduceScatter::reduce_scatter_in_place`] a persistent call, on a communicator of its
    /// own (MPI 5.0 section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`ReduceScatter::reduce_scatter_in_place`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.reduce_scatter_in_place_init([1, 2, 3], Sum)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let sums = call.into_buffers()?;
    ///     assert_eq!(sums[0], 3 * (ctx.rank() as i32 + 1));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_in_place_init<R, O>(&self, buf: R, op: O) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static;
}

impl ReduceScatterInit for Comm {
    fn reduce_scatter_init<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::ReduceScatter, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::reduce_scatter(comm, send, recv, &op, site)
        })
    }

    fn reduce_scatterv_init<S, R, O>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        op: O,
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::ReduceScatterv, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len());
        let counts = counts.to_vec();
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::reduce_scatterv(comm, send, recv, &counts, &op, site)
        })
    }

    fn reduce_scatter_in_place_init<R, O>(&self, buf: R, op: O) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::ReduceScatter, site)
            .form(Form::Init)
            .data(&R::Elem::DTYPE, buf.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, buf, None, move |comm, buf| {
            super::reduce_scatter_in_place(comm, buf, &op, site)
        })
    }
}
