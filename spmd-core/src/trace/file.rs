//! The file to which the ranks of a job write: a list, to which any process adds.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::fault::print;

/// The file that all ranks of a job write to, or, where processes do not share their files, those of one.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    /// Another process takes it over.
    is_part: bool,
    /// Locked against other ranks of this process; the file's own lock is against other processes. There
    /// is none when it has been taken over.
    file: Mutex<Option<File>>,
}

/// A trace without calls.
const EMPTY: &str = "[\n]\n";
/// The end of every other one.
const END: &str = "\n]\n";

impl TraceFile {
    /// Opens the file: anew, or, where others of the same job write to it (`shared`), to add to
    /// the list that is there.
    ///
    /// Errors: it cannot be written.
    pub(crate) fn open(path: &Path, shared: bool) -> Result<TraceFile> {
        let file = begin(path, shared);
        let file = file.map_err(|error| {
            Error::system(format!("writing the trace {}", path.display()), error)
        })?;
        Ok(TraceFile { path: path.into(), is_part: false, file: Mutex::new(Some(file)) })
    }

    /// The same for what one process writes, until another one takes it over.
    ///
    /// Errors: as [`TraceFile::open`].
    pub(crate) fn open_part(path: &Path) -> Result<TraceFile> {
        Ok(TraceFile { is_part: true, ..TraceFile::open(path, false)? })
    }

    pub(super) fn is_part(&self) -> bool {
        self.is_part
    }

    /// What is there, from the start.
    pub(super) fn reader(&self) -> Option<File> {
        File::open(&self.path).ok()
    }

    /// It is gone, until something is written again.
    pub(super) fn remove(&self) {
        *self.file.lock() = None;
        // If it stays, it is begun anew.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Adds lines to the list, which they take a comma and an end of line between.
    pub(crate) fn write(&self, lines: &str) {
        if lines.is_empty() {
            return;
        }
        let mut file = self.file.lock();
        let file = match &mut *file {
            Some(file) => Ok(file),
            none => begin(&self.path, false).map(|file| none.insert(file)),
        };
        if let Err(error) = file.and_then(|file| locked(file, |file| add(file, lines))) {
            print(format_args!("the trace {} is not complete: {error}", self.path.display()));
        }
    }
}

fn begin(path: &Path, shared: bool) -> io::Result<File> {
    let mut options = File::options();
    let mut file = options.create(true).truncate(false).read(true).write(true).open(path)?;
    locked(&mut file, |file| {
        if !shared {
            file.set_len(0)?;
        }
        if file.metadata()?.len() == 0 { file.write_all(EMPTY.as_bytes()) } else { Ok(()) }
    })?;
    Ok(file)
}

/// Does something with the file that other processes must not do meanwhile, where the file system
/// can see to that.
fn locked(file: &mut File, work: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let has_lock = file.lock().is_ok();
    let outcome = work(file);
    if has_lock {
        file.unlock()?;
    }
    outcome
}

fn add(file: &mut File, lines: &str) -> io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    let (before, start) = match length == EMPTY.len() as u64 {
        true => ("", 2),
        false => (",\n", length.saturating_sub(END.len() as u64)),
    };
    let mut end = String::new();
    file.seek(SeekFrom::Start(length.saturating_sub(END.len() as u64)))?;
    file.read_to_string(&mut end)?;
    if end != END {
        return Err(io::Error::other("something else has been written to it"));
    }
    file.seek(SeekFrom::Start(start))?;
    file.write_all(format!("{before}{lines}{END}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_whole_after_every_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("\"odd\\\n");
        let read = || std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "[1").unwrap();
        let first = TraceFile::open(&path, false).unwrap();
        assert_eq!(read(), "[\n]\n");
        first.write("1");
        let second = TraceFile::open(&path, true).unwrap();
        second.write("2,\n3");
        first.write("");
        first.write("4");
        assert_eq!(read(), "[\n1,\n2,\n3,\n4\n]\n");
        // Nothing is added to what is no trace.
        std::fs::write(&path, "mine").unwrap();
        first.write("5");
        assert_eq!(read(), "mine");
    }
}
