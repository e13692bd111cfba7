//! The job's shared memory, as the launcher sees it.

use crate::error::Error;
use crate::plan::Plan;

#[cfg(target_os = "linux")]
pub(crate) use spmd_core::boot::Job;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::Job;

/// What ranks share with each other, or, where one process runs all, with the launcher.
pub(crate) fn create(plan: &Plan) -> Result<Option<Job>, Error> {
    if plan.under.is_some() {
        return Ok(None);
    }
    if plan.one_process() {
        // Without it a job only tells less.
        return Ok(Job::create_for_one_process(plan.size).ok());
    }
    Ok(Some(match plan.arena_size {
        Some(each) => Job::create_of_size(plan.size, each)?,
        None => Job::create(plan.size)?,
    }))
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::process::ExitStatus;

    use spmd_core::Error;

    /// Process ranks share a sealed memory file, which only Linux has.
    pub(crate) enum Job {}

    impl Job {
        pub(crate) fn create(ranks: usize) -> Result<Job, Error> {
            Err(Error::unavailable(
                format!("running {ranks} ranks as processes"),
                "it needs Linux's memfd and futexes".into(),
                "use --as threads or --as virtual".into(),
            ))
        }

        pub(crate) fn create_of_size(ranks: usize, _each: usize) -> Result<Job, Error> {
            Job::create(ranks)
        }

        pub(crate) fn create_for_one_process(ranks: usize) -> Result<Job, Error> {
            Job::create(ranks)
        }

        pub(crate) fn environment_of_one_process(&self) -> Vec<(String, String)> {
            match *self {}
        }

        pub(crate) fn environment(&self, _rank: usize) -> Vec<(String, String)> {
            match *self {}
        }

        pub(crate) fn entered(&self, _rank: usize) -> bool {
            match *self {}
        }

        pub(crate) fn finished(&self, _rank: usize) -> bool {
            match *self {}
        }

        pub(crate) fn goes_on(&self, _rank: usize) -> bool {
            match *self {}
        }

        pub(crate) fn departed(&self, _rank: usize) -> bool {
            match *self {}
        }

        pub(crate) fn died(&self, _rank: usize, _status: ExitStatus) {
            match *self {}
        }

        pub(crate) fn ended_well(&self, _rank: usize) {
            match *self {}
        }

        pub(crate) fn first_cause(&self) -> Option<(Option<usize>, String)> {
            match *self {}
        }

        pub(crate) fn report(&self, _rank: usize) -> String {
            match *self {}
        }
    }
}
