//! Steps that processes make again and again: requests that are made once, and then started.
//!
//! A request of a library's is for the same memory at each start, and to make one is a call of all
//! processes. But memory may become another from one step to the next, on some processes and not on
//! others. So each request has memory of its own, to which data are copied before a start, and from
//! which they are copied at its end: whether a request fits a step is then told by what all
//! processes know of the step (`shape.rs`), and all find the same.

use std::ffi::c_int;
use std::mem;

use parking_lot::Mutex;
use spmd_core::Result;
use spmd_core::transport::fabric::{FabricRequest, NativeCollective};

use crate::handles::{Comm, Request};
use crate::inits::Inits;
use crate::library::Library;
use crate::mpi::Mpi;
use crate::provider::Count;
use crate::requests::give_up;
use crate::shape::{Shape, What};
use crate::steps::place;

/// Requests that one set of processes makes. A persistent call is one step or two each time.
const KEPT: usize = 4;

/// A request that is not under way, with its memory.
struct Kept {
    shape: Shape,
    request: Request,
    send: Vec<u8>,
    recv: Vec<u8>,
}

/// Those of a set of processes.
#[derive(Default)]
pub struct KeptSteps(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Those that are not under way.
    resting: Vec<Kept>,
    /// How many were made.
    made: usize,
}

impl Table {
    /// What to go on with for a step of this shape: a request that is there, one to be made, or
    /// none, if there are enough.
    fn take(&mut self, shape: Shape) -> Option<Option<Kept>> {
        match self.resting.iter().position(|kept| kept.shape == shape) {
            Some(place) => Some(Some(self.resting.swap_remove(place))),
            None if self.made < KEPT => {
                self.made += 1;
                Some(None)
            }
            None => None,
        }
    }
}

impl KeptSteps {
    /// Starts a step of process `rank` of `comm` by a request that is kept, if there is
    /// one or it can be made.
    ///
    /// # Safety
    /// All memory that the step names is valid for what it says of it, until the result is complete
    /// or has been dropped. The processes make their steps of the set one after the other.
    pub unsafe fn start<'a>(
        &'a self,
        mpi: &'static Mpi,
        comm: Comm,
        rank: usize,
        step: NativeCollective<'_>,
    ) -> Result<Option<Box<dyn FabricRequest + 'a>>> {
        let calls = mpi.calls()?;
        let (Some(inits), Some((shape, (from, into)))) =
            (&calls.inits, Shape::of(&calls.constants, step))
        else {
            return Ok(None);
        };
        if !shape.is_small() {
            return Ok(None);
        }
        let taken = self.0.lock().take(shape);
        let mut kept = match taken {
            None => return Ok(None),
            Some(Some(kept)) => kept,
            Some(None) => Kept::make(&calls, inits, comm, rank, shape)?,
        };
        // SAFETY: so much is readable there (this function's contract); elements have no padding.
        unsafe { from.copy_to_nonoverlapping(kept.send.as_mut_ptr(), kept.send.len()) };
        // SAFETY: the request is not under way. Its memory stays where it is, and nobody touches it,
        // until it is complete: `Underway` sees to it.
        let started = unsafe { calls.start(&mut kept.request) };
        if let Err(error) = started {
            mem::forget(kept);
            return Err(error);
        }
        drop(calls);
        Ok(Some(Box::new(Underway { mpi, steps: self, kept: Some(kept), into })))
    }

    /// Frees the requests. One that is under way, or has failed, is not among them.
    pub fn free(&self, mpi: &Library) {
        for mut kept in mem::take(&mut self.0.lock().resting) {
            // SAFETY: the request is not under way. An error could be told to nobody.
            let _ = unsafe { mpi.request_free(&mut kept.request) };
        }
    }
}

/// A step whose request is under way.
struct Underway<'a> {
    mpi: &'static Mpi,
    steps: &'a KeptSteps,
    /// Until it is complete.
    kept: Option<Kept>,
    /// Where what it gets goes, in the end.
    into: *mut u8,
}

impl FabricRequest for Underway<'_> {
    fn test(&mut self) -> Result<bool> {
        let Some(kept) = &mut self.kept else { return Ok(true) };
        let mut flag = 0;
        let calls = self.mpi.calls()?;
        // SAFETY: the request is under way, and stays valid at its end.
        let tested =
            unsafe { calls.test(&mut kept.request, &mut flag, calls.constants.status_ignore) };
        drop(calls);
        if tested.is_ok() && flag == 0 {
            return Ok(false);
        }
        if let Some(kept) = self.kept.take() {
            if tested.is_err() {
                // Nobody knows whether MPI is through with its memory.
                mem::forget(kept);
                return tested.map(|()| true);
            }
            // SAFETY: so much is writable there (contract of `KeptSteps::start`), apart from this
            // memory, which MPI is through with.
            unsafe { kept.recv.as_ptr().copy_to_nonoverlapping(self.into, kept.recv.len()) };
            self.steps.0.lock().resting.push(kept);
        }
        Ok(true)
    }
}

/// The others wait for this step, and it cannot be taken back.
impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if matches!(self.test(), Ok(false)) {
            give_up(self.mpi, "a collective call");
        }
    }
}

impl Kept {
    /// Makes the request together with the other processes, for which no library that is known waits.
    #[cold]
    fn make(mpi: &Library, inits: &Inits, comm: Comm, rank: usize, shape: Shape) -> Result<Kept> {
        let (brings, gets) = shape.lengths(rank);
        let (mut send, mut recv) = (vec![0u8; brings], vec![0u8; gets]);
        let (from, to) = (place(send.as_mut_ptr()), place(recv.as_mut_ptr()));
        let Shape { what, of, count, .. } = shape;
        let (n, info) = (count as Count, mpi.constants.info_null);
        let root = |root: usize| root as c_int;
        let mut request = mpi.constants.request_null;
        let new = &raw mut request;
        // SAFETY: the communicator is valid, and types and operations are MPI's own. The memory has
        // as much as a process uses by the shape, and stays where it is; `new` is writable.
        let (call, code) = unsafe {
            match what {
                What::Broadcast(at) => {
                    let data = if at == rank { from } else { to };
                    ("MPI_Bcast_init", (inits.bcast)(data, n, of, root(at), comm, info, new))
                }
                What::Reduce(at, op) => {
                    let code = (inits.reduce)(from, to, n, of, op, root(at), comm, info, new);
                    ("MPI_Reduce_init", code)
                }
                What::Allreduce(op) => {
                    ("MPI_Allreduce_init", (inits.allreduce)(from, to, n, of, op, comm, info, new))
                }
                What::Scan(op) => {
                    ("MPI_Scan_init", (inits.scan)(from, to, n, of, op, comm, info, new))
                }
                What::Exscan(op) => {
                    ("MPI_Exscan_init", (inits.exscan)(from, to, n, of, op, comm, info, new))
                }
            }
        };
        mpi.check(call, code)?;
        Ok(Kept { shape, request, send, recv })
    }
}

#[cfg(test)]
mod tests;
