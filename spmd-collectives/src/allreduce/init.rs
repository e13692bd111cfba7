//! Allreduce as a persistent call.

use std::panic::Location;
use std::slice::from_raw_parts;
use std::sync::Arc;

use spmd_core::internal::{
    Call, ErasedOp, Form, Internals, Kind, Place, Shown, Steps, packed_if_apart,
};
use spmd_core::{Buffer, BufferMut, Comm, Element, Error, Operation, Persistent, Result};

#[cfg(doc)]
use super::Allreduce;
use super::algorithms::choice;
use crate::Split;
use crate::data::{Input, Output};
use crate::reducing::Reduction;
use crate::sealed::Sealed;
use crate::select::Algorithm;

/// [`Allreduce`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait AllreduceInit: Sealed {
    /// Makes [`Allreduce::allreduce`] a persistent call, on a communicator of its own (MPI 5.0
    /// section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Allreduce::allreduce`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.allreduce_init(vec![1.5; 4], vec![0.0; 4], Sum)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_mine, sums) = call.into_buffers()?;
    ///     assert_eq!(sums, [4.5; 4]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allreduce_init<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Makes [`Allreduce::allreduce_in_place`] a persistent call, on a communicator of its own (MPI
    /// 5.0 section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Allreduce::allreduce_in_place`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.allreduce_in_place_init(vec![ctx.rank(); 2], Max)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     assert_eq!(call.into_buffers()?, [2; 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allreduce_in_place_init<R, O>(&self, buf: R, op: O) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static;
}

impl AllreduceInit for Comm {
    fn allreduce_init<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allreduce, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len());
        let (comm, op) = (self.dup()?, Arc::new(op));
        let host = [send.erased().place(), recv.erased().place()] == [Place::Host; 2];
        let steps = if host { steps(&comm, send.erased().len(), &op, site) } else { None };
        Internals::persistent(comm, call, (send, recv), steps, move |comm, (send, recv)| {
            super::allreduce(comm, send, recv, &*op, site)
        })
    }

    fn allreduce_in_place_init<R, O>(&self, buf: R, op: O) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allreduce, site)
            .form(Form::Init)
            .data(&R::Elem::DTYPE, buf.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, buf, None, move |comm, buf| {
            super::allreduce_in_place(comm, buf, &op, site)
        })
    }
}

/// Few elements, which all show and everybody folds.
fn steps<S, R, O>(
    comm: &Comm,
    count: usize,
    op: &Arc<O>,
    site: &'static Location<'static>,
) -> Option<Steps<(S, R)>>
where
    S: Buffer + Send + 'static,
    R: BufferMut<Elem = S::Elem> + Send + 'static,
    O: Operation<S::Elem> + Send + 'static,
{
    let dtype = &S::Elem::DTYPE;
    let erased = ErasedOp::new::<S::Elem, O>(op);
    if choice(comm, &Reduction { dtype, op: &erased, count }) != Algorithm::Flat {
        return None;
    }
    let folded = op.clone();
    Some(Steps {
        show: Box::new(move |(send, recv): &(S, R)| {
            let view = send.erased();
            if (view.len(), recv.erased().len()) != (count, count) {
                return Err(wrong_length(send, recv, count, site));
            }
            if [view.place(), recv.erased().place()] != [Place::Host; 2] {
                return Err(Error::out_of_reach(&call_of::<S>(count, site), &[]));
            }
            let Some(ptr) = view.contiguous() else {
                return Ok(packed_if_apart(&view)?.map_or(Shown::There(&[]), Shown::Packed));
            };
            // SAFETY: `count` elements lie there, as long as the view's buffer is borrowed, and an
            // element is bytes without padding.
            let bytes = unsafe { from_raw_parts(ptr, count * size_of::<S::Elem>()) };
            Ok(Shown::There(bytes))
        }),
        take: Box::new(move |round, (send, recv)| {
            let op = &ErasedOp::new::<S::Elem, O>(&folded);
            let reduction = Reduction { dtype, op, count };
            // SAFETY: all have made the first step, and both buffers still have `count` elements:
            // nobody has had them since `show` has seen that.
            let fold = |input, output| unsafe {
                reduction.fold_payloads(round, round.size(), input, output)
            };
            let (input, mut output) = (send.erased(), recv.erased_mut());
            if let (Some(input), Some(output)) = (input.contiguous(), output.contiguous_mut()) {
                return fold(input, output);
            }
            let (input, mut output) = (Input::new(input)?, Output::new(output)?);
            fold(input.ptr(), output.ptr())?;
            output.commit();
            Ok(())
        }),
    })
}

fn call_of<S: Buffer>(count: usize, site: &'static Location<'static>) -> Call<'static> {
    Call::new(Kind::Allreduce, site).form(Form::Init).data(&S::Elem::DTYPE, count)
}

#[cold]
fn wrong_length<S: Buffer, R: Buffer>(
    send: &S,
    recv: &R,
    count: usize,
    site: &'static Location<'static>,
) -> Error {
    let call = call_of::<S>(count, site);
    match send.erased().len() {
        len if len == count => Error::length(&call, "receive buffer", recv.erased().len(), count),
        len => Error::length(&call, "send buffer", len, count),
    }
}
