//! Agreements among processes of which some may fail.
//!
//! One is made by one rank of each process for all that live there. The library's part of it waits
//! for every process that lives, so nobody begins before all have said over the detectors that they
//! are there; one whose ranks have left the block will not come. Then all tell all what they
//! propose, and the library's own agreement says whether that has gone well everywhere; if not, it
//! is done again without those that have failed. So all that come through have the same before
//! them.

use std::sync::Arc;

use super::joined::Cluster;
use super::outcomes::Outcome;
use super::peer_status::AgreementKey;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::transport::fabric::{BlockLayout, NativeCollective, ProcessBlocks, ProcessGroup};
use crate::wait;

/// How it stands before an agreement.
pub(crate) enum Gathering {
    /// All are there that live.
    Complete,
    /// This process is not there yet.
    Awaits(usize),
    /// This rank has left the block, and will not come.
    Left(usize),
}

/// What has become of an agreement among processes.
pub(crate) struct Settled {
    /// The processes that took part, and whether they are a set made for this.
    pub(crate) processes: Arc<dyn ProcessGroup>,
    pub(crate) own: bool,
    /// Their numbers among those that were to, and what each of them proposed.
    pub(crate) proposals: Vec<(usize, Vec<u64>)>,
}

impl Cluster {
    /// Says that the leader of this process is to agree on something with those of the others, and
    /// gives what tells how it stands.
    pub(crate) fn meet<'a>(
        &'a self,
        context: u64,
        number: u64,
        processes: &'a [usize],
    ) -> impl FnMut() -> Gathering + 'a {
        let block = self.detector.as_ref().map_or(0, |detector| detector.block());
        let meeting = AgreementKey { block, context, number };
        self.detector.iter().for_each(|detector| detector.ready(meeting));
        let me = self.fabric.process();
        move || {
            let Some(known) = self.peer_status() else { return Gathering::Complete };
            let is_late = |process: &usize| *process != me && !known.has_arrived(*process, meeting);
            let mut late = processes.iter().copied().filter(is_late);
            let Some(first) = late.next() else {
                known.forget(meeting);
                return Gathering::Complete;
            };
            let mut late = std::iter::once(first).chain(late);
            let left = late.find(|process| known.has_left(*process, block) && is_late(process));
            left.map_or(Gathering::Awaits(first), |it| Gathering::Left(it * self.each))
        }
    }

    /// Leaves the outcome of an agreement for so many other ranks of this process.
    pub(crate) fn leave_for(&self, key: (u64, u64), proposals: Option<Outcome>, ranks: usize) {
        if ranks > 0 {
            self.settled.lock().insert(key, (proposals, ranks));
        }
    }

    /// The outcome, once it is there: `None` within if there is none.
    pub(crate) fn fetch(&self, key: (u64, u64)) -> Option<Option<Outcome>> {
        let mut settled = self.settled.lock();
        let (proposals, ranks) = settled.get_mut(&key)?;
        *ranks -= 1;
        if *ranks > 0 { Some(proposals.clone()) } else { settled.remove(&key).map(|it| it.0) }
    }
}

/// Agrees with the others of `processes` on what each proposes, so many words; those of `fresh` are
/// given a set of their own. All that live call it, and wait for each other.
pub(crate) fn agree(
    processes: &Arc<dyn ProcessGroup>,
    proposal: &[u64],
    fresh: impl Fn(&[u64]) -> bool,
) -> Result<Settled> {
    let mut set = processes.clone();
    let mut numbers: Vec<usize> = (0..set.size()).collect();
    let mut own = false;
    loop {
        let told = allgather(&*set, proposal);
        if told.is_err() {
            set.revoke();
        }
        let all = set.agree(told.is_ok())?;
        if let (true, Ok(proposals)) = (all, told)
            && (own || !proposals.iter().any(|words| fresh(words)))
        {
            let proposals = numbers.into_iter().zip(proposals).collect();
            return Ok(Settled { processes: set, own, proposals });
        }
        (set, numbers) = processes.shrink()?;
        // Whoever is told of another failure revokes it, and a library may not stand that while it
        // still makes it (Open MPI 5: a null pointer): first all that live have it.
        set.agree(true)?;
        own = true;
    }
}

/// Tells all what this one proposes, and hears what each does.
fn allgather(set: &dyn ProcessGroup, proposal: &[u64]) -> Result<Vec<Vec<u64>>> {
    let each = size_of_val(proposal);
    let mut proposals = vec![0u64; set.size() * proposal.len()];
    let recv =
        ProcessBlocks { memory: proposals.as_mut_ptr().cast(), layout: BlockLayout::Equal(each) };
    let send = (proposal.as_ptr().cast(), each);
    // SAFETY: both are words, as many for each process, and held until the step is complete.
    let mut started = unsafe { set.start(NativeCollective::Allgather { send, recv })? };
    while !started.test()? {
        wait::relax();
    }
    drop(started);
    Ok(proposals.chunks(proposal.len()).map(<[u64]>::to_vec).collect())
}

/// That the ranks of another process have left the block in which this one agrees on something.
pub(crate) fn departed(rank: usize, call: &Call<'_>) -> Error {
    Error::unavailable(
        call.to_string(),
        format!(
            "rank {rank} has left its block, and where processes are joined by MPI, all whose \
             processes live must take part"
        ),
        "have all ranks agree that they are done before any of them returns".into(),
    )
}
