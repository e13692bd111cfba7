//! Exchanges with neighbours as persistent calls.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{Buffer, BufferMut, Element, Persistent, Result};

#[cfg(doc)]
use super::Neighbor;
use crate::Split;
use crate::cartesian::Cartesian;
use crate::sealed::Sealed;

/// [`Neighbor`] as persistent calls, which own their buffers (MPI 5.0 section 8.8).
pub trait NeighborInit: Sealed {
    /// Makes [`Neighbor::neighbor_allgather`] a persistent call, on a communicator of its own (MPI
    /// 5.0 section 8.8). All ranks of the grid make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`]; what of the arguments [`Neighbor::neighbor_allgather`] refuses. From
    /// its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
    ///     let mut call = ring.neighbor_allgather_init(vec![0], vec![9; 2])?;
    ///     for turn in 0..10 {
    ///         call.send_mut()?[0] = 10 * turn + ring.rank();
    ///         call.start()?;
    ///         // Something else meanwhile.
    ///         call.wait()?;
    ///         let around = [[2, 1], [0, 2], [1, 0]][ring.rank()];
    ///         assert_eq!(*call.recv()?, around.map(|rank| 10 * turn + rank));
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_allgather_init<S, R>(&self, send: S, recv: R) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Makes [`Neighbor::neighbor_alltoall`] a persistent call, on a communicator of its own (MPI
    /// 5.0 section 8.8). All ranks of the grid make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`]; what of the arguments [`Neighbor::neighbor_alltoall`] refuses. From
    /// its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
    ///     let mine = [10 * ring.rank(), 10 * ring.rank() + 1]; // for the one before, for the one behind
    ///     let mut call = ring.neighbor_alltoall_init(mine, [9; 2])?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     assert_eq!(*call.recv()?, [[21, 10], [1, 20], [11, 0]][ring.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_alltoall_init<S, R>(&self, send: S, recv: R) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Makes [`Neighbor::neighbor_alltoallv`] a persistent call, on a communicator of its own (MPI
    /// 5.0 section 8.8). All ranks of the grid make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`]; what of the arguments [`Neighbor::neighbor_alltoallv`] refuses. From
    /// its starts and waits as that: whether the counts of two neighbours agree is seen there.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let ring = ctx.cartesian(&[3], &[true])?.expect("three places");
    ///     let mine = [ring.rank(); 3];
    ///     let mut call = ring.neighbor_alltoallv_init(mine, [9; 3], &[1, 2], &[2, 1])?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let [before, behind] = [(ring.rank() + 2) % 3, (ring.rank() + 1) % 3];
    ///     assert_eq!(*call.recv()?, [before, before, behind]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn neighbor_alltoallv_init<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;
}

impl NeighborInit for Cartesian {
    fn neighbor_allgather_init<S, R>(&self, send: S, recv: R) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let (site, neighbors) = (Location::caller(), self.neighbors());
        let call = Call::new(Kind::NeighborAllgather, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::neighbor_allgather((comm, &neighbors), send, recv, site)
        })
    }

    fn neighbor_alltoall_init<S, R>(&self, send: S, recv: R) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let (site, neighbors) = (Location::caller(), self.neighbors());
        let call = Call::new(Kind::NeighborAlltoall, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::neighbor_alltoall((comm, &neighbors), send, recv, site)
        })
    }

    fn neighbor_alltoallv_init<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let (site, neighbors) = (Location::caller(), self.neighbors());
        let call = Call::new(Kind::NeighborAlltoallv, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, Call::UNEQUAL);
        let (send_counts, recv_counts) = (send_counts.to_vec(), recv_counts.to_vec());
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            let grid = (comm, &*neighbors);
            super::neighbor_alltoallv(grid, send, recv, &send_counts, &recv_counts, site)
        })
    }
}
