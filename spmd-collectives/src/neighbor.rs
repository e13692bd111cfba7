//! Exchanges of each rank with its neighbours in a grid (MPI 5.0 section 8.6).

mod halo;
pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use spmd_core::internal::{
    Args, Blocks, Call, Collective, Incoming, Kind, Memory, PAYLOAD, SingleRank, View, ViewMut,
    candidates, dispatch,
};
use spmd_core::{Buffer, BufferMut, Comm, Element, Result};

use crate::blocks::{displacements, offsets, room_for};
use crate::cartesian::Cartesian;
use crate::check;
use crate::data::{Input, Output};
use crate::exchange::{CountsCheck, Exchange};
use crate::gathered::Gathered;
use crate::sealed::Sealed;
use crate::select::{Algorithm::*, choose};

/// Exchanges with the neighbours in a [`Cartesian`] grid (MPI 5.0 section 8.6).
///
/// Blocks are in the order of [`Cartesian::neighbors`]: two for each axis. Where there is no
/// neighbour, the block that would come from it stays as it was, and the one for it goes nowhere.
///
/// ```
/// use spmd::prelude::*;
///
/// let around = spmd(3, |ctx| {
///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
///     let mut around = [0; 2];
///     ring.neighbor_allgather(&[ring.rank()], &mut around).map(|()| around)
/// })?;
/// assert_eq!(around, [[2, 1], [0, 2], [1, 0]]);
/// # Ok::<(), Error>(())
/// ```
pub trait Neighbor: Sealed {
    /// Sends `send` to all neighbours; `recv` has a block of its length for each. All ranks of
    /// the grid call it, with equal lengths.
    ///
    /// Errors: `recv` is not two blocks for each axis; a rank has failed, left, or makes another
    /// call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let line = ctx.cartesian(&[3], &[false])?.expect("three places");
    ///     let mut around = [9, 9];
    ///     line.neighbor_allgather(&[line.rank()], &mut around)?;
    ///     assert_eq!(around, [[9, 1], [0, 2], [1, 9]][line.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_allgather<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// Sends each neighbour a block of its own. All ranks of the grid call it, with equal
    /// lengths.
    ///
    /// Errors: `send` is not two equal blocks for each axis; `recv` is not as long as `send`; a
    /// rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // Rank 0 sends 1 backwards and 2 forwards, rank 1 sends 11 and 12.
    /// spmd(2, |ctx| {
    ///     let ring = ctx.cartesian(&[2], &[true])?.expect("two places");
    ///     let send = [10 * ring.rank() + 1, 10 * ring.rank() + 2];
    ///     let mut recv = [0, 0];
    ///     ring.neighbor_alltoall(&send, &mut recv)?;
    ///     assert_eq!(recv, [[12, 11], [2, 1]][ring.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_alltoall<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;

    /// As [`Neighbor::neighbor_alltoall`], with blocks of any lengths, packed in the order of
    /// neighbours: the counts give the elements for and from each.
    ///
    /// Errors: the counts are not two for each axis, or don't add up to the length of their
    /// buffer; those of two neighbours differ (an error on every rank); a rank has failed, left,
    /// or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let line = ctx.cartesian(&[2], &[false])?.expect("two places");
    ///     let me = line.rank();
    ///     // One element forwards, two backwards.
    ///     let mut recv = vec![0; if me == 0 { 2 } else { 1 }];
    ///     let counts = [([0, 1], [0, 2]), ([2, 0], [1, 0])][me];
    ///     line.neighbor_alltoallv(&vec![me; 1 + me], &mut recv, &counts.0, &counts.1)?;
    ///     assert_eq!(recv, [vec![1, 1], vec![0]][me]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_alltoallv<S, R>(
        &self,
        send: &S,
        recv: &mut R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized;
}

impl Neighbor for Cartesian {
    fn neighbor_allgather<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        let grid = (&**self, &*self.neighbors());
        neighbor_allgather(grid, send, recv, Location::caller())
    }

    fn neighbor_alltoall<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        let grid = (&**self, &*self.neighbors());
        neighbor_alltoall(grid, send, recv, Location::caller())
    }

    fn neighbor_alltoallv<S, R>(
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
        let grid = (&**self, &*self.neighbors());
        neighbor_alltoallv(grid, send, recv, send_counts, recv_counts, Location::caller())
    }
}

/// The ranks of a grid, and for each side the neighbour there, as [`Cartesian::neighbors`] has them.
pub(crate) type Grid<'a> = (&'a Comm, &'a [Option<usize>]);

fn neighbor_allgather<S, R>(
    (comm, neighbors): Grid<'_>,
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
    let (dtype, block) = (input.dtype(), input.len());
    let call = Call::new(Kind::NeighborAllgather, site).data(dtype, block);
    check::length(&call, "receive buffer", output.len(), neighbors.len().saturating_mul(block))?;
    let incoming = equal(neighbors, 1, block);
    let args = Args::new(&NEIGHBOR_ALLGATHER, dtype).incoming(&incoming);
    let args = args.send(input.memory(Blocks::One(block)));
    let into = even(neighbors.len(), block);
    let args = args.recv(output.memory(Blocks::Varying(&into)));
    // SAFETY: the buffers hold one block, and one for each side; they are held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

fn neighbor_alltoall<S, R>(
    (comm, neighbors): Grid<'_>,
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
    let call = Call::new(Kind::NeighborAlltoall, site).data(dtype, len);
    let block = len.div_ceil(neighbors.len().max(1));
    check::length(&call, "send buffer", len, block * neighbors.len())?;
    check::length(&call, "receive buffer", output.len(), len)?;
    let incoming = equal(neighbors, neighbors.len(), block);
    let displacements = even(neighbors.len(), block);
    let args = Args::new(&NEIGHBOR_ALLTOALL, dtype).incoming(&incoming);
    let args = args.send(input.memory(Blocks::Varying(&displacements)));
    let args = args.recv(output.memory(Blocks::Varying(&displacements)));
    // SAFETY: the buffers hold a block for each side, and are held here.
    unsafe { dispatch(comm, &call, &args)? };
    output.commit();
    Ok(())
}

fn neighbor_alltoallv<S, R>(
    grid: Grid<'_>,
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
    let call = Call::new(Kind::NeighborAlltoallv, site).data(&S::Elem::DTYPE, Call::UNEQUAL);
    exchange_blocks(grid, &call, send.erased(), recv.erased_mut(), (send_counts, recv_counts))
}

/// [`Neighbor::neighbor_alltoallv`] as a part of any call.
fn exchange_blocks(
    (comm, neighbors): Grid<'_>,
    call: &Call<'_>,
    send: View<'_>,
    recv: ViewMut<'_>,
    (send_counts, recv_counts): (&[usize], &[usize]),
) -> Result<()> {
    let input = Input::new(send)?;
    let mut output = Output::new(recv)?;
    let dtype = input.dtype();
    let n = neighbors.len();
    let from = displacements(call, send_counts, n, "send buffer", input.len())?;
    let into = displacements(call, recv_counts, n, "receive buffer", output.len())?;
    let incoming = learn((comm, neighbors), call, &from, &into)?;
    let args = Args::new(&NEIGHBOR_ALLTOALLV, dtype).incoming(&incoming);
    let args = args.send(input.memory(Blocks::Varying(&from)));
    let args = args.recv(output.memory(Blocks::Varying(&into)));
    // SAFETY: `recv` has room for the counts of this rank, which are those of its neighbours,
    // or the exchange gives an error before it moves a byte; the buffers are held here.
    unsafe { dispatch(comm, call, &args)? };
    output.commit();
    Ok(())
}

/// Sends each neighbour its bytes, of which it does not know how many there are.
pub(crate) fn neighbor_unknown(
    (comm, neighbors): Grid<'_>,
    call: &Call<'_>,
    send: &[u8],
    send_counts: &[usize],
) -> Result<Gathered<u8>> {
    let sides = neighbors.len();
    let from = displacements(call, send_counts, sides, "send buffer", send.len())?;
    let mut incoming = learn((comm, neighbors), call, &from, &vec![0; sides])?;
    let mut recv_counts = vec![0; sides];
    incoming.iter().for_each(|block| recv_counts[block.side] = block.count);
    let into = offsets(call, &recv_counts)?;
    incoming.iter_mut().for_each(|block| block.into = into[block.side]);
    let mut recv = room_for(call, into[sides])?;
    let args = Args::new(&NEIGHBOR_ALLTOALLV, &u8::DTYPE).incoming(&incoming);
    let args = args.send(Memory::host(send.as_ptr().cast_mut(), Blocks::Varying(&from)));
    let args = args.recv(Memory::host(recv.as_mut_ptr(), Blocks::Varying(&into)));
    // SAFETY: the vector has room for all counts, and all of it is written, or there is an error;
    // the buffers are held here.
    unsafe {
        dispatch(comm, call, &args)?;
        recv.set_len(into[sides]);
    }
    Ok(Gathered::new(recv, into))
}

/// The neighbours that there are, with their sides. What comes from one side was sent to the
/// opposite side: before and behind differ in the last bit.
fn around(neighbors: &[Option<usize>]) -> Vec<(usize, usize)> {
    let neighbors = neighbors.iter().enumerate();
    neighbors.filter_map(|(side, rank)| Some((side, (*rank)?))).collect()
}

/// The blocks of `count` elements that the neighbours have for this rank, each one block of several
/// or, where each has `blocks` of them, the one for the side on which this rank is.
fn equal(neighbors: &[Option<usize>], blocks: usize, count: usize) -> Vec<Incoming> {
    let block = |(side, peer): (usize, usize)| {
        let index = if blocks == 1 { 0 } else { side ^ 1 };
        let (from, into, total) = (index * count, side * count, blocks * count);
        Incoming { peer, side, index, from, total, into, count }
    };
    around(neighbors).into_iter().map(block).collect()
}

/// The displacements of a block of `count` elements for each side.
fn even(sides: usize, count: usize) -> Vec<usize> {
    (0..=sides).map(|side| side * count).collect()
}

const NEIGHBOR_ALLGATHER: Collective = of(Kind::NeighborAllgather);
const NEIGHBOR_ALLTOALL: Collective = of(Kind::NeighborAlltoall);
const NEIGHBOR_ALLTOALLV: Collective = of(Kind::NeighborAlltoallv);

const fn of(kind: Kind) -> Collective {
    Collective { kind, single_rank: SingleRank::Same, arena }
}

/// Everybody shows its blocks, one or one for each side, and reads those that its neighbours have
/// for it. Small ones of equal length lie in the payloads: one meeting; others are read in place:
/// two.
///
/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send` is one block, or one for each side, and `recv` one
/// for each side, given by their displacements, apart from `send`; `incoming` goes where those of
/// `recv` start, and is as long but in an alltoall of varying blocks.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (blocks, kind) = (args.send.blocks, args.collective.kind);
    let sides = match blocks {
        Blocks::Varying(displacements) => displacements.len() - 1,
        _ => 1,
    };
    let varying = kind == Kind::NeighborAlltoallv;
    let counts = if varying { CountsCheck::of_incoming(args) } else { CountsCheck::Implied };
    let exchange = Exchange { by_rank: false, ..Exchange::of_ranks(args, sides, counts) };
    let bytes = exchange.total * args.size();
    let fits = bytes <= PAYLOAD;
    let default = if fits { Flat } else { Chunked };
    // No rank knows whether blocks of any lengths fit everywhere. What is chosen for this call is
    // how the lengths travel, which is an exchange of equal blocks.
    let named = if candidates(call.kind).is_empty() { kind } else { call.kind };
    let choice = match varying {
        true => Chunked,
        false => choose(comm, named, bytes, default, |it| fits || it == Chunked),
    };
    let incoming = args.incoming.iter().copied();
    comm.internals().collective(call, |round| {
        // SAFETY: `send` holds all of its blocks, and `recv`, apart from it, has one where each of
        // `incoming` goes (this function's contract). If that is of another length, `counts` has
        // found it, which ends the exchange before a byte moves. Payloads are chosen only where
        // `send` fits into one.
        unsafe {
            match choice {
                Flat => exchange.through_payloads(round, incoming),
                _ => {
                    let at = |side| blocks.of(side);
                    exchange.through_buffers(
                        round,
                        Some(comm.internals().segment()),
                        sides,
                        at,
                        incoming,
                    )
                }
            }
        }
    })
}

/// Asks each neighbour for its block: where it is, how long, and how long its buffer is. An
/// exchange of its own.
fn learn(
    (comm, neighbors): Grid<'_>,
    call: &Call<'_>,
    from: &[usize],
    into: &[usize],
) -> Result<Vec<Incoming>> {
    type Header = [u64; 3];
    let total = from.last().copied().unwrap_or(0);
    let said: Vec<Header> = from
        .windows(2)
        .map(|ends| [ends[0], ends[1] - ends[0], total].map(|it| it as u64))
        .collect();
    let mut heard = vec![[0; 3]; neighbors.len()];
    let (mut incoming, displacements) =
        (equal(neighbors, neighbors.len(), 1), even(neighbors.len(), 1));
    let args = Args::new(&NEIGHBOR_ALLTOALL, &Header::DTYPE).incoming(&incoming);
    let args = args.send(Memory::host(said.as_ptr().cast(), Blocks::Varying(&displacements)));
    let args = args.recv(Memory::host(heard.as_mut_ptr().cast(), Blocks::Varying(&displacements)));
    // SAFETY: both vectors hold a header for each side.
    unsafe { dispatch(comm, call, &args)? };
    for block in &mut incoming {
        let [from, count, total] = heard[block.side].map(|word: u64| word as usize);
        *block = Incoming { from, count, total, into: into[block.side], ..*block };
    }
    Ok(incoming)
}
