//! What processes tell each other when they join.

use crate::affinity::allowed_cores;
use crate::error::Result;
use crate::transport::fabric::{
    BlockLayout, Fabric, NativeCollective, ProcessBlocks, ProcessGroup,
};

/// The cores that a process may use, a bit for each; those of larger numbers are not told.
type Cores = [u64; WORDS];
const WORDS: usize = 16;

/// What one process tells.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct JoinInfo {
    cores: Cores,
    window: u64,
    /// Whether it has a trace.
    traced: u64,
}

/// What this process knows from all.
#[derive(Clone, Copy)]
pub(super) struct JoinExchange {
    /// How many processes may use cores of this one, itself among them. Launchers bind processes to
    /// cores, of which there may be fewer than processes.
    pub(super) beside: usize,
    /// The least window for which any of them has been set. A receiver that knew a larger one than
    /// its sender would tell too late what it has received.
    pub(super) window: usize,
    /// Whether all have a trace.
    pub(super) traced: bool,
}

impl JoinExchange {
    /// All processes call it together.
    pub(super) fn new(
        fabric: &dyn Fabric,
        all: &dyn ProcessGroup,
        window: usize,
        traced: bool,
    ) -> Result<JoinExchange> {
        let (window_told, traced) = (window as u64, u64::from(traced));
        let mut mine = JoinInfo { window: window_told, traced, ..JoinInfo::default() };
        for core in allowed_cores().into_iter().filter(|core| *core < 64 * WORDS) {
            mine.cores[core / 64] |= 1 << (core % 64);
        }
        let mut theirs = vec![JoinInfo::default(); fabric.processes()];
        let (memory, bytes) = (theirs.as_mut_ptr().cast(), size_of::<JoinInfo>());
        let recv = ProcessBlocks { memory, layout: BlockLayout::Equal(bytes) };
        let send = (&raw const mine).cast();
        // SAFETY: `mine` has that many bytes, none of them padding, and `theirs` as many for each
        // process, of which any bytes are values.
        unsafe { all.run(NativeCollective::Allgather { send: (send, bytes), recv })? };
        let me = fabric.process();
        let beside = |process: &usize| {
            let both = mine.cores.iter().zip(theirs[*process].cores);
            let common = both.into_iter().any(|(mine, theirs)| mine & theirs != 0);
            *process == me || (fabric.hosts()[*process] == fabric.hosts()[me] && common)
        };
        let beside = (0..fabric.processes()).filter(beside).count();
        let windows = theirs.iter().map(|told| told.window as usize);
        let traced = theirs.iter().all(|told| told.traced == 1);
        Ok(JoinExchange { beside, window: windows.fold(window, usize::min), traced })
    }
}
