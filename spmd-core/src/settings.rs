//! What the environment sets for the blocks of this process.

mod tuning;

use std::time::Duration;

use crate::affinity::Bind;
use crate::environment::{parsed, positive, variable, variables};
use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::progress::Progress;
use crate::resources::Resources;
use crate::tuning::Tuning;
#[cfg(target_os = "linux")]
pub(crate) use tuning::handed_on;
pub use tuning::{begin_trace, tuned};
pub(crate) use tuning::{has_trace, measured, trace, trace_path};

/// What the environment sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) mode: Option<Mode>,
    pub(crate) ranks: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) progress: Progress,
    pub(crate) stack_size: Option<usize>,
    pub(crate) cores: Option<usize>,
    pub(crate) bind: Bind,
    /// Bytes of a segment, whatever was measured.
    pub(crate) segment: Option<usize>,
    pub(crate) tuning: Tuning,
    pub(crate) resources: Resources,
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Settings> {
        use variables::*;
        let mode = match variable(AS)?.as_deref() {
            None | Some("processes") => None,
            Some("threads") => Some(Mode::Threads),
            Some("virtual") => Some(Mode::Virtual),
            Some(other) => {
                let text = format!("{AS}={other} is not threads, virtual or processes");
                return Err(Error::boot(text));
            }
        };
        let progress = match variable(PROGRESS)?.as_deref() {
            None | Some("calls") => Progress::Calls,
            Some("thread") => Progress::Thread,
            Some(other) => {
                let text = format!("{PROGRESS}={other} is not calls or thread");
                return Err(Error::boot(text));
            }
        };
        let seconds = parsed::<f64>(TIMEOUT, "a number of seconds")?;
        let timeout = seconds.map(|seconds| {
            let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
            limit.ok_or_else(|| {
                Error::boot(format!(
                    "{TIMEOUT}={seconds} is not a time limit; write more than 0, or unset it"
                ))
            })
        });
        Ok(Settings {
            mode,
            ranks: positive(RANKS, "a number of ranks")?,
            timeout: timeout.transpose()?,
            progress,
            stack_size: positive(STACK_SIZE, "a number of bytes")?,
            cores: positive(CORES, "a number of cores")?,
            bind: bind()?,
            segment: tuning::segment()?,
            tuning: tuning::tuning()?,
            resources: resources()?,
        })
    }
}

/// `0-1;2` as sets of cores.
fn bind() -> Result<Bind> {
    let Some(text) = variable(variables::CPUS)? else { return Ok(Bind::None) };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < 65_536).then_some(first..=last)
    };
    let set = |set: &str| {
        let ranges: Option<Vec<_>> = set.split(',').map(range).collect();
        Some(ranges?.into_iter().flatten().collect())
    };
    let sets: Option<Vec<Vec<usize>>> = text.split(';').map(set).collect();
    let name = variables::CPUS;
    sets.map(Bind::Sets)
        .ok_or_else(|| Error::boot(format!("{name}={text} is not a list of cores like 0-1;2-3")))
}

/// What is declared, and the GPUs that the process sees where that says nothing of them.
fn resources() -> Result<Resources> {
    let name = variables::RESOURCES;
    let declared = variable(name)?.unwrap_or_default();
    let declared: Resources =
        declared.parse().map_err(|why| Error::boot(format!("{name}={declared}: {why}")))?;
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let gpus = visible.split(',').map(str::trim).take_while(|gpu| !gpu.is_empty() && *gpu != "-1");
    Ok(declared.or_gpus(gpus.count() as u32))
}
