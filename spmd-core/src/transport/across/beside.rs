//! Which processes use the same cores as this one.

use crate::block::allowed_cores;
use crate::error::Result;
use crate::transport::fabric::{Extents, Fabric, Parts, Processes, Step};

/// The cores that a process may use, a bit for each; those of larger numbers are not told.
type Cores = [u64; WORDS];
const WORDS: usize = 16;

/// How many processes may use cores of this one, itself among them. All processes call it together.
///
/// Launchers bind processes to cores, of which there may be fewer than processes.
pub(super) fn processes(fabric: &dyn Fabric, all: &dyn Processes) -> Result<usize> {
    let mut mine = Cores::default();
    for core in allowed_cores().into_iter().filter(|core| *core < 64 * WORDS) {
        mine[core / 64] |= 1 << (core % 64);
    }
    let mut theirs = vec![Cores::default(); fabric.processes()];
    let (memory, bytes) = (theirs.as_mut_ptr().cast(), size_of::<Cores>());
    let recv = Parts { memory, extents: Extents::Equal(bytes) };
    // SAFETY: `mine` has that many bytes, and `theirs` as many for each process.
    unsafe { all.run(Step::Allgather { send: (mine.as_ptr().cast(), bytes), recv })? };
    let me = fabric.process();
    let beside = |process: &usize| {
        let common = mine.iter().zip(theirs[*process]).any(|(mine, theirs)| mine & theirs != 0);
        *process == me || (fabric.hosts()[*process] == fabric.hosts()[me] && common)
    };
    Ok((0..fabric.processes()).filter(beside).count())
}
