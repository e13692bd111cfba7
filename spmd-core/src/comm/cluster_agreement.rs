//! Agreements of ranks that live in several processes: in each, the ranks agree among themselves,
//! and one of them with the other processes.

use std::sync::Arc;
use std::time::Instant;

use super::communicator::Comm;
use super::tally::Tally;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::transport::cluster::Hierarchy;
use crate::transport::cluster::agreement::{Gathering, Settled, agree, departed};
use crate::transport::cluster::outcomes::Outcome;
use crate::transport::cluster::survive::patience;
use crate::transport::fabric::ProcessGroup;
use crate::transport::shared::collective::proposal::{WORDS, Words};
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;
use crate::wait;

/// What all ranks have proposed.
#[derive(Clone)]
pub(crate) struct AllProposals {
    pub(super) tally: Arc<Tally>,
    /// The processes of those that are left, in the order of their lowest, if a set was wanted, and
    /// they are several; `None` if it could not be made.
    pub(super) processes: Option<Option<Arc<dyn ProcessGroup>>>,
}

/// Words of one rank in what its process says: whether it is there, and its proposal.
const EACH: usize = 1 + WORDS;

impl Comm {
    /// Makes a proposal, and gives those of all ranks. `fresh` says which of them want a new set of
    /// the processes that are left.
    pub(super) fn propose_on_cluster(
        &self,
        hierarchy: &Hierarchy,
        call: &Call<'_>,
        words: &Words,
        fresh: fn(&Words) -> bool,
    ) -> Result<AllProposals> {
        let cluster = hierarchy.cluster();
        if !cluster.survives() {
            return Err(unavailable(call, cluster.fabric.name()));
        }
        let noted = self.note(call);
        let here: Arc<Vec<Option<Words>>> =
            self.endpoint.agree_on(&self.scope, &self.area, call, noted, words)?;
        let key = (self.scope.context, self.area.agreements());
        let leader = here.iter().position(Option::is_some).unwrap_or(self.here);
        if self.here != leader {
            let (bell, mut proposals) = (self.endpoint.bell().polled(true), None);
            wait::until_done(bell, || {
                proposals = cluster.fetch(key);
                proposals.is_some()
            });
            let proposals = proposals.expect("it has come").ok_or_else(|| leader_failed(call))?;
            let proposals =
                proposals.downcast::<AllProposals>().expect("its leader has left what it received");
            return Ok(Arc::unwrap_or_clone(proposals));
        }
        let proposals = self.agree_on_cluster(hierarchy, call, noted, key.1, &here, fresh);
        let others = here.iter().flatten().count() - 1;
        let outcome =
            proposals.as_ref().ok().map(|proposals| Arc::new(proposals.clone()) as Outcome);
        cluster.leave_for(key, outcome, others);
        proposals
    }

    /// Agrees with the other processes, for all ranks of this one, which propose this.
    fn agree_on_cluster(
        &self,
        hierarchy: &Hierarchy,
        call: &Call<'_>,
        noted: Noted,
        number: u64,
        here: &[Option<Words>],
        fresh: fn(&Words) -> bool,
    ) -> Result<AllProposals> {
        let cluster = hierarchy.cluster();
        let mut meeting = cluster.meet(self.scope.context, number, hierarchy.homes());
        let waiter = Waiter::new(&self.endpoint, &self.scope, call, noted);
        let waiter = waiter.polled().despite_failures();
        waiter.until(|| {
            // Others may need this process to come out of what they are in.
            if let Err(error) = cluster.take_packet(&self.endpoint.world) {
                return Some(Err(error));
            }
            match meeting() {
                Gathering::Complete => Some(Ok(())),
                Gathering::Left(rank) => Some(Err(departed(rank, call))),
                Gathering::Awaits(process) => {
                    let rank = hierarchy.homes().iter().position(|home| *home == process);
                    let rank = rank.map(|place| self.world_rank(hierarchy.members()[place][0]));
                    waiter.waits_on(rank);
                    None
                }
            }
        })??;
        let most = hierarchy.members().iter().map(Vec::len).max().unwrap_or(0);
        let mut said = vec![0; most * EACH];
        for (place, words) in said.chunks_mut(EACH).zip(here) {
            if let Some(words) = words {
                place[0] = 1;
                place[1..].copy_from_slice(words);
            }
        }
        let processes = hierarchy.processes()?.clone();
        let wants =
            move |said: &[u64]| present(said).any(|words| words.is_some_and(|it| fresh(&it)));
        // It waits inside the library, where other ranks of this process may have to be, too.
        let thread = std::thread::Builder::new().name("spmd agreement".into());
        let thread = thread
            .spawn(move || agree(&processes, &said, wants))
            .map_err(|error| Error::system("starting a thread for an agreement", error))?;
        let (start, limit) = (Instant::now(), patience(self.endpoint.world.timeout));
        let made = || thread.is_finished() || start.elapsed() > limit;
        wait::until_done(self.endpoint.bell().polled(true), made);
        if !thread.is_finished() {
            cluster.end_in_agreement(self.endpoint.rank, call, limit);
        }
        let settled = thread.join().map_err(|_| Error::from("an agreement panicked"))??;
        let there = |place: &usize| settled.proposals.iter().any(|(number, _)| number == place);
        let gone = (0..hierarchy.homes().len()).filter(|place| !there(place));
        cluster.await_detection(&self.endpoint.world, gone.map(|place| hierarchy.homes()[place]));
        self.read(hierarchy, settled)
    }

    /// What each rank has proposed, and the processes of those that are left.
    fn read(&self, hierarchy: &Hierarchy, settled: Settled) -> Result<AllProposals> {
        let mut proposals = vec![None; self.size()];
        let mut lowest = Vec::new();
        for (index, (place, said)) in settled.proposals.iter().enumerate() {
            let ranks = &hierarchy.members()[*place];
            for (rank, words) in ranks.iter().zip(present(said)) {
                proposals[*rank] = words;
            }
            let first = ranks.iter().find(|rank| proposals[**rank].is_some());
            lowest.extend(first.map(|rank| (*rank, index)));
        }
        lowest.sort_unstable();
        let order: Vec<usize> = lowest.into_iter().map(|(_, index)| index).collect();
        let processes = settled.own.then(|| match order.len() {
            0 | 1 => None,
            _ if order.is_sorted() => Some(settled.processes),
            // If that fails, another process has, and the set is not used.
            _ => settled.processes.part(&order).unwrap_or_else(|_| {
                settled.processes.revoke();
                None
            }),
        });
        Ok(AllProposals { tally: Arc::new(proposals.into()), processes })
    }
}

/// The ranks' proposals in what their process says.
fn present(said: &[u64]) -> impl Iterator<Item = Option<Words>> + '_ {
    said.chunks(EACH).map(|place| {
        let words = || std::array::from_fn(|word| place[word + 1]);
        (place[0] == 1).then(words)
    })
}

#[cold]
fn leader_failed(call: &Call<'_>) -> Error {
    Error::from(format!("{call}: the rank of this process that agrees for all has got an error"))
}

/// That processes cannot go on here, and what is needed.
#[cold]
fn unavailable(call: &Call<'_>, library: &str) -> Error {
    Error::unavailable(
        call.to_string(),
        format!(
            "its ranks live in several processes joined by {library}, here without fault tolerance \
             (ULFM): a failure ends them all"
        ),
        "start a program that is built with the feature `mpi` by Open MPI 5's mpirun \
                 --with-ft ulfm, or run the job on one host with spmdrun --transport shm"
            .into(),
    )
}
