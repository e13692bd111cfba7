//! Processes that make collective steps together: a communicator.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use spmd_core::element::DType;
use spmd_core::op::ErasedOp;
use spmd_core::transport::fabric::{
    FabricDuplicate, FabricRequest, NativeCollective, ProcessGroup,
};
use spmd_core::{Error, Result};

use crate::done::complete;
use crate::handles::{Comm, Group, Request};
use crate::kept::KeptSteps;
use crate::mpi::{Calls, Mpi};
use crate::provider::{bits, pieces};
use crate::requests::{BorrowedRequest, Kind, OwnedRequest, RequestGroup};
use crate::steps::make;
use crate::survive::{missing, numbers};
use crate::types::native;

/// A communicator of MPI's, private to this library.
pub struct MpiGroup {
    mpi: &'static Mpi,
    comm: Comm,
    rank: usize,
    size: usize,
    /// How many different tags there are.
    tags: u32,
    kept: KeptSteps,
}

impl MpiGroup {
    /// The processes of `comm`, which belongs to the result from now on.
    pub fn new(mpi: &'static Mpi, calls: &Calls<'_>, comm: Comm, tags: u32) -> Result<MpiGroup> {
        calls.return_errors(comm)?;
        let (rank, size) = calls.rank_and_size(comm)?;
        Ok(MpiGroup { mpi, comm, rank, size, tags, kept: KeptSteps::default() })
    }

    /// Gives `make` the group of these of the processes.
    fn with_group(
        &self,
        calls: &mut Calls<'_>,
        members: &[usize],
        make: impl FnOnce(&mut Calls<'_>, Group) -> Result<()>,
    ) -> Result<()> {
        let ranks: Vec<c_int> = members.iter().map(|member| *member as c_int).collect();
        let (mut all, mut some) = (Group::unset(), Group::unset());
        // SAFETY: the communicator is valid, `ranks` are of its processes, and the handles are used
        // once they have been written.
        unsafe {
            calls.comm_group(self.comm, &mut all)?;
            calls.group_incl(all, ranks.len() as c_int, ranks.as_ptr(), &mut some)?;
            let made = make(calls, some);
            if !ranks.is_empty() {
                calls.group_free(&mut some)?;
            }
            calls.group_free(&mut all)?;
            made
        }
    }
}

/// A communicator that is being duplicated.
struct Duplicate {
    mpi: &'static Mpi,
    /// MPI writes it until the request is complete: where that is not waited for, it stays.
    new: ManuallyDrop<Box<Comm>>,
    request: Request,
    tags: u32,
}

// SAFETY: the handles may be used on any thread that has `Mpi::calls`.
unsafe impl Send for Duplicate {}

impl FabricDuplicate for Duplicate {
    fn test(&mut self) -> Result<Option<Arc<dyn ProcessGroup>>> {
        let calls = self.mpi.calls()?;
        if !complete(&calls, &mut self.request)? {
            return Ok(None);
        }
        Ok(Some(Arc::new(MpiGroup::new(self.mpi, &calls, **self.new, self.tags)?)))
    }
}

impl ProcessGroup for MpiGroup {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn subset(&self, members: &[usize], key: u32) -> Result<Arc<dyn ProcessGroup>> {
        if !members.contains(&self.rank) || members.iter().any(|member| *member >= self.size) {
            return Err(Error::argument(format!(
                "process {} of {} cannot make the set {members:?}",
                self.rank, self.size
            )));
        }
        let tag = (key % self.tags) as c_int;
        let mut calls = self.mpi.calls()?;
        let mut comm = self.comm;
        self.with_group(&mut calls, members, |calls, group| {
            // SAFETY: the communicator and the group are valid, the handle writable.
            unsafe { calls.comm_create_group(self.comm, group, tag, &mut comm) }
        })?;
        Ok(Arc::new(MpiGroup::new(self.mpi, &calls, comm, self.tags)?))
    }

    fn duplicate(&self) -> Result<Box<dyn FabricDuplicate>> {
        let calls = self.mpi.calls()?;
        let mut new = Box::new(self.comm);
        let mut request = calls.constants.request_null;
        // SAFETY: the communicator is valid; the handles are writable, that of the new one until the
        // request is complete, as `Duplicate` sees to.
        unsafe { calls.comm_idup(self.comm, &mut *new, &mut request)? };
        Ok(Box::new(Duplicate {
            mpi: self.mpi,
            new: ManuallyDrop::new(new),
            request,
            tags: self.tags,
        }))
    }

    #[inline]
    fn folds(&self, dtype: &DType, op: &ErasedOp<'_>) -> bool {
        native(self.mpi.constants(), dtype, op).is_some()
    }

    unsafe fn run(&self, step: NativeCollective<'_>) -> Result<()> {
        let calls = self.mpi.calls()?;
        let Some(steps) = pieces(self.rank, step)? else {
            // SAFETY: the caller's contract; the step is complete before this returns.
            return unsafe { make(&calls, self.comm, self.rank, step, None) };
        };
        steps.into_iter().try_for_each(|step| {
            // SAFETY: the same, of a part of its memory.
            unsafe { make(&calls, self.comm, self.rank, step, None) }
        })
    }

    unsafe fn start<'a>(
        &'a self,
        step: NativeCollective<'a>,
    ) -> Result<Box<dyn FabricRequest + 'a>> {
        let calls = self.mpi.calls()?;
        let begin = |step| {
            let mut begun = OwnedRequest::new(&calls);
            // SAFETY: the caller's contract, until the step is complete.
            let made = unsafe { make(&calls, self.comm, self.rank, step, Some(&mut begun)) };
            (BorrowedRequest { mpi: self.mpi, begun, kind: Kind::NativeCollective }, made)
        };
        let mut all = Vec::new();
        let made = match pieces(self.rank, step)? {
            None => {
                let (underway, made) = begin(step);
                if made.is_ok() {
                    drop(calls);
                    return Ok(Box::new(underway));
                }
                all.push(underway);
                made
            }
            Some(steps) => steps.into_iter().try_for_each(|step| {
                let (underway, made) = begin(step);
                all.push(underway);
                made
            }),
        };
        // What was begun before an error looks after itself when it is dropped, which calls MPI.
        drop(calls);
        made.map(|()| Box::new(RequestGroup(all)) as _)
    }

    unsafe fn start_again<'a>(
        &'a self,
        step: NativeCollective<'a>,
    ) -> Result<Box<dyn FabricRequest + 'a>> {
        // SAFETY: the caller's contract.
        let kept = unsafe { self.kept.start(self.mpi, self.comm, self.rank, step) };
        match kept? {
            Some(started) => Ok(started),
            // SAFETY: the same.
            None => unsafe { self.start(step) },
        }
    }

    fn handle(&self) -> usize {
        bits(self.comm.0)
    }

    fn revoke(&self) {
        if let (Some((survival, _)), Ok(calls)) = (self.mpi.survival(), self.mpi.calls()) {
            survival.revoke(self.comm, &calls);
        }
    }

    fn part(&self, members: &[usize]) -> Result<Option<Arc<dyn ProcessGroup>>> {
        let mut calls = self.mpi.calls()?;
        let mut comm = self.comm;
        self.with_group(&mut calls, members, |calls, group| {
            // SAFETY: the communicator and the group are valid, the handle writable; the library
            // serves several threads where others may go on when a process fails.
            calls.waiting(|mpi| unsafe { mpi.comm_create(self.comm, group, &mut comm) })
        })?;
        if members.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(MpiGroup::new(self.mpi, &calls, comm, self.tags)?)))
    }

    fn shrink(&self) -> Result<(Arc<dyn ProcessGroup>, Vec<usize>)> {
        let (survival, library) = self.mpi.survival().ok_or_else(|| missing(self.mpi))?;
        let comm = survival.shrink(library, self.comm)?;
        let calls = self.mpi.calls()?;
        let left = MpiGroup::new(self.mpi, &calls, comm, self.tags)?;
        let numbers = numbers(&calls, comm, self.comm, left.size)?;
        drop(calls);
        Ok((Arc::new(left), numbers))
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        let (survival, library) = self.mpi.survival().ok_or_else(|| missing(self.mpi))?;
        survival.agree(library, self.comm, yes)
    }
}

/// MPI calls it collective to free a communicator, and processes drop theirs at different times.
/// But the standard expects it to be local, and lets what is under way complete; MPICH, Intel MPI
/// and Open MPI do so. Not to free would end a program that splits some thousand times, for there
/// are no more communicators than that.
impl Drop for MpiGroup {
    fn drop(&mut self) {
        if let Ok(calls) = self.mpi.calls() {
            self.kept.free(&calls);
            // SAFETY: nobody uses the communicator after this. An error could be told to nobody.
            let _ = unsafe { calls.comm_free(&mut self.comm) };
        }
    }
}
