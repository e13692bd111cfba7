//! What a process has of the trace of a job: a file of its own, and how its clock goes.

use std::path::Path;
use std::sync::Arc;

use super::compare::exchange;
use crate::error::Result;
use crate::trace::{Ahead, Readings, Trace, TraceFile, path_of_part};
use crate::transport::fabric::{Fabric, NativeCollective};

/// Meetings by which clocks are compared: the shortest count.
const MEETINGS: usize = 24;

/// What a process writes to.
#[derive(Clone)]
pub(super) struct Traced {
    pub(super) trace: Arc<Trace>,
    /// How its clock went when it was joined, if all processes have traces.
    pub(super) start: Option<Ahead>,
    /// It has the clock of the first process.
    pub(super) same_clock: bool,
}

impl Traced {
    /// Of a process with so many ranks: the first one has the file of this name, the others one each.
    ///
    /// Errors: it cannot be written.
    pub(super) fn open(path: &Path, fabric: &dyn Fabric, each: usize) -> Result<Traced> {
        let (process, hosts) = (fabric.process(), fabric.hosts());
        let file = match process {
            0 => TraceFile::open(path, false)?,
            _ => TraceFile::open_part(&path_of_part(path, process * each))?,
        };
        // Nothing is known of simulated ones.
        let (same_clock, host) = match fabric.simulated() {
            Some(_) => (process == 0, process as u32),
            None => (hosts[process] == hosts[0], hosts[process]),
        };
        Ok(Traced { trace: Arc::new(Trace::new(file, host)), start: None, same_clock })
    }
}

/// How far the clock of this process is ahead of the first one's. All call it together; `step` makes a
/// step with all.
pub(super) fn compare_clocks(
    processes: usize,
    step: &dyn Fn(NativeCollective<'_>) -> Result<()>,
) -> Result<Ahead> {
    let mut own: Vec<Readings> = Vec::new();
    for _ in 0..MEETINGS {
        let before = Trace::now();
        step(NativeCollective::Barrier)?;
        own.push((before, Trace::now()));
    }
    let all = exchange(processes, &own, step)?;
    Ok(Ahead::of(&own, &all[0]))
}
