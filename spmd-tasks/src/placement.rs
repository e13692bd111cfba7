//! Where tasks may run.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use serde::{Deserialize, Serialize};

use crate::request::Request;

/// Where the tasks may run that are spawned within [`Tasks::with_scope`](crate::Tasks::with_scope): a rank, a
/// worker, a GPU, or any of several (`|`). `&` of two is where both allow it, as one within the other is.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::tasks::Scope;
///
/// let scope = (Scope::rank(0) | Scope::rank(2)) & Scope::gpu(1);
/// assert_eq!(scope.to_string(), "GPU 1 of rank 0 or GPU 1 of rank 2");
/// assert!((Scope::worker(0) & Scope::worker(1)).is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope(Vec<Processors>);

/// What names no rank, worker or GPU allows all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Processors {
    rank: Option<usize>,
    worker: Option<usize>,
    gpu: Option<u32>,
}

const ANYWHERE: Processors = Processors { rank: None, worker: None, gpu: None };

impl Scope {
    /// Whatever there is on this rank of the block. A closure runs on the rank that spawns it: in a scope of
    /// others it is an error. [`Tasks::spawn_any`](crate::Tasks::spawn_any) chooses among ranks.
    pub fn rank(rank: usize) -> Scope {
        Scope(vec![Processors { rank: Some(rank), ..ANYWHERE }])
    }

    /// The worker of this number of a process, of which the ranks in it share the workers. Its tasks begin in the
    /// order in which they come to it, and no other worker takes them.
    pub fn worker(worker: usize) -> Scope {
        Scope(vec![Processors { worker: Some(worker), ..ANYWHERE }])
    }

    /// The GPU of this number of a process: what [`TaskOptions::gpu`](crate::TaskOptions::gpu) asks for is of
    /// these. Code that asks for none runs on any worker.
    pub fn gpu(gpu: u32) -> Scope {
        Scope(vec![Processors { gpu: Some(gpu), ..ANYWHERE }])
    }

    /// Whether it is nowhere, which no two of [`Scope::rank`], [`Scope::worker`] and [`Scope::gpu`] are
    /// together unless they are two of the same.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something of it is on this rank.
    pub(crate) fn has_rank(&self, rank: usize) -> bool {
        self.0.iter().any(|it| it.is_on(rank))
    }

    /// The ranks of so many that it names; `None` if it allows all.
    pub(crate) fn ranks(&self, size: usize) -> Option<Vec<usize>> {
        let mut ranks = self.0.iter().map(|it| it.rank).collect::<Option<Vec<usize>>>()?;
        ranks.retain(|rank| *rank < size);
        ranks.sort_unstable();
        ranks.dedup();
        Some(ranks)
    }

    /// Has a task ask for no more than this allows, that runs on this rank.
    pub(crate) fn restrict(&self, rank: usize, request: &mut Request) {
        let mut here: Vec<&Processors> = self.0.iter().filter(|it| it.is_on(rank)).collect();
        let asks_for_gpu = request.amounts.iter().any(|(name, _)| **name == *"gpu");
        // Of workers that have a GPU each, one with its own.
        let pair = here.iter().find(|it| it.worker.is_some() && it.gpu.is_some());
        if let Some(pair) = pair.copied().filter(|_| asks_for_gpu) {
            here = vec![pair];
        }
        if here.is_empty() {
            request.never = Some(format!(
                "its scope is {self}, and it runs on rank {rank}: spawn_on and spawn_any have other \
                 ranks run a function"
            ));
        }
        let workers: Option<Vec<usize>> = here.iter().map(|it| it.worker).collect();
        request.workers = workers.filter(|_| !here.is_empty());
        let gpus: Vec<u32> = here.iter().filter_map(|it| it.gpu).collect();
        request.gpus = (asks_for_gpu && !gpus.is_empty()).then_some(gpus);
    }

    /// The same for a task with code for the host and for a GPU, which asks for the first or the second: what it
    /// asks for where it may run.
    pub(crate) fn restrict_either(
        &self,
        rank: usize,
        has_gpus: bool,
        (mut host, mut gpu): (Request, Request),
    ) -> (Option<Request>, Option<Request>) {
        let part = |names_gpus: bool| {
            let here = self.0.iter().filter(|it| it.is_on(rank) && it.gpu.is_some() == names_gpus);
            Scope(here.cloned().collect())
        };
        let (with, without) = (part(true), part(false));
        // Those that name GPUs come before those that allow any.
        let for_gpu = if with.is_empty() { &without } else { &with };
        for_gpu.restrict(rank, &mut gpu);
        // Where a process has no GPU at all, the host does what is for GPUs.
        let for_host = if without.is_empty() && !has_gpus { &with } else { &without };
        for_host.restrict(rank, &mut host);
        ((!for_host.is_empty()).then_some(host), (!for_gpu.is_empty()).then_some(gpu))
    }
}

impl Processors {
    fn is_on(&self, rank: usize) -> bool {
        self.rank.is_none_or(|it| it == rank)
    }

    /// Where both allow it.
    fn and(&self, other: &Processors) -> Option<Processors> {
        fn both<T: Copy + PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
            match (one, other) {
                (Some(one), Some(other)) => (one == other).then_some(Some(one)),
                (one, other) => Some(one.or(other)),
            }
        }
        let (rank, worker) = (both(self.rank, other.rank)?, both(self.worker, other.worker)?);
        Some(Processors { rank, worker, gpu: both(self.gpu, other.gpu)? })
    }
}

fn push(terms: &mut Vec<Processors>, one: Processors) {
    if !terms.contains(&one) {
        terms.push(one);
    }
}

impl BitOr for Scope {
    type Output = Scope;

    fn bitor(mut self, other: Scope) -> Scope {
        other.0.into_iter().for_each(|it| push(&mut self.0, it));
        self
    }
}

impl BitAnd for Scope {
    type Output = Scope;

    fn bitand(self, other: Scope) -> Scope {
        let mut terms = Vec::new();
        for place in &self.0 {
            let both = other.0.iter().filter_map(|it| place.and(it));
            both.for_each(|it| push(&mut terms, it));
        }
        Scope(terms)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, it) in self.0.iter().enumerate() {
            f.write_str(if at > 0 { " or " } else { "" })?;
            let parts = [
                it.gpu.map(|gpu| format!("GPU {gpu}")),
                it.worker.map(|worker| format!("worker {worker}")),
                it.rank.map(|rank| format!("rank {rank}")),
            ];
            f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(" of "))?;
        }
        f.write_str(if self.is_empty() { "nowhere" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_both() {
        let two = Scope::rank(1) | Scope::worker(3);
        assert_eq!(
            two.clone() & Scope::rank(1),
            Scope::rank(1) | (Scope::rank(1) & Scope::worker(3))
        );
        assert_eq!(two.clone() | two.clone(), two);
        assert!((Scope::rank(1) & Scope::rank(2)).is_empty());
        assert!((Scope::gpu(1) & Scope::worker(2) & Scope::gpu(2)).is_empty());
        assert_eq!((two & Scope::gpu(0)).to_string(), "GPU 0 of rank 1 or GPU 0 of worker 3");
        assert_eq!((Scope::rank(1) & Scope::rank(2)).to_string(), "nowhere");
    }

    #[test]
    fn ranks_of_a_scope() {
        let some = Scope::rank(7) | Scope::rank(1) | (Scope::rank(1) & Scope::gpu(2));
        assert_eq!(some.ranks(8), Some(vec![1, 7]));
        assert_eq!(some.ranks(2), Some(vec![1]));
        assert_eq!((some.clone() | Scope::gpu(0)).ranks(8), None);
        assert!(some.has_rank(7) && !some.has_rank(0) && (some | Scope::worker(0)).has_rank(0));
    }
}
