//! Alltoall (MPI 5.0 section 6.8).

mod algorithms;
pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use spmd_core::internal::{Args, Blocks, Call, Form, Incoming, Kind, Memory, dispatch};
use spmd_core::{Buffer, BufferMut, Comm, DType, Element, Result};

use crate::blocks::{displacements, make_room, offsets};
use crate::check;
use crate::data::{Input, Output};
use crate::gathered::Gathered;
use crate::sealed::Sealed;
pub(crate) use algorithms::counts;
use algorithms::{ALLTOALL, ALLTOALLV};

/// Exchanges in which every rank has a block for every rank (MPI 5.0 section 6.8).
///
/// ```
/// use spmd::prelude::*;
///
/// let received = spmd(2, |ctx| {
///     let mut buf = [10 * ctx.rank(), 10 * ctx.rank() + 1];
///     ctx.alltoall_in_place(&mut buf).map(|()| buf)
/// })?;
/// assert_eq!(received, [[0, 10], [1, 11]]);
/// # Ok::<(), Error>(())
/// ```
pub trait Alltoall: Sealed {
    /// Sends the i-th block of `send` to rank i, and puts the block from rank i into the i-th of
    /// `recv`. Both hold as many blocks of equal length as there are ranks. All ranks call it,
    /// with equal lengths.
    ///
    /// Errors: `send` cannot be divided by the number of ranks; `recv` is not as long as `send`;
    /// a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let send: Vec<usize> = (0..3).map(|to| 10 * ctx.rank() + to).collect();
    ///     let mut recv = [0; 3];
    ///     ctx.alltoall(&send, &mut recv)?;
    ///     assert_eq!(recv, [ctx.rank(), 10 + ctx.rank(), 20 + ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoall<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Alltoall::alltoall`] of `buf` into itself. It needs a copy of the buffer on the way.
    ///
    /// Errors: as [`Alltoall::alltoall`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let mut buf = [10 * ctx.rank(), 10 * ctx.rank() + 1];
    ///     ctx.alltoall_in_place(&mut buf)?;
    ///     assert_eq!(buf, [ctx.rank(), 10 + ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoall_in_place<R: BufferMut + ?Sized>(&self, buf: &mut R) -> Result<()>;

    /// As [`Alltoall::alltoall`], with blocks of any lengths, packed in rank order: `send_counts`
    /// and `recv_counts` give the elements for and from each rank. All ranks call it; what one
    /// sends to another is what that one receives.
    ///
    /// Errors: the counts are not one a rank, or don't add up to the length of their buffer; two
    /// ranks' counts differ (an error on every rank); a rank has failed, left, or makes another
    /// call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // Rank 0 sends one element to everybody, rank 1 two.
    /// spmd(2, |ctx| {
    ///     let count = ctx.rank() + 1;
    ///     let send = vec![ctx.rank(); 2 * count];
    ///     let mut recv = [9; 3];
    ///     ctx.alltoallv(&send, &mut recv, &[count; 2], &[1, 2])?;
    ///     assert_eq!(recv, [0, 1, 1]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoallv<S, R>(
        &self,
        send: &S,
        recv: &mut R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// [`Alltoall::alltoallv`] that learns what it receives: the elements, and where the block
    /// from each rank starts, with the end of the last one behind. What a rank sends may be on a device,
    /// whatever the others bring.
    ///
    /// Errors: as [`Alltoall::alltoallv`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // Everybody sends its rank, as often, to rank 1.
    /// spmd(3, |ctx| {
    ///     let me = ctx.rank();
    ///     let got = ctx.alltoallv_vec(&vec![me; me], &[0, me, 0])?;
    ///     if me == 1 {
    ///         assert_eq!(got.elements(), [1, 2, 2]);
    ///         assert_eq!(got[2], [2, 2]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoallv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        send_counts: &[usize],
    ) -> Result<Gathered<S::Elem>>;

    /// [`Alltoall::alltoallv_vec`] in the memory of what an earlier one gave.
    ///
    /// Errors: as [`Alltoall::alltoallv`]. `recv` has no blocks then.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let mut got = Gathered::default();
    ///     for n in [5, 3] {
    ///         ctx.alltoallv_into(&vec![ctx.rank(); 2 * n], &[n; 2], &mut got)?;
    ///         assert_eq!(got[1], vec![1; n]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoallv_into<S: Buffer + ?Sized>(
        &self,
        send: &S,
        send_counts: &[usize],
        recv: &mut Gathered<S::Elem>,
    ) -> Result<()>;

    /// Sends each rank a vector of any length: the i-th of `send` to rank i. Gives what each rank
    /// has sent to this one, in rank order. All ranks call it.
    ///
    /// Errors: there is another number of vectors than of ranks; as [`Alltoall::alltoallv`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // Numbers to the ranks that own them.
    /// let owned = spmd(2, |ctx| {
    ///     let mut boxes = vec![vec![]; ctx.size()];
    ///     (0..5).for_each(|n| boxes[n % 2].push(10 * ctx.rank() + n));
    ///     Ok(ctx.exchange(&boxes)?.concat())
    /// })?;
    /// assert_eq!(owned, [[0, 2, 4, 10, 12, 14].to_vec(), [1, 3, 11, 13].to_vec()]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn exchange<T: Element>(&self, send: &[Vec<T>]) -> Result<Vec<Vec<T>>>;
}

impl Alltoall for Comm {
    fn alltoall<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        alltoall(self, send, recv, Location::caller())
    }

    fn alltoall_in_place<R: BufferMut + ?Sized>(&self, buf: &mut R) -> Result<()> {
        alltoall_in_place(self, buf, Location::caller())
    }

    fn alltoallv<S, R>(
        &self,
        send: &S,
        recv: &mut R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        alltoallv(self, send, recv, send_counts, recv_counts, Location::caller())
    }

    fn alltoallv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        send_counts: &[usize],
    ) -> Result<Gathered<S::Elem>> {
        let call = call_v(&S::Elem::DTYPE, Location::caller()).form(Form::Vec);
        alltoall_unknown(self, &call, send, send_counts, Vec::new())
    }

    fn alltoallv_into<S: Buffer + ?Sized>(
        &self,
        send: &S,
        send_counts: &[usize],
        recv: &mut Gathered<S::Elem>,
    ) -> Result<()> {
        let call = call_v(&S::Elem::DTYPE, Location::caller()).form(Form::Into);
        *recv = alltoall_unknown(self, &call, send, send_counts, recv.take_memory())?;
        Ok(())
    }

    fn exchange<T: Element>(&self, send: &[Vec<T>]) -> Result<Vec<Vec<T>>> {
        let call = call_v(&T::DTYPE, Location::caller()).form(Form::Exchange);
        check::length(&call, "list of vectors", send.len(), self.size())?;
        let counts: Vec<usize> = send.iter().map(Vec::len).collect();
        let all = alltoall_unknown(self, &call, &send.concat(), &counts, Vec::new())?;
        Ok(all.iter().map(<[T]>::to_vec).collect())
    }
}

#[inline(always)]
fn alltoall<S, R>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
{
    let input = Input::new(send.erased())?;
    let mut output = Output::new(recv.erased_mut())?;
    let (dtype, len) = (input.dtype(), input.len());
    let call = Call::new(Kind::Alltoall, site).data(dtype, len);
    let block = block_of(comm, &call, "send buffer", len)?;
    check::length(&call, "receive buffer", output.len(), len)?;
    let blocks = Blocks::Equal(block);
    let args = args(dtype, input.memory(blocks), output.memory(blocks));
    // SAFETY: both buffers hold a block a rank, and are held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn alltoall_in_place<R: BufferMut + ?Sized>(
    comm: &Comm,
    buf: &mut R,
    site: &'static Location<'static>,
) -> Result<()> {
    let mut output = Output::new(buf.erased_mut())?;
    let (dtype, len) = (output.dtype(), output.len());
    let call = Call::new(Kind::Alltoall, site).data(dtype, len).form(Form::InPlace);
    let block = block_of(comm, &call, "buffer", len)?;
    let buf = output.memory(Blocks::Equal(block));
    // SAFETY: the buffer holds a block a rank, and is held here.
    unsafe { dispatch(comm, &call, &args(dtype, buf, buf))? };
    output.commit();
    Ok(())
}

#[inline(always)]
fn alltoallv<S, R>(
    comm: &Comm,
    send: &S,
    recv: &mut R,
    send_counts: &[usize],
    recv_counts: &[usize],
    site: &'static Location<'static>,
) -> Result<()>
where
    S: Buffer + ?Sized,
    R: BufferMut<Elem = S::Elem> + ?Sized,
{
    let input = Input::new(send.erased())?;
    let mut output = Output::new(recv.erased_mut())?;
    let call = call_v(input.dtype(), site);
    let n = comm.size();
    let from = displacements(&call, send_counts, n, "send buffer", input.len())?;
    let into = displacements(&call, recv_counts, n, "receive buffer", output.len())?;
    let mut incoming = learn(comm, &call, Blocks::Varying(&from))?;
    incoming.iter_mut().for_each(|block| block.into = into[block.peer]);
    let args = Args::new(&ALLTOALLV, input.dtype()).incoming(&incoming);
    let args = args.send(input.memory(Blocks::Varying(&from)));
    let args = args.recv(output.memory(Blocks::Varying(&into)));
    // SAFETY: `recv` has room for the counts of this rank, which are those of its peers, or
    // the exchange gives an error before it moves a byte; the buffers are held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

/// Sends each rank its block, of which it does not know the length. What comes is all that is in
/// `recv` afterwards.
pub(crate) fn alltoall_unknown<S: Buffer + ?Sized>(
    comm: &Comm,
    call: &Call<'_>,
    send: &S,
    send_counts: &[usize],
    mut recv: Vec<S::Elem>,
) -> Result<Gathered<S::Elem>> {
    let (mut stage, n) = (None, comm.size());
    let input = Input::on_host(send.erased(), &mut stage, call)?;
    let from = displacements(call, send_counts, n, "send buffer", input.len())?;
    let mut incoming = learn(comm, call, Blocks::Varying(&from))?;
    let mut recv_counts = vec![0; n];
    incoming.iter().for_each(|block| recv_counts[block.peer] = block.count);
    let displacements = offsets(call, &recv_counts)?;
    incoming.iter_mut().for_each(|block| block.into = displacements[block.peer]);
    let len = displacements[n];
    make_room(call, &mut recv, len)?;
    let args = Args::new(&ALLTOALLV, input.dtype()).incoming(&incoming);
    let args = args.send(input.memory(Blocks::Varying(&from)));
    let args = args.recv(Memory::host(recv.as_mut_ptr().cast(), Blocks::Varying(&displacements)));
    // SAFETY: the vector has room for all counts, and all of it is written, or there is an
    // error; the buffers are held here.
    unsafe {
        dispatch(comm, call, &args)?;
        recv.set_len(len);
    }
    Ok(Gathered::new(recv, displacements))
}

/// Asks every peer for its block: where it is, how long, and how long the peer's buffer is. An
/// alltoall of its own.
fn learn(comm: &Comm, call: &Call<'_>, blocks: Blocks<'_>) -> Result<Vec<Incoming>> {
    type Header = [u64; 3];
    let (n, me) = (comm.size(), comm.rank());
    let total = blocks.total(n);
    let say = |(start, count)| [start, count, total].map(|word| word as u64);
    let said: Vec<Header> = (0..n).map(|peer| say(blocks.of(peer))).collect();
    let mut heard = vec![[0; 3]; n];
    // SAFETY: both vectors hold a header a rank.
    unsafe {
        let send = Memory::host(said.as_ptr().cast(), Blocks::Equal(1));
        let recv = Memory::host(heard.as_mut_ptr().cast(), Blocks::Equal(1));
        dispatch(comm, call, &args(&Header::DTYPE, send, recv))?;
    }
    let incoming = (1..=n).map(|step| {
        let peer = (me + step) % n;
        let [from, count, total] = heard[peer].map(|word: u64| word as usize);
        Incoming { peer, side: 0, index: me, from, total, into: 0, count }
    });
    Ok(incoming.collect())
}

fn call_v(dtype: &'static DType, site: &'static Location<'static>) -> Call<'static> {
    Call::new(Kind::Alltoallv, site).data(dtype, Call::UNEQUAL)
}

/// The length of one of as many blocks as there are ranks.
fn block_of(comm: &Comm, call: &Call<'_>, what: &'static str, len: usize) -> Result<usize> {
    check::length(call, what, len, len.next_multiple_of(comm.size()))?;
    Ok(len / comm.size())
}

/// An alltoall of equal blocks, from one place into another, or the same.
#[inline]
pub fn args<'a>(dtype: &'a DType, send: Memory<'a>, recv: Memory<'a>) -> Args<'a> {
    Args::new(&ALLTOALL, dtype).send(send).recv(recv)
}
