//! What a process has written that another one takes into the file of all.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::clocks::Alignment;
use super::event::us;
use super::file::TraceFile;
use super::observer::Trace;

/// Begins every line.
const TIME: &str = "{\"ts\":";

/// Comes next in the line of a bar.
const BAR: &str = "\"ph\":\"X\",\"dur\":";

/// The nanoseconds of a time.
fn ns(time: &str) -> Option<u64> {
    let (whole, part) = time.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 1000 + part.parse::<u64>().ok()?)
}

/// Where the process whose first rank this is writes, if what the others have is to be in `path`: beside
/// that, or, on a host that has no such folder, among its temporary files.
pub(crate) fn path_of_part(path: &Path, first_rank: usize) -> PathBuf {
    let end = format!(".rank-{first_rank}");
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    match path.parent().filter(|folder| folder.as_os_str().is_empty() || folder.is_dir()) {
        Some(folder) => folder.join(name),
        None => std::env::temp_dir().join(name),
    }
}

/// The lines of such a file, as they are taken.
pub(crate) struct TracePart<'a> {
    file: &'a TraceFile,
    alignment: Option<&'a Alignment>,
    /// Nothing, of the process that takes all.
    lines: Option<BufReader<File>>,
    /// A line that was read before it had room.
    next: Option<String>,
}

impl<'a> TracePart<'a> {
    pub(super) fn new(
        file: &'a TraceFile,
        label: impl FnOnce(&Alignment) -> String,
        alignment: Option<&'a Alignment>,
    ) -> TracePart<'a> {
        let lines = file.is_part().then(|| file.reader()).flatten().map(BufReader::new);
        let next = alignment.filter(|_| lines.is_some()).map(label);
        TracePart { file, alignment, lines, next }
    }

    /// The next lines, of so many bytes at most. A longer one, which no call has, is left out.
    pub(crate) fn piece(&mut self, most: usize) -> String {
        let mut piece = String::new();
        while let Some(line) = self.next.take().or_else(|| self.read()) {
            if line.len() > most {
                continue;
            }
            if piece.len() + line.len() + 2 > most {
                self.next = Some(line);
                break;
            }
            if !piece.is_empty() {
                piece.push_str(",\n");
            }
            piece.push_str(&line);
        }
        piece
    }

    fn read(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.as_mut()?.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().trim_end_matches(',');
            if line.starts_with(TIME) {
                return Some(self.aligned(line));
            }
        }
    }

    /// The line with the time of the first process's clock.
    fn aligned(&self, line: &str) -> String {
        let shifted = || {
            let (time, rest) = line.strip_prefix(TIME)?.split_once(',')?;
            let (start, aligned) = (ns(time)?, |ns| self.alignment.map(|clock| clock.aligned(ns)));
            let at = aligned(start)?;
            let Some(bar) = rest.strip_prefix(BAR) else {
                return Some(format!("{TIME}{},{rest}", us(at)));
            };
            // Its end as well, or bars that follow each other would overlap.
            let (time, rest) = bar.split_once(',')?;
            let took = aligned(start.saturating_add(ns(time)?))?.saturating_sub(at);
            Some(format!("{TIME}{},{BAR}{},{rest}", us(at), us(took)))
        };
        shifted().unwrap_or_else(|| line.into())
    }

    /// All of it is in the file of all.
    pub(crate) fn taken(self) {
        if self.lines.is_some() {
            self.file.remove();
        }
    }
}

impl Trace {
    /// What this process has written, in the time of another clock.
    pub(crate) fn part<'a>(&'a self, alignment: Option<&'a Alignment>) -> TracePart<'a> {
        self.flush();
        TracePart::new(&self.file, |alignment| self.rows.label(alignment), alignment)
    }

    /// Adds lines of another process.
    pub(crate) fn add(&self, lines: &[u8]) {
        self.file.write(&String::from_utf8_lossy(lines));
    }
}
