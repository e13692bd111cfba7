//! Exchanges of each rank with its neighbours in a grid (MPI 5.0 section 8.6).

use std::panic::Location;

use spmd_core::algorithm::{Call, Kind, PAYLOAD};
use spmd_core::{Buffer, BufferMut, Element, Result};

use crate::across::{self, Beside};
use crate::blocks::Blocks;
use crate::cartesian::Cartesian;
use crate::check;
use crate::data::{Input, Output};
use crate::exchange::{Counts, Exchange, Incoming};
use crate::select::{Algorithm::*, choose};

/// Exchanges with the neighbours in a [`Cartesian`] grid (MPI 5.0 section 8.6).
///
/// Blocks are in the order of [`Cartesian::neighbors`]: two for each axis. Where there is no
/// neighbour, the block that would come from it stays as it was, and the one for it goes nowhere.
///
/// ```
/// # use spmd_collectives::{Neighbor, Topology};
/// # use spmd_core::spmd;
/// let around = spmd(3, |ctx| {
///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
///     let mut around = [0; 2];
///     ring.neighbor_allgather(&[ring.rank()], &mut around).map(|()| around)
/// })?;
/// assert_eq!(around, [[2, 1], [0, 2], [1, 0]]);
/// # Ok::<(), spmd_core::Error>(())
/// ```
pub trait Neighbor {
    /// Sends `send` to all neighbours; `recv` has a block of its length for each. All ranks of
    /// the grid call it, with equal lengths.
    ///
    /// Errors: `recv` is not two blocks for each axis; a rank has failed, left, or makes another
    /// call.
    ///
    /// ```
    /// # use spmd_collectives::{Topology, Neighbor};
    /// # use spmd_core::{spmd, Result};
    /// spmd(3, |ctx| {
    ///     let line = ctx.cartesian(&[3], &[false])?.expect("three places");
    ///     let mut around = [9, 9];
    ///     line.neighbor_allgather(&[line.rank()], &mut around)?;
    ///     assert_eq!(around, [[9, 1], [0, 2], [1, 9]][line.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
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
    /// # use spmd_collectives::{Topology, Neighbor};
    /// # use spmd_core::{spmd, Result};
    /// // Rank 0 sends 1 backwards and 2 forwards, rank 1 sends 11 and 12.
    /// spmd(2, |ctx| {
    ///     let ring = ctx.cartesian(&[2], &[true])?.expect("two places");
    ///     let send = [10 * ring.rank() + 1, 10 * ring.rank() + 2];
    ///     let mut recv = [0, 0];
    ///     ring.neighbor_alltoall(&send, &mut recv)?;
    ///     assert_eq!(recv, [[12, 11], [2, 1]][ring.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
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
    /// # use spmd_collectives::{Topology, Neighbor};
    /// # use spmd_core::{spmd, Result};
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
    /// # Ok::<(), spmd_core::Error>(())
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
        let input = Input::new(send.view())?;
        let mut output = Output::new(recv.view_mut())?;
        let (dtype, block) = (input.dtype(), input.len());
        let call = Call::new(Kind::NeighborAllgather, Location::caller()).data(dtype, block);
        check::length(&call, "receive buffer", output.len(), sides(self).saturating_mul(block))?;
        let exchange = Exchange {
            dtype,
            send: input.ptr(),
            total: block,
            recv: output.ptr(),
            counts: Counts::Implied,
            by_rank: false,
        };
        // SAFETY: the buffers hold one block, and one for each side; they are held here.
        unsafe { equal(self, &call, exchange, 1, block)? };
        output.commit();
        Ok(())
    }

    fn neighbor_alltoall<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Buffer + ?Sized,
        R: BufferMut<Elem = S::Elem> + ?Sized,
    {
        let input = Input::new(send.view())?;
        let mut output = Output::new(recv.view_mut())?;
        let (dtype, len) = (input.dtype(), input.len());
        let call = Call::new(Kind::NeighborAlltoall, Location::caller()).data(dtype, len);
        let block = len.div_ceil(sides(self).max(1));
        check::length(&call, "send buffer", len, block * sides(self))?;
        check::length(&call, "receive buffer", output.len(), len)?;
        let exchange = Exchange {
            dtype,
            send: input.ptr(),
            total: len,
            recv: output.ptr(),
            counts: Counts::Implied,
            by_rank: false,
        };
        // SAFETY: the buffers hold a block for each side, and are held here.
        unsafe { equal(self, &call, exchange, sides(self), block)? };
        output.commit();
        Ok(())
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
        let input = Input::new(send.view())?;
        let mut output = Output::new(recv.view_mut())?;
        let dtype = input.dtype();
        let call = Call::new(Kind::NeighborAlltoallv, Location::caller());
        let call = call.data(dtype, Call::UNEQUAL);
        let n = sides(self);
        let blocks = Blocks::varying(&call, send_counts, n, "send buffer", input.len())?;
        let places = Blocks::varying(&call, recv_counts, n, "receive buffer", output.len())?;
        let incoming = learn(self, &call, &blocks, input.len(), &places)?;
        let counts = Counts::of(incoming.iter().map(|(side, block)| (*block, recv_counts[*side])));
        let exchange = Exchange {
            dtype,
            send: input.ptr(),
            total: input.len(),
            recv: output.ptr(),
            counts,
            by_rank: false,
        };
        if self.spans_processes() {
            across::agree_on_counts(self, &call, counts.wrong())?;
            // SAFETY: the buffers hold the blocks that the counts say, which are those of the
            // neighbours.
            unsafe { equal_across(self, &call, exchange, |side| blocks.of(side), &incoming)? };
            output.commit();
            return Ok(());
        }
        let incoming = incoming.iter().map(|(_, block)| *block);
        self.collective(&call, |round| {
            let at = |side: usize| blocks.of(side);
            // SAFETY: `recv` has room for the counts of this rank, which are those of its
            // neighbours, or the exchange gives an error before it moves a byte.
            unsafe { exchange.through_buffers(round, Some(self.segment()), n, at, incoming) }
        })?;
        output.commit();
        Ok(())
    }
}

/// Neighbours that a place has, or would have: before and behind on each axis.
fn sides(grid: &Cartesian) -> usize {
    2 * grid.dims().len()
}

/// The neighbours that there are, with their sides. What comes from one side was sent to the
/// opposite side: before and behind differ in the last bit.
fn around(grid: &Cartesian) -> Vec<(usize, usize)> {
    let neighbors = grid.neighbors().into_iter().enumerate();
    neighbors.filter_map(|(side, rank)| Some((side, rank?))).collect()
}

/// Everybody shows `blocks` blocks (one for all, or one a side) and reads those of its
/// neighbours for it. Small ones lie in the rooms: one meeting; large ones are read in place: two.
///
/// # Safety
/// The exchange's buffers hold `blocks` blocks of `block` elements, and one for each side.
unsafe fn equal(
    grid: &Cartesian,
    call: &Call<'_>,
    exchange: Exchange,
    blocks: usize,
    block: usize,
) -> Result<()> {
    let around = around(grid);
    let incoming = around.iter().map(|(side, peer)| {
        let index = if blocks == 1 { 0 } else { side ^ 1 };
        let (from, into) = (index * block, side * block);
        Incoming { peer: *peer, index, from, total: exchange.total, into, count: block }
    });
    if grid.spans_processes() {
        let incoming: Vec<_> = around.iter().map(|(side, _)| *side).zip(incoming).collect();
        let at = |side| if blocks == 1 { (0, block) } else { (side * block, block) };
        // SAFETY: as the caller promises.
        return unsafe { equal_across(grid, call, exchange, at, &incoming) };
    }
    let bytes = exchange.total * exchange.dtype.size as usize;
    let fits = bytes <= PAYLOAD;
    let default = if fits { Flat } else { Chunked };
    let choice = choose(grid, call.kind, bytes, default, |it| fits || it == Chunked);
    grid.collective(call, |round| {
        // SAFETY: as the caller promises.
        unsafe {
            match choice {
                Flat => exchange.through_rooms(round, incoming),
                _ => {
                    let at = |index| (index * block, block);
                    exchange.through_buffers(round, Some(grid.segment()), blocks, at, incoming)
                }
            }
        }
    })
}

/// The same across processes: `at` says where the block for a side lies, and how long it is.
///
/// # Safety
/// The exchange's buffers hold these blocks, and have room for `incoming`.
unsafe fn equal_across(
    grid: &Cartesian,
    call: &Call<'_>,
    exchange: Exchange,
    at: impl Fn(usize) -> (usize, usize),
    incoming: &[(usize, Incoming)],
) -> Result<()> {
    let out = around(grid).into_iter().map(|(side, peer)| {
        let (start, count) = at(side);
        Beside { peer, side: side ^ 1, start, count }
    });
    let came = incoming.iter().map(|(side, block)| Beside {
        peer: block.peer,
        side: *side,
        start: block.into,
        count: block.count,
    });
    let (send, recv) = ((exchange.send, out.collect()), (exchange.recv, came.collect()));
    // SAFETY: as the caller promises.
    unsafe { across::neighbors(grid, call, exchange.dtype, send, recv) }
}

/// Asks the neighbours for the blocks from each side, of which each goes to its place: an
/// exchange of its own. This rank's `blocks` have `total` elements.
fn learn(
    grid: &Cartesian,
    call: &Call<'_>,
    blocks: &Blocks,
    total: usize,
    places: &Blocks,
) -> Result<Vec<(usize, Incoming)>> {
    type Header = [u64; 3];
    let say = |(start, count)| [start, count, total].map(|word| word as u64);
    let said: Vec<Header> = (0..sides(grid)).map(|side| say(blocks.of(side))).collect();
    let mut heard = vec![[0; 3]; sides(grid)];
    let exchange = Exchange {
        dtype: Header::DTYPE,
        send: said.as_ptr().cast(),
        total: said.len(),
        recv: heard.as_mut_ptr().cast(),
        counts: Counts::Implied,
        by_rank: false,
    };
    // SAFETY: both vectors hold a header for each side.
    unsafe { equal(grid, call, exchange, sides(grid), 1)? };
    let incoming = around(grid).into_iter().map(|(side, peer)| {
        let [from, count, total] = heard[side].map(|word: u64| word as usize);
        let into = places.of(side).0;
        (side, Incoming { peer, index: side ^ 1, from, total, into, count })
    });
    Ok(incoming.collect())
}
