//! Which `SPMD_*` variables there are, for programs and the launcher, and a word about others.

use std::ffi::OsString;
use std::io::{Write, stderr};
use std::sync::Once;

use crate::environment::variables::*;

/// What the names of all begin with.
const OURS: &str = "SPMD_";

/// Every variable that a program, the launcher or the tests of both read or set.
const KNOWN: [&str; 34] = [
    ALARM,
    ARENA,
    ARENA_SIZE,
    AS,
    CHAOS,
    CHECK,
    CORES,
    CPUS,
    FORCE,
    JOB,
    PROGRESS,
    PROTOCOL,
    RANK,
    RANKS,
    RANKS_PER_PROCESS,
    REPRODUCIBLE,
    RESOURCES,
    SEGMENT,
    SINGLE_COPY,
    SIZE,
    STACK_SIZE,
    TIMEOUT,
    TRACE,
    TRANSPORT,
    TUNED,
    TUNING,
    WINDOW,
    // Of the launcher, of what prints a rank's lines, and of the crates for MPI and GPUs.
    "SPMD_BIND",
    "SPMD_GRACE",
    "SPMD_MPI_COUNT",
    "SPMD_MPI_LIB",
    "SPMD_NCCL_LIB",
    "SPMD_NVRTC_LIB",
    "SPMD_TAG",
];

/// Beginnings of the names of those that tests and measurements have for themselves.
const FOR_TESTS: [&str; 4] = ["SPMD_TEST_", "SPMD_REQUIRE_", "SPMD_STANDIN_", "SPMD_PERF_"];

/// A line for each of these variables that looks like one of ours and is none.
pub fn unknown_variables(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let is_unknown = |name: &String| {
        name.starts_with(OURS)
            && !KNOWN.contains(&name.as_str())
            && !FOR_TESTS.iter().any(|beginning| name.starts_with(beginning))
    };
    let unknown = names.filter_map(|name| name.into_string().ok()).filter(is_unknown);
    let told = unknown.map(|name| {
        // What they all begin with makes no two of them alike.
        let meant = nearest(&name[OURS.len()..], KNOWN.map(|known| &known[OURS.len()..]));
        let meant = meant.map_or(String::new(), |known| format!(", {OURS}{known} would be"));
        format!("warning: {name} is no variable of spmd{meant} (docs/variables.md lists them)")
    });
    told.collect()
}

/// Says on standard error, once in a process, which variables of its environment are none of ours.
/// Where `spmdrun` has started it, that has said so.
pub(crate) fn warn_of_unknown() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        if std::env::var_os(JOB).is_some() {
            return;
        }
        for warning in unknown_variables(std::env::vars_os().map(|(name, _)| name)) {
            // With standard error closed there is nobody to tell.
            let _ = writeln!(stderr(), "spmd: {warning}");
        }
    });
}

/// A name that is much like this text, to be asked about.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &&str| (strsim::jaro_winkler(text, name) * 1e6) as u32;
    let best = names.into_iter().max_by_key(likeness)?;
    (likeness(&best) > 700_000).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_documented() {
        let documented = include_str!("../../docs/variables.md");
        for name in KNOWN {
            assert!(documented.contains(&format!("`{name}")), "{name}");
        }
        let words = documented.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        let ours = words.filter(|word| word.starts_with(OURS) && !word.ends_with('_'));
        assert_eq!(unknown_variables(ours.map(OsString::from)), [""; 0]);
    }

    #[test]
    fn what_is_not_known_is_told() {
        let names = ["SPMD_TIMOUT", "SPMD_TIMEOUT", "HOME", "SPMD_TEST_MPI", "SPMD_QQ"];
        let told = unknown_variables(names.map(OsString::from).into_iter());
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("SPMD_TIMOUT") && told[0].contains("SPMD_TIMEOUT would be"));
        assert!(told[1].contains("SPMD_QQ is no variable of spmd ("), "{told:?}");
    }

    #[test]
    fn of_names() {
        let names = ["none", "core", "numa"];
        assert_eq!(nearest("cores", names), Some("core"));
        assert_eq!(nearest("0-3", names), None);
    }
}
