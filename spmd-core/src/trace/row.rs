//! A row in which somebody is shown.

use std::ops::Range;
use std::sync::Arc;

use super::observer::Trace;

/// A row, until this is dropped.
pub(super) struct Row {
    pub(super) trace: Arc<Trace>,
    name: String,
    pub(super) number: u32,
}

impl Row {
    pub(super) fn open(trace: Arc<Trace>, name: String) -> Row {
        let number = trace.rows.open(&name, None);
        Row { trace, name, number }
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        self.trace.rows.close(&self.name, self.number);
    }
}

/// The row of a rank. When this is dropped, at the end of its block, all is in the file that the rank has
/// done.
pub(crate) struct RankRow(Row);

impl RankRow {
    fn open(trace: Arc<Trace>, rank: usize) -> RankRow {
        let name = format!("rank {rank}");
        let number = trace.rows.open(&name, Some(rank as u32));
        RankRow(Row { trace, name, number })
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }
}

impl Drop for RankRow {
    fn drop(&mut self) {
        self.0.trace.flush();
    }
}

impl Trace {
    /// The row of a rank, of these in its process, as long as what this gives lives.
    pub(crate) fn rank_row(self: &Arc<Trace>, rank: usize, ranks: &Range<usize>) -> RankRow {
        self.rows.name_process(ranks);
        RankRow::open(self.clone(), rank)
    }
}
