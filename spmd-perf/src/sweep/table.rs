//! What is printed while a sweep runs: a line for each job that has ended.

use std::path::{Path, PathBuf};

use super::result::{Job, Record};
use crate::plot::axes::{bytes, height, rate, time};

/// Columns of a line, at most.
const WIDTH: usize = 120;

/// The jobs of a sweep, and what became of them.
pub(crate) struct Table {
    total: usize,
    ended: usize,
    failed: Vec<String>,
}

impl Table {
    pub(crate) fn begin(jobs: &[Job], left: usize) -> Table {
        let mut placements: Vec<_> = jobs.iter().map(|job| job.placement.name()).collect();
        placements.dedup();
        let (total, places) = (jobs.len(), placements.len());
        println!("# {total} jobs in {places} placements; {} were done before", total - left);
        if left > 0 {
            println!(
                "{:>9} {:>5} {:>8}  {:<21} {:<14} {:>15} {:>17} {:>10} {:>9}",
                "", "hosts", "per host", "ranks as", "benchmark", "smallest", "largest", "", "took"
            );
        }
        Table { total, ended: total - left, failed: Vec::new() }
    }

    pub(crate) fn line(&mut self, record: &Record) {
        self.ended += 1;
        println!("{}", self.text(record));
        if record.error.is_some() {
            self.failed.push(format!("{}-{}", record.benchmark, record.placement.name()));
        }
    }

    fn text(&self, record: &Record) -> String {
        let place = &record.placement;
        let begin = format!(
            "{:>9} {:>5} {:>8}  {:<21} {:<14}",
            format!("{}/{}", self.ended, self.total),
            place.host_count(),
            place.ranks_per_host,
            place.shape(place.is_shared_out()),
            record.benchmark
        );
        if let Some(error) = &record.error {
            let why = error.lines().next().unwrap_or("");
            return format!("{begin} FAILED: {why}").chars().take(WIDTH).collect();
        }
        let one = |line: &crate::report::Line| {
            let size = if line.bytes > 0 { bytes(line.bytes) } else { String::new() };
            format!("{size} {:>8}", time(height(line.p50_us)))
        };
        let (first, last) = (record.results.first(), record.results.last());
        let largest = last.filter(|_| record.results.len() > 1);
        let moved = largest.map(|line| rate(height(line.algbw_gbps * 1e6))).unwrap_or_default();
        format!(
            "{begin} {:>15} {:>17} {moved:>10} {:>7.1} s",
            first.map(one).unwrap_or_default(),
            largest.map(one).unwrap_or_default(),
            record.took_seconds
        )
    }

    /// Says what there is now.
    ///
    /// Errors: which jobs have failed.
    pub(crate) fn end(self, folder: &Path, pictures: &[PathBuf]) -> Result<(), String> {
        let folder = folder.display();
        println!(
            "# {} results and {} pictures in {folder}",
            self.ended - self.failed.len(),
            pictures.len()
        );
        if self.failed.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{} of {} jobs failed: {}; why is in their files in {folder}, as \"error\"; the same \
             command tries them again",
            self.failed.len(),
            self.total,
            self.failed.join(", ")
        ))
    }
}
