//! The job's shared memory, as the launcher sees it. Only this file reaches into `spmd_core::boot`.

use std::process::ExitStatus;

use spmd_core::Error;

/// The launcher's handle on what all ranks of a job share.
pub(crate) struct Job {
    ranks: usize,
}

impl Job {
    /// Makes the shared memory for `ranks` process ranks.
    pub(crate) fn create(ranks: usize) -> Result<Job, Error> {
        if cfg!(not(target_os = "linux")) {
            return Err(Error::Unavailable {
                what: "running ranks as processes".into(),
                reason: "it needs Linux's memfd and futexes".into(),
                remedy: "use --as threads or --as virtual".into(),
            });
        }
        Ok(Job { ranks })
    }

    /// What tells a rank its place in the world.
    pub(crate) fn environment(&self, rank: usize) -> Vec<(String, String)> {
        vec![("SPMD_RANK".into(), rank.to_string()), ("SPMD_SIZE".into(), self.ranks.to_string())]
    }

    /// Whether the rank has ever entered the world.
    pub(crate) fn entered(&self, _rank: usize) -> bool {
        false
    }

    /// Whether the rank has left its last block, with `Ok` or `Err`.
    pub(crate) fn finished(&self, _rank: usize) -> bool {
        false
    }

    /// Tells the other ranks that this one is dead.
    pub(crate) fn died(&self, _rank: usize, _status: ExitStatus) {}

    /// The rank that failed first and why, in words.
    pub(crate) fn first_cause(&self) -> Option<(usize, String)> {
        None
    }

    /// What the rank is doing, in one line.
    pub(crate) fn report(&self, rank: usize) -> String {
        format!("running; rank {rank} has not entered the world")
    }
}
