//! One trace of all processes, in the time of the first.
//!
//! While a block runs, each process but the first writes to a file of its own (`trace/part.rs`). At its end,
//! when all have left it, the first process takes what these hold, a piece of each at a time. If the job
//! fails, the files stay where they are.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::compare::exchange;
use super::joined::Cluster;
use super::traced::compare_clocks;
use crate::error::Result;
use crate::trace::{Alignment, Trace};
use crate::transport::fabric::{BlockLayout, NativeCollective, ProcessBlocks};

/// Most bytes that the first process takes at a time, of all together; and those that another one brings.
const PIECES: usize = 4 << 20;
const PIECE: RangeInclusive<usize> = 4 << 10..=64 << 10;

impl Cluster {
    /// Where this process writes its events to.
    pub(crate) fn trace(&self) -> Option<&Arc<Trace>> {
        self.traced.as_ref().map(|traced| &traced.trace)
    }

    /// Has the first process take what all have written. All call it together, if all have traces.
    pub(super) fn merge_trace(&self) -> Result<()> {
        let Some(traced) = self.traced.as_ref().filter(|traced| traced.start.is_some()) else {
            return Ok(());
        };
        let (trace, processes) = (&traced.trace, self.fabric.processes());
        // SAFETY: each step that is made here names memory that is there, as long as it says, until this
        // returns, and used by nobody else.
        let step = |step: NativeCollective<'_>| unsafe { self.make_with_all(step) };
        let end = compare_clocks(processes, &step)?;
        let alignment =
            traced.start.filter(|_| !traced.same_clock).map(|start| Alignment::new(start, end));
        let mut part = trace.part(alignment.as_ref());
        let most = (PIECES / processes).clamp(*PIECE.start(), *PIECE.end());
        loop {
            let piece = part.piece(most);
            let lengths = exchange(processes, &(piece.len() as u64), step)?;
            if lengths.iter().all(|length| *length == 0) {
                break;
            }
            let bytes: Vec<usize> = lengths.iter().map(|it| (*it as usize).min(most)).collect();
            let displacements: Vec<usize> = bytes
                .iter()
                .scan(0, |end, bytes| Some(std::mem::replace(end, *end + bytes)))
                .collect();
            let takes = self.fabric.process() == 0;
            let mut pieces = vec![0u8; if takes { bytes.iter().sum() } else { 0 }];
            let layout = BlockLayout::Listed { bytes: &bytes, displacements: &displacements };
            let recv = match takes {
                true => ProcessBlocks { memory: pieces.as_mut_ptr(), layout },
                false => ProcessBlocks::elsewhere(false),
            };
            step(NativeCollective::Gather { root: 0, send: (piece.as_ptr(), piece.len()), recv })?;
            if takes {
                let each = displacements.iter().zip(&bytes);
                each.for_each(|(at, bytes)| trace.add(&pieces[*at..at + bytes]));
            }
        }
        part.taken();
        Ok(())
    }
}
