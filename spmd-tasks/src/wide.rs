//! Jobs that take several workers.
//!
//! Such a job waits until so many workers have come to it, each when it would begin something new: all
//! but the last are lent to it, and begin nothing until it is done. What they have begun they go on with, so
//! that whoever the job waits for can act. A job that waits gives them back, and when it goes on, it does so
//! beside what they have begun: so one may wait for another. Jobs come in order, so that one after another
//! all are done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use parking_lot::Mutex;

use crate::job::Job;

#[derive(Default)]
pub(crate) struct Wide {
    /// How many jobs wait.
    waits: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// With how many workers each takes.
    waiting: VecDeque<(Job, usize)>,
    /// Workers that have come to the first.
    gathered: usize,
    /// Those that may leave, as what they were lent to is done.
    released: usize,
}

/// What a worker does next.
pub(crate) enum Turn {
    /// Something else.
    Usual,
    /// Nothing new.
    Lent,
    Run(Job),
}

impl Wide {
    pub(crate) fn put(&self, job: Job, workers: usize) {
        self.state.lock().waiting.push_back((job, workers));
        self.waits.fetch_add(1, SeqCst);
    }

    /// Whether a job waits for workers.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Acquire) != 0
    }

    /// A job that waits, whoever there is for it.
    pub(crate) fn pop(&self) -> Option<Job> {
        let (job, _) = self.state.lock().waiting.pop_front()?;
        self.waits.fetch_sub(1, SeqCst);
        Some(job)
    }

    /// A worker, which may be lent, would begin something.
    pub(crate) fn turn(&self, is_lent: bool) -> Turn {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut is_lent = is_lent;
        if is_lent && state.released > 0 {
            state.released -= 1;
            is_lent = false;
        }
        let Some((_, workers)) = state.waiting.front() else {
            return if is_lent { Turn::Lent } else { Turn::Usual };
        };
        if !is_lent {
            state.gathered += 1;
        }
        // Whoever was lent to another job and takes this one leaves its place there to one of those
        // that have come to this: so many are lent in all.
        if state.gathered < *workers {
            return Turn::Lent;
        }
        state.gathered -= *workers;
        let first = state.waiting.pop_front().map(|(job, _)| job);
        self.waits.fetch_sub(1, SeqCst);
        if state.waiting.is_empty() {
            state.released += std::mem::take(&mut state.gathered);
        }
        first.map_or(Turn::Usual, Turn::Run)
    }

    /// Whether a worker that is lent would do something.
    pub(crate) fn has_turn(&self) -> bool {
        let state = self.state.lock();
        let enough = state.waiting.front().is_some_and(|(_, workers)| state.gathered >= *workers);
        state.released > 0 || enough
    }

    /// So many workers are not lent any more.
    pub(crate) fn give_back(&self, lent: usize) {
        let mut state = self.state.lock();
        match state.waiting.is_empty() {
            true => state.released += lent,
            false => state.gathered += lent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Ask;

    fn job() -> Job {
        fn nothing(_: *const (), _: Ask) -> *const () {
            std::ptr::null()
        }
        // SAFETY: it does nothing.
        unsafe { Job::new(std::ptr::null(), nothing) }
    }

    /// Workers that take turns in a random order: never more than there are, and all are free at the end.
    #[test]
    fn workers_are_lent_and_come_back() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (wide, workers) = (Wide::default(), random.usize(2..6));
            let (mut lent, mut running) = (vec![false; workers], vec![0; workers]);
            let (mut left, mut waits) = (20, VecDeque::new());
            while left > 0 || !waits.is_empty() || running.iter().any(|it| *it > 0) {
                if left > 0 && random.u8(..4) == 0 {
                    let size = random.usize(2..=workers);
                    wide.put(job(), size);
                    waits.push_back(size);
                    left -= 1;
                }
                let me = random.usize(..workers);
                if running[me] > 0 {
                    wide.give_back(std::mem::take(&mut running[me]) - 1);
                    continue;
                }
                if lent[me] && !wide.has_turn() {
                    continue;
                }
                match wide.turn(lent[me]) {
                    Turn::Usual => lent[me] = false,
                    Turn::Lent => lent[me] = true,
                    Turn::Run(_) => {
                        lent[me] = false;
                        running[me] = waits.pop_front().unwrap();
                    }
                }
                let taken: usize = running.iter().sum();
                assert!(taken <= workers, "seed {seed}: {running:?} of {workers}");
            }
            for me in (0..workers).filter(|me| lent[*me]).collect::<Vec<_>>() {
                assert!(
                    matches!(wide.turn(true), Turn::Usual),
                    "seed {seed}: {me} is lent for ever"
                );
            }
        }
    }
}
