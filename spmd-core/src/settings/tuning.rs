//! The settings that change no result: `SPMD_FORCE`, `SPMD_SEGMENT`, `SPMD_TUNING` and the like.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::algorithm::find;
use crate::environment::variables::*;
use crate::environment::{NCCL, parsed, positive, variable};
use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::trace::{Trace, TraceFile};
use crate::tuning::{File, Rules, Section, Tuning, path};

/// What a variable says that is 0 or 1.
fn switch(name: &str) -> Result<Option<bool>> {
    match parsed::<u8>(name, "0 or 1")? {
        None => Ok(None),
        Some(value @ (0 | 1)) => Ok(Some(value == 1)),
        Some(other) => Err(Error::boot(format!("{name}={other} is not 0 or 1"))),
    }
}

/// What the variables ask for, all but segments and what was measured.
pub(crate) fn tuning() -> Result<Tuning> {
    Ok(Tuning {
        forced: forced()?,
        single_copy: switch(SINGLE_COPY)?,
        reproducible: switch(REPRODUCIBLE)?.unwrap_or(false),
        device_plane: variable(TRANSPORT)?.filter(|it| it == NCCL).map(|_| NCCL),
        check: switch(CHECK)?.unwrap_or(false),
        chaos: parsed(CHAOS, "a number")?,
        window: positive(WINDOW, "a number of bytes")?.unwrap_or(Tuning::default().window),
        ..Tuning::default()
    })
}

pub(crate) fn segment() -> Result<Option<usize>> {
    Ok(positive(SEGMENT, "a number of bytes")?.map(|bytes| bytes.clamp(64, 1 << 30)))
}

fn forced() -> Result<Rules> {
    let mut forced = Rules::default();
    for pair in variable(FORCE)?.iter().flat_map(|text| text.split(',')) {
        let Some((call, algorithm)) = pair.split_once('=') else {
            return Err(Error::boot(format!(
                "{FORCE}: '{pair}' is not of the form call=algorithm"
            )));
        };
        let (kind, algorithm) = find(call.trim(), algorithm.trim())
            .map_err(|what| Error::boot(format!("{FORCE}: '{pair}': {what}")))?;
        forced.force(kind, algorithm);
    }
    Ok(forced)
}

/// What was measured for the ranks of a block in this process. The file is read once: whatever
/// becomes of it later, all ranks of this process know the same.
pub(crate) fn measured(mode: Mode, ranks: usize) -> Result<Option<&'static Section>> {
    static READ: OnceLock<std::result::Result<File, String>> = OnceLock::new();
    let read = READ.get_or_init(|| {
        File::load(std::env::var_os(TUNING).as_deref()).map_err(|error| match error {
            Error::Boot(boot) => boot.text,
            other => other.to_string(),
        })
    });
    match read {
        Ok(file) => Ok(file.section(mode, ranks)),
        Err(text) => Err(Error::boot(text.clone())),
    }
}

/// What the launcher hands on to process ranks: it has read the file, once for all of them.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "processes need Linux"))]
pub(crate) fn handed_on() -> Result<Option<Section>> {
    let Some(text) = variable(TUNED)? else { return Ok(None) };
    let section = Section::from_inline(&text);
    section.map(Some).map_err(|what| Error::boot(format!("{TUNED}={text}: {what}")))
}

/// What the launcher puts into the environment of a job's ranks, where `SPMD_TUNING` has this value
/// for them: the file's path from the root, if the variable names one, and, for process ranks, what
/// the file says of so many. Ranks that are one process read the file themselves.
///
/// Errors: the file makes no sense.
pub fn tuned(
    tuning: Option<&OsStr>,
    processes: bool,
    ranks: usize,
) -> Result<Vec<(&'static str, OsString)>> {
    let file = File::load(tuning)?;
    let mut set = Vec::new();
    if let (Some(value), Some(path)) = (tuning.filter(|value| !value.is_empty()), path(tuning)) {
        let path = std::path::absolute(path).map_or_else(|_| value.into(), OsString::from);
        set.push((TUNING, path));
    }
    if let Some(section) = file.section(Mode::Processes, ranks).filter(|_| processes) {
        set.push((TUNED, section.inline().into()));
    }
    Ok(set)
}

/// What `SPMD_TRACE` names. It may be no text.
pub(crate) fn trace_path() -> Option<PathBuf> {
    std::env::var_os(TRACE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// That of this process, once there is one.
static OPEN: Mutex<Option<Arc<Trace>>> = Mutex::new(None);

/// This process, which is joined to others, has this trace.
pub(crate) fn has_trace(trace: &Arc<Trace>) {
    OPEN.lock().get_or_insert_with(|| trace.clone());
}

/// The file of `SPMD_TRACE`, opened once a process: anew, unless the launcher has made it.
pub(crate) fn trace() -> Result<Option<Arc<Trace>>> {
    let Some(path) = trace_path() else { return Ok(None) };
    let mut open = OPEN.lock();
    if open.is_none() {
        let launched = variable(ARENA)?.is_some();
        *open = Some(Arc::new(Trace::new(TraceFile::open(&path, launched)?, 0)));
    }
    Ok(open.clone())
}

/// Begins the file of `SPMD_TRACE`, for the launcher: the processes of its job add to it.
///
/// Errors: it cannot be written.
pub fn begin_trace(path: &Path) -> Result<()> {
    TraceFile::open(path, false).map(drop)
}
