//! Tasks of uneven length, handed out one by one: master and worker.
//!
//! All ranks know all tasks. Rank 0 hands out their numbers by messages, and the others keep what they
//! have made of them until all is done. Where a rank fails, the others make a communicator of those that
//! are left, tell each other what they have, and go on with the rest.

use std::collections::BTreeMap;
use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_core::{ANY, Comm, Error, Result};

use crate::allgather::Allgather;
use crate::object::Objects;
use crate::sealed::Sealed;
use crate::split::Split;

/// Tasks that ranks take as they get through with others.
///
/// ```
/// use spmd::prelude::*;
///
/// let squares = spmd(3, |ctx| ctx.map_dynamic(&[1, 2, 3, 4], |n| Ok(n * n)))?;
/// assert_eq!(squares[0], [1, 4, 9, 16]);
/// # Ok::<(), Error>(())
/// ```
pub trait Dynamic: Sealed {
    /// Gives what `f` makes of each of `tasks`, in their order, to every rank. Which rank does which task
    /// is decided as they get through: rank 0 hands them out, and does some itself only if it is alone.
    /// All ranks call it, with as many tasks; `f` does the same everywhere, and must not communicate on
    /// this communicator.
    ///
    /// If a rank fails meanwhile, by a panic or its process's end, the others do its tasks again, where
    /// ranks can go on without others ([`Comm::shrink`]); this communicator stays stopped, and
    /// [`Comm::shrink`] makes one of those that are left. That three ranks fail in one
    /// task is an error.
    ///
    /// Cost: two messages for each task, ⌈log₂ size⌉ steps at the end, in which all results come to all
    /// ranks.
    ///
    /// Errors, on all ranks: that of `f`, where it gives one, in its words and with the number of the
    /// task; ranks give different numbers of tasks; serialisation; as [`Comm::shrink`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let texts = ["a b", "c", "d e f"];
    /// let words = spmd(3, |ctx| ctx.map_dynamic(&texts, |text| Ok(text.split(' ').count())))?;
    /// assert_eq!(words, [[2, 1, 3]; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn map_dynamic<T, R>(&self, tasks: &[T], f: impl FnMut(&T) -> Result<R>) -> Result<Vec<R>>
    where
        R: Serialize + DeserializeOwned;
}

impl Dynamic for Comm {
    fn map_dynamic<T, R>(&self, tasks: &[T], mut f: impl FnMut(&T) -> Result<R>) -> Result<Vec<R>>
    where
        R: Serialize + DeserializeOwned,
    {
        let site = Location::caller();
        let said = |text: String| {
            Error::from(format!("map_dynamic at {}:{}: {text}", site.file(), site.line()))
        };
        let part = Part { done: Vec::new(), failed: None };
        let mut job = Job { tasks: tasks.len(), part, lost: Vec::new() };
        // Of its own, and the same on all ranks, also if one has failed already.
        let (mut comm, goes_on) = match self.shrink() {
            Err(Error::Unavailable(_)) => (self.dup()?, false),
            comm => (comm?, true),
        };
        let parts = loop {
            let ended = job.go_through(&comm, |task| f(&tasks[task]));
            if !goes_on {
                break ended?;
            }
            // Whoever has all results stays until all ranks have them.
            let agreed = comm.agree(u64::from(ended.is_ok()));
            let failure = match (ended, agreed) {
                (Ok(parts), Ok(1)) => break parts,
                (Err(failure), _) | (_, Err(failure)) => failure,
                (Ok(_), Ok(_)) => {
                    return Err(said("another rank has no result: it says why".into()));
                }
            };
            if !matches!(failure, Error::PeerFailed(_)) {
                return Err(failure);
            }
            // Where ranks do not go on without others, what has happened says more.
            comm = comm.shrink().map_err(|_| failure)?;
        };
        if let Some((task, why)) = parts.iter().find_map(|part| part.failed.as_ref()) {
            return Err(said(format!("task {task}: {why}")));
        }
        // Of what was done twice, as its rank was taken for lost, one is as good as the other.
        let results: BTreeMap<usize, R> = parts.into_iter().flat_map(|part| part.done).collect();
        Ok(results.into_values().collect())
    }
}

/// From a worker to rank 0: it has no task; 1 if it could not do one, else 0.
const READY: u32 = 0;
/// From rank 0 to a worker: the number of a task, or [`NONE`].
const TASK: u32 = 1;
/// There are no more tasks.
const NONE: u64 = u64::MAX;

/// How many ranks may fail while they have a task, until it is to blame.
const MOST_LOST: usize = 3;

/// What a rank has of the tasks.
struct Job<R> {
    tasks: usize,
    part: Part<R>,
    /// On rank 0: tasks that were with a rank of the world when some rank failed.
    lost: Vec<(usize, usize)>,
}

/// What a rank tells all others at the end.
#[derive(serde::Serialize, serde::Deserialize)]
struct Part<R> {
    done: Vec<(usize, R)>,
    /// A task that cannot be done, and why.
    failed: Option<(usize, String)>,
}

impl<R: Serialize + DeserializeOwned> Job<R> {
    /// Does with the others what is left to do, and gives what all ranks have.
    ///
    /// Errors: a rank has failed, of which nothing is lost but what it had; or what does not get better.
    fn go_through(
        &mut self,
        comm: &Comm,
        f: impl FnMut(usize) -> Result<R>,
    ) -> Result<Vec<Part<R>>> {
        let open = self.open(comm)?;
        match (comm.rank(), comm.size()) {
            (0, 1) => self.do_all(open, f),
            (0, _) => self.hand_out(comm, open)?,
            _ => self.work(comm, f)?,
        }
        comm.allgather_object(&self.part)
    }

    /// The tasks that no rank has done.
    fn open(&mut self, comm: &Comm) -> Result<Vec<usize>> {
        let done = self.part.done.iter().map(|(task, _)| *task);
        let said =
            comm.allgatherv_vec(&[self.tasks].into_iter().chain(done).collect::<Vec<_>>())?;
        let mut is_open = vec![true; self.tasks];
        for (rank, said) in said.iter().enumerate() {
            if said.first() != Some(&self.tasks) {
                let (mine, other) = (self.tasks, said.first().copied().unwrap_or(0));
                let why =
                    format!("map_dynamic: {mine} tasks here, {other} on rank {rank} of those");
                return Err(Error::argument(why + " that call it; give the same on all ranks"));
            }
            said[1..].iter().filter(|task| **task < self.tasks).for_each(|task| {
                is_open[*task] = false;
            });
        }
        self.blame(comm, &is_open);
        Ok((0..self.tasks).filter(|task| is_open[*task]).collect())
    }

    /// A task that was with several ranks when they failed is to blame for it.
    fn blame(&mut self, comm: &Comm, is_open: &[bool]) {
        let here: Vec<usize> = (0..comm.size()).map(|rank| comm.world_rank(rank)).collect();
        self.lost.retain(|(task, rank)| is_open[*task] && !here.contains(rank));
        self.lost.sort_unstable();
        let mut by_task = self.lost.chunk_by(|(one, _), (next, _)| one == next);
        if let Some(lost) = by_task.find(|lost| lost.len() >= MOST_LOST) {
            let ranks: Vec<usize> = lost.iter().map(|(_, rank)| *rank).collect();
            let why = format!("ranks {ranks:?} of the world have failed in it");
            self.part.failed = Some((lost[0].0, why));
        }
    }

    /// Does these tasks here, as there is nobody else.
    fn do_all(&mut self, open: Vec<usize>, mut f: impl FnMut(usize) -> Result<R>) {
        for task in open {
            if self.part.failed.is_none() {
                self.part.take(task, f(task));
            }
        }
    }

    /// Hands out these tasks, to whoever has none.
    fn hand_out(&mut self, comm: &Comm, open: Vec<usize>) -> Result<()> {
        let mut with = vec![None; comm.size()];
        let handed_out = self.hand_out_to(comm, open, &mut with);
        if handed_out.is_err() {
            let of = |(rank, task): (usize, Option<usize>)| Some((task?, comm.world_rank(rank)));
            self.lost.extend(with.into_iter().enumerate().filter_map(of));
        }
        handed_out
    }

    /// The same, with the task that each rank has.
    fn hand_out_to(
        &mut self,
        comm: &Comm,
        open: Vec<usize>,
        with: &mut [Option<usize>],
    ) -> Result<()> {
        let mut open = open.into_iter();
        let (mut workers, mut stop) = (comm.size() - 1, self.part.failed.is_some());
        while workers > 0 {
            let (failed, from) = comm.recv_value::<u64>(ANY, READY)?;
            with[from.source()] = None;
            stop |= failed != 0;
            let next = open.next().filter(|_| !stop);
            comm.send_value(next.map_or(NONE, |task| task as u64), from.source(), TASK)?;
            with[from.source()] = next;
            workers -= usize::from(next.is_none());
        }
        Ok(())
    }

    /// Does what rank 0 hands out.
    fn work(&mut self, comm: &Comm, mut f: impl FnMut(usize) -> Result<R>) -> Result<()> {
        loop {
            comm.send_value(u64::from(self.part.failed.is_some()), 0, READY)?;
            let (task, _) = comm.recv_value::<u64>(0, TASK)?;
            match usize::try_from(task).ok().filter(|task| *task < self.tasks) {
                Some(task) => self.part.take(task, f(task)),
                None if task == NONE => return Ok(()),
                None => return Err(Error::corrupt(comm.world_rank(0), "it hands out no task")),
            }
        }
    }
}

impl<R> Part<R> {
    /// Takes what has become of a task.
    fn take(&mut self, task: usize, done: Result<R>) {
        match done {
            Ok(done) => self.done.push((task, done)),
            Err(error) => self.failed = Some((task, error.to_string())),
        }
    }
}
