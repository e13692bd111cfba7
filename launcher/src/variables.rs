//! Environment variables: those that the launcher alone may set, those that all ranks must have
//! alike, and how it reads its own.

use std::env;
use std::ffi::OsString;

use spmd_core::boot;

use crate::error::Error;

/// The variables that only the launcher may set. Those of an outer job are removed first, so that
/// a job inside a rank of another job starts clean.
pub(crate) const OWN: [&str; 13] = [
    "SPMD_RANK",
    "SPMD_SIZE",
    "SPMD_ARENA_FD",
    "SPMD_PROTOCOL",
    "SPMD_AS",
    "SPMD_RANKS",
    "SPMD_TAG",
    "SPMD_CPUS",
    "SPMD_CORES",
    "SPMD_JOB",
    "SPMD_TUNED",
    boot::variables::ALARM,
    "SPMD_RANKS_PER_PROCESS",
];

/// Beginnings of the names by which MPI launchers tell a process its place, and where they are.
const OF_MPI_LAUNCHERS: [&str; 10] = [
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_FD",
    "PMI_PORT",
    "PMI_ID",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "PMIX_SERVER_URI",
    "OMPI_COMM_WORLD_",
    "MV2_COMM_WORLD_",
];

/// Those of the launcher's variables that ranks do not find: what an outer job, of ours or of an MPI
/// launcher, has told the launcher. A program linked with an MPI would join that job, or wait for it.
pub(crate) fn not_for_ranks() -> impl Iterator<Item = OsString> {
    let is_outer = |name: &OsString| {
        name.to_str().is_some_and(|name| {
            OWN.contains(&name) || OF_MPI_LAUNCHERS.iter().any(|start| name.starts_with(start))
        })
    };
    env::vars_os().map(|(name, _)| name).filter(is_outer)
}

/// What all ranks must know alike, so that `--env` may not set it for one program of several: ranks
/// that go by different rules would wait for each other in different ways.
pub(crate) const ALIKE: [&str; 7] = [
    "SPMD_FORCE",
    "SPMD_SEGMENT",
    "SPMD_SINGLE_COPY",
    boot::variables::TUNING,
    boot::variables::ARENA_SIZE,
    boot::variables::WINDOW,
    boot::variables::TRANSPORT,
];

/// The value of an environment variable, or `default` where it is not set or empty.
pub(crate) fn from_env<T>(
    variable: &str,
    default: T,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Error> {
    value_of(variable, env::var_os(variable), default, read)
}

/// The same of a value that was looked up before.
pub(crate) fn value_of<T>(
    variable: &str,
    value: Option<OsString>,
    default: T,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Error> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(default) };
    value.to_str().map_or(Err("it is not UTF-8".into()), read).map_err(|error| {
        Error::Usage(format!(
            "the environment variable {variable}={} makes no sense: {error}, or unset it",
            value.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use spmd_core::internal::unknown_variables;

    use super::*;

    #[test]
    fn what_the_launcher_sets_is_known() {
        let names = OWN.iter().chain(&ALIKE).map(OsString::from);
        assert_eq!(unknown_variables(names), [""; 0]);
    }
}
