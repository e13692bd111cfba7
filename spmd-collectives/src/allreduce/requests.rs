//! Allreduce as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Request, Result};

#[cfg(doc)]
use super::Allreduce;
use crate::sealed::Sealed;

/// [`Allreduce`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait AllreduceStart: Sealed {
    /// Starts [`Allreduce::allreduce`]; the request gives back both buffers (MPI 5.0 section 6.12).
    /// All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Allreduce::allreduce`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let request = ctx.allreduce_start(vec![1.5; 4], vec![0.0; 4], Sum)?;
    ///     let (_mine, sums) = request.wait()?;
    ///     assert_eq!(sums, [4.5; 4]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allreduce_start<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Starts [`Allreduce::allreduce_in_place`]; the request gives back its buffer (MPI 5.0 section
    /// 6.12). All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Allreduce::allreduce_in_place`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let request = ctx.allreduce_in_place_start(vec![ctx.rank(); 2], Max)?;
    ///     assert_eq!(request.wait()?, [2; 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allreduce_in_place_start<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static;
}

impl AllreduceStart for Comm {
    fn allreduce_start<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        self.internals().allreduce(send, recv, op)
    }

    fn allreduce_in_place_start<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static,
    {
        self.internals().allreduce_in_place(buf, op)
    }
}

/// [`Allreduce`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait AllreduceRequests<'a>: Starts<'a> {
    /// Starts [`Allreduce::allreduce`], as
    /// [`AllreduceStart::allreduce_start`] does.
    #[track_caller]
    fn allreduce<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
        O: Operation<S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allreduce, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let mut recv = recv;
        self.start(call, move |comm| {
            super::allreduce(comm, &send, &mut recv, op, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Allreduce::allreduce_in_place`], as
    /// [`AllreduceStart::allreduce_in_place_start`] does.
    #[track_caller]
    fn allreduce_in_place<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'a,
        O: Operation<R::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allreduce, site)
            .form(Form::Start)
            .data(&R::Elem::DTYPE, buf.erased().len());
        let mut buf = buf;
        self.start(call, move |comm| {
            super::allreduce_in_place(comm, &mut buf, op, site)?;
            Ok(buf)
        })
    }
}

impl<'a, S: Starts<'a>> AllreduceRequests<'a> for S {}
