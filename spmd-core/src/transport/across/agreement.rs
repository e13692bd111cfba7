//! Agreements among processes of which some may fail.
//!
//! One is made by one rank of each process for all that live there. The library's part of it waits
//! for every process that lives, so nobody begins before all have said over the watches that they are
//! there; one whose ranks have left the block will not come. Then all tell all what they propose, and
//! the library's own agreement says whether that has gone well everywhere; if not, it is done again
//! without those that have failed. So all that come through have the same before them.

use std::sync::Arc;

use super::joined::Across;
use super::known::Meeting;
use super::outcomes::Outcome;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::transport::fabric::{Extents, Parts, Processes, Step};
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
    pub(crate) processes: Arc<dyn Processes>,
    pub(crate) own: bool,
    /// Their numbers among those that were to, and what each of them proposed.
    pub(crate) heard: Vec<(usize, Vec<u64>)>,
}

impl Across {
    /// Says that the lead of this process is to agree on something with those of the others, and
    /// gives what tells how it stands.
    pub(crate) fn meet<'a>(
        &'a self,
        context: u64,
        number: u64,
        processes: &'a [usize],
    ) -> impl FnMut() -> Gathering + 'a {
        let block = self.watch.as_ref().map_or(0, |watch| watch.block());
        let meeting = Meeting { block, context, number };
        self.watch.iter().for_each(|watch| watch.ready(meeting));
        let me = self.fabric.process();
        move || {
            let Some(known) = self.known() else { return Gathering::Complete };
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
    pub(crate) fn leave_for(&self, key: (u64, u64), heard: Option<Outcome>, ranks: usize) {
        if ranks > 0 {
            self.settled.lock().insert(key, (heard, ranks));
        }
    }

    /// The outcome, once it is there: `None` within if there is none.
    pub(crate) fn fetch(&self, key: (u64, u64)) -> Option<Option<Outcome>> {
        let mut settled = self.settled.lock();
        let (heard, ranks) = settled.get_mut(&key)?;
        *ranks -= 1;
        if *ranks > 0 { Some(heard.clone()) } else { settled.remove(&key).map(|it| it.0) }
    }
}

/// Agrees with the others of `processes` on what each proposes, so many words; those of `fresh` are
/// given a set of their own. All that live call it, and wait for each other.
pub(crate) fn settle(
    processes: &Arc<dyn Processes>,
    proposal: &[u64],
    fresh: impl Fn(&[u64]) -> bool,
) -> Result<Settled> {
    let mut set = processes.clone();
    let mut numbers: Vec<usize> = (0..set.size()).collect();
    let mut own = false;
    loop {
        let told = tell_all(&*set, proposal);
        if told.is_err() {
            set.revoke();
        }
        let all = set.agree(told.is_ok())?;
        if let (true, Ok(heard)) = (all, told)
            && (own || !heard.iter().any(|words| fresh(words)))
        {
            let heard = numbers.into_iter().zip(heard).collect();
            return Ok(Settled { processes: set, own, heard });
        }
        (set, numbers) = processes.shrink()?;
        own = true;
    }
}

/// Tells all what this one proposes, and hears what each does.
fn tell_all(set: &dyn Processes, proposal: &[u64]) -> Result<Vec<Vec<u64>>> {
    let each = size_of_val(proposal);
    let mut heard = vec![0u64; set.size() * proposal.len()];
    let recv = Parts { memory: heard.as_mut_ptr().cast(), extents: Extents::Equal(each) };
    let send = (proposal.as_ptr().cast(), each);
    // SAFETY: both are words, as many for each process, and held until the step is complete.
    let mut started = unsafe { set.start(Step::Allgather { send, recv })? };
    while !started.test()? {
        wait::relax();
    }
    drop(started);
    Ok(heard.chunks(proposal.len()).map(<[u64]>::to_vec).collect())
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
