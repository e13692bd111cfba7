//! Exchanges with neighbours as requests.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Element, Request, Result};

#[cfg(doc)]
use super::Neighbor;
use crate::cartesian::Cartesian;
use crate::sealed::Sealed;

/// [`Neighbor`] as requests, which own their buffers (MPI 5.0 section 8.7).
pub trait NeighborStart: Sealed {
    /// Starts [`Neighbor::neighbor_allgather`]; the request gives back both buffers. All ranks of the grid start
    /// it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Neighbor::neighbor_allgather`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
    ///     let (_mine, around) = ring.neighbor_allgather_start([ring.rank()], [9; 2])?.wait()?;
    ///     assert_eq!(around, [[2, 1], [0, 2], [1, 0]][ring.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_allgather_start<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Starts [`Neighbor::neighbor_alltoall`]; the request gives back both buffers. All ranks of the grid start
    /// it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Neighbor::neighbor_alltoall`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
    ///     let mine = [10 * ring.rank(), 10 * ring.rank() + 1]; // for the one before, for the one behind
    ///     let (_mine, around) = ring.neighbor_alltoall_start(mine, [9; 2])?.wait()?;
    ///     assert_eq!(around, [[21, 10], [1, 20], [11, 0]][ring.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_alltoall_start<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Starts [`Neighbor::neighbor_alltoallv`]; the request gives back both buffers. All ranks of the grid start
    /// it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Neighbor::neighbor_alltoallv`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
    ///     let request = ring.neighbor_alltoallv_start([ring.rank(); 3], [9; 3], &[1, 2], &[2, 1])?;
    ///     let (_mine, around) = request.wait()?;
    ///     let [before, behind] = [(ring.rank() + 2) % 3, (ring.rank() + 1) % 3];
    ///     assert_eq!(around, [before, before, behind]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_alltoallv_start<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;
}

impl NeighborStart for Cartesian {
    fn neighbor_allgather_start<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().neighbor_allgather(self, send, recv)
    }

    fn neighbor_alltoall_start<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().neighbor_alltoall(self, send, recv)
    }

    fn neighbor_alltoallv_start<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().neighbor_alltoallv(self, send, recv, send_counts, recv_counts)
    }
}

/// [`Neighbor`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)), which may be another communicator's than the
/// grid.
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(3, |ctx| {
///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
///     let (mine, mut around) = ([ring.rank()], [9; 2]);
///     ctx.requests(|requests| {
///         requests.neighbor_allgather(&ring, &mine, &mut around)?;
///         Ok(())
///     })?;
///     assert_eq!(around, [[2, 1], [0, 2], [1, 0]][ring.rank()]);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub trait NeighborRequests<'a>: Starts<'a> {
    /// Starts [`Neighbor::neighbor_allgather`] on `grid`, as
    /// [`NeighborStart::neighbor_allgather_start`] does.
    #[track_caller]
    fn neighbor_allgather<S, R>(
        &self,
        grid: &Cartesian,
        send: S,
        recv: R,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::NeighborAllgather, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let neighbors = grid.neighbors();
        let mut recv = recv;
        self.start_on(grid, call, move |comm| {
            super::neighbor_allgather((comm, &neighbors), &send, &mut recv, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Neighbor::neighbor_alltoall`] on `grid`, as
    /// [`NeighborStart::neighbor_alltoall_start`] does.
    #[track_caller]
    fn neighbor_alltoall<S, R>(&self, grid: &Cartesian, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::NeighborAlltoall, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let neighbors = grid.neighbors();
        let mut recv = recv;
        self.start_on(grid, call, move |comm| {
            super::neighbor_alltoall((comm, &neighbors), &send, &mut recv, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Neighbor::neighbor_alltoallv`] on `grid`, as
    /// [`NeighborStart::neighbor_alltoallv_start`] does.
    #[track_caller]
    fn neighbor_alltoallv<S, R>(
        &self,
        grid: &Cartesian,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::NeighborAlltoallv, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, Call::UNEQUAL);
        let neighbors = grid.neighbors();
        let (send_counts, recv_counts) = (send_counts.to_vec(), recv_counts.to_vec());
        let mut recv = recv;
        self.start_on(grid, call, move |comm| {
            super::neighbor_alltoallv(
                (comm, &neighbors),
                &send,
                &mut recv,
                &send_counts,
                &recv_counts,
                site,
            )?;
            Ok((send, recv))
        })
    }
}

impl<'a, S: Starts<'a>> NeighborRequests<'a> for S {}
