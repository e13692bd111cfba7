//! Scan and exscan (MPI 5.0 section 6.11).

pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use spmd_core::internal::{
    Args, Blocks, Call, Collective, ErasedOp, FLAT, Form, Kind, Memory, PAYLOAD, SingleRank,
    dispatch,
};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Result};

use crate::check;
use crate::data::{Input, Output, zeros};
use crate::prefix::{Prefix, chunked, doubling, flat};
use crate::reducing::Reduction;
use crate::sealed::Sealed;
use crate::select::{Algorithm::*, choose};

/// Reductions over the ranks up to each one (MPI 5.0 section 6.11).
///
/// ```
/// use spmd::prelude::*;
///
/// let sums = spmd(4, |ctx| ctx.scan_value(ctx.rank(), Sum))?;
/// assert_eq!(sums, [0, 1, 3, 6]);
/// # Ok::<(), Error>(())
/// ```
pub trait Scan: Sealed {
    /// Folds the `send` of ranks 0 to this one, element by element with `op`, into `recv`. All
    /// ranks call it, with equal lengths.
    ///
    /// The fold is in the canonical order of [`op`](spmd_core::op) for so many ranks: the same bits in
    /// every placement.
    ///
    /// Errors: `recv` is not as long as `send`; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut sums = [0; 2];
    ///     ctx.scan(&[ctx.rank(), 1], &mut sums, Sum)?;
    ///     assert_eq!(sums, [[0, 1], [1, 2], [3, 3]][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scan<S, R, O>(&self, send: &S, recv: &mut R, op: O) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>;

    /// As [`Scan::scan`], without this rank's own `send`. The `recv` of rank 0, for which there
    /// is nothing to fold, stays as it was.
    ///
    /// Errors: as [`Scan::scan`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut before = [0];
    ///     ctx.exscan(&[ctx.rank() + 1], &mut before, Sum)?;
    ///     assert_eq!(before, [[0], [1], [3]][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn exscan<S, R, O>(&self, send: &S, recv: &mut R, op: O) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>;

    /// [`Scan::scan`] of `buf` into itself.
    ///
    /// Errors: as [`Scan::scan`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let mut most = [-(ctx.rank() as f64)];
    ///     ctx.scan_in_place(&mut most, Max)?;
    ///     assert_eq!(most, [0.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scan_in_place<R, O>(&self, buf: &mut R, op: O) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>;

    /// [`Scan::scan`] of one element.
    ///
    /// Errors: as [`Scan::scan`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(spmd(4, |ctx| ctx.scan_value(1, Sum))?, [1, 2, 3, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scan_value<T: Element, O: Operation<T>>(&self, value: T, op: O) -> Result<T>;

    /// [`Scan::exscan`] of one element; `None` on rank 0.
    ///
    /// Errors: as [`Scan::exscan`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let starts = spmd(3, |ctx| ctx.exscan_value(10, Sum))?;
    /// assert_eq!(starts, [None, Some(10), Some(20)]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn exscan_value<T: Element, O: Operation<T>>(&self, value: T, op: O) -> Result<Option<T>>;
}

impl Scan for Comm {
    fn scan<S, R, O>(&self, send: &S, recv: &mut R, op: O) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>,
    {
        scan(self, send, recv, op, Location::caller())
    }

    fn exscan<S, R, O>(&self, send: &S, recv: &mut R, op: O) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
        O: Operation<S::Elem>,
    {
        exscan(self, send, recv, op, Location::caller())
    }

    fn scan_in_place<R, O>(&self, buf: &mut R, op: O) -> Result<()>
    where
        R: BufferMut + ?Sized,
        O: Operation<R::Elem>,
    {
        scan_in_place(self, buf, op, Location::caller())
    }

    fn scan_value<T: Element, O: Operation<T>>(&self, value: T, op: O) -> Result<T> {
        value_of(self, Kind::Scan, value, op, Location::caller())
    }

    fn exscan_value<T: Element, O: Operation<T>>(&self, value: T, op: O) -> Result<Option<T>> {
        let before = value_of(self, Kind::Exscan, value, op, Location::caller())?;
        Ok((self.rank() > 0).then_some(before))
    }
}

#[inline(always)]
fn scan<S, R, O>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    op: O,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
    O: Operation<S::Elem>,
{
    typed(comm, Kind::Scan, send, recv, op, site)
}

#[inline(always)]
fn exscan<S, R, O>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    op: O,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
    O: Operation<S::Elem>,
{
    typed(comm, Kind::Exscan, send, recv, op, site)
}

#[inline(always)]
fn scan_in_place<R, O>(
    comm: &Comm,
    buf: &mut R,
    op: O,
    site: &'static Location<'static>,
) -> Result<()>
where
    R: BufferMut + ?Sized,
    O: Operation<R::Elem>,
{
    let mut output = Output::new(buf.erased_mut())?;
    let op = &ErasedOp::new::<R::Elem, O>(&op);
    let reduction = Reduction { dtype: output.dtype(), op, count: output.len() };
    let buf = output.memory(Blocks::One(reduction.count));
    let call = scan_call(Kind::Scan, &reduction, site).form(Form::InPlace);
    // SAFETY: the buffer holds that many elements, and is held here.
    unsafe { dispatch(comm, &call, &args(Kind::Scan, reduction, buf, buf))? };
    output.commit();
    Ok(())
}

fn typed<S, R, O>(
    comm: &Comm,
    kind: Kind,
    send: &S,
    recv: &mut R,
    op: O,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
    O: Operation<S::Elem>,
{
    let input = Input::new(send.erased())?;
    let mut output = Output::new(recv.erased_mut())?;
    let op = &ErasedOp::new::<S::Elem, O>(&op);
    let reduction = Reduction { dtype: input.dtype(), op, count: input.len() };
    let call = scan_call(kind, &reduction, site);
    check::length(&call, "receive buffer", output.len(), reduction.count)?;
    let all = Blocks::One(reduction.count);
    let args = args(kind, reduction, input.memory(all), output.memory(all));
    // SAFETY: both buffers hold that many elements, and are held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

fn value_of<T: Element, O: Operation<T>>(
    comm: &Comm,
    kind: Kind,
    value: T,
    op: O,
    site: &'static Location<'static>,
) -> Result<T> {
    let mut result = value;
    let op = &ErasedOp::new::<T, O>(&op);
    let reduction = Reduction { dtype: &T::DTYPE, op, count: 1 };
    let call = scan_call(kind, &reduction, site).form(Form::Value);
    let buf = Memory::host((&raw mut result).cast(), Blocks::One(1));
    // SAFETY: the value is one element, and is held here.
    unsafe { dispatch(comm, &call, &args(kind, reduction, buf, buf))? };
    Ok(result)
}

fn scan_call<'a>(
    kind: Kind,
    reduction: &Reduction<'a>,
    site: &'static Location<'static>,
) -> Call<'a> {
    Call::new(kind, site).data(reduction.dtype, reduction.count).op(reduction.op)
}

/// Up to how many virtual ranks of a block everybody reads everybody: to meet costs them little.
const FLAT_COMBINING: usize = 64;

const SCAN: Collective = Collective { kind: Kind::Scan, single_rank: SingleRank::Copies, arena };
const EXSCAN: Collective =
    Collective { kind: Kind::Exscan, single_rank: SingleRank::Nothing, arena };

/// A scan or exscan, from one place into another, or the same.
#[inline]
fn args<'a>(kind: Kind, reduction: Reduction<'a>, send: Memory<'a>, recv: Memory<'a>) -> Args<'a> {
    let collective = if kind == Kind::Scan { &SCAN } else { &EXSCAN };
    Args::new(collective, reduction.dtype).op(reduction.op).send(send).recv(recv)
}

/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send` and `recv` are one block, of one length, the
/// same or apart.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let reduction = Reduction::of(args);
    let (send, recv) = (args.send.ptr.cast_const(), args.recv.ptr);
    let own = args.collective.kind == Kind::Scan;
    let (n, bytes) = (comm.size(), reduction.bytes());
    let prefix = Prefix { reduction, own, send, recv };
    let fits = bytes <= PAYLOAD;
    let doubles = Prefix::doubling_bytes(n, bytes).is_some_and(|bytes| bytes <= PAYLOAD);
    let limit = if comm.internals().has_combining() { FLAT_COMBINING } else { FLAT };
    let default = match n {
        n if fits && n <= limit => Flat,
        _ if doubles => Doubling,
        _ => Chunked,
    };
    let choice = choose(comm, args.collective.kind, bytes, default, |it| match it {
        Flat => fits,
        Doubling => doubles,
        _ => true,
    });
    // What a rank works out for the others, for them to read. Not in the body: a round that fails
    // ends only when nobody reads any more, which is after the body has.
    let works = choice == Chunked
        && comm.internals().one_address_space()
        && reduction.parts(n).of(comm.rank()).1 > 0;
    let mut results = zeros(if works { prefix.results(n) } else { 0 })?;
    comm.internals().collective(call, |round| {
        // SAFETY: `send` holds the elements, `recv` has room for them, and is the same or apart,
        // and nobody else touches them during the call (this function's contract). `flat` and
        // `doubling` are chosen only where what they show fits into a payload. `results` has room
        // for what `chunked` puts there, and outlives the round.
        unsafe {
            match choice {
                Flat => flat(round, prefix),
                Doubling => doubling(round, prefix),
                _ => chunked(round, comm.internals().segment(), prefix, &mut results),
            }
        }
    })
}
