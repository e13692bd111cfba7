//! What a job of a sweep gave: a file each, written whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::placement::Placement;
use crate::bench::Bench;
use crate::describe::Machine;
use crate::report::Line;

/// The form of these files.
const FORMAT: u32 = 1;

/// One benchmark in one placement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    format: u32,
    pub(crate) benchmark: String,
    pub(crate) placement: Placement,
    pub(crate) settings: Settings,
    /// What was started.
    pub(crate) command: String,
    /// When, in seconds since 1970.
    pub(crate) started: u64,
    pub(crate) took_seconds: f64,
    /// Why there are no results, or why they are not to be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    pub(crate) results: Vec<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Machine>,
    /// What `spmdrun --doctor` says of MPI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) launcher: Vec<String>,
    /// Variables of spmd, of MPI libraries and of their networks that were set.
    pub(crate) variables: BTreeMap<String, String>,
}

/// What changes a result, besides its placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) sizes: Vec<usize>,
    pub(crate) seconds: f64,
    pub(crate) bind: String,
    pub(crate) env: Vec<String>,
}

/// One thing to measure, and where its result belongs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) bench: Bench,
    pub(crate) placement: Placement,
    pub(crate) settings: Settings,
}

impl Job {
    pub(crate) fn file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-{}.json", self.bench.name(), self.placement.name()))
    }

    /// A record of it, without results.
    pub(crate) fn record(&self) -> Record {
        Record {
            format: FORMAT,
            benchmark: self.bench.name(),
            placement: self.placement.clone(),
            settings: self.settings.clone(),
            command: String::new(),
            started: 0,
            took_seconds: 0.0,
            error: None,
            results: Vec::new(),
            machine: None,
            launcher: Vec::new(),
            variables: BTreeMap::new(),
        }
    }

    /// What was measured of it before; nothing if it failed then.
    ///
    /// Errors: something else is there, or it was measured with other settings.
    pub(crate) fn known(&self, folder: &Path) -> Result<Option<Record>, String> {
        let file = self.file(folder);
        if !file.exists() {
            return Ok(None);
        }
        let record = Record::read(&file)?;
        if record.error.is_some() {
            return Ok(None);
        }
        match difference(&record.settings, &self.settings) {
            None => Ok(Some(record)),
            Some((name, then, now)) => Err(format!(
                "{} was measured with {name} {then}, and now it is {now}; give the same, or \
                 another --out",
                file.display()
            )),
        }
    }
}

/// The first setting that differs.
fn difference(then: &Settings, now: &Settings) -> Option<(String, Value, Value)> {
    let fields = |settings| match serde_json::to_value(settings) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let now = fields(now);
    let differing = |(name, value): &(String, Value)| now.get(name) != Some(value);
    let (name, value) = fields(then).into_iter().find(differing)?;
    let other = now.get(&name).cloned().unwrap_or_default();
    Some((name, value, other))
}

impl Record {
    /// Errors: the file cannot be read, or is none of these.
    pub(crate) fn read(file: &Path) -> Result<Record, String> {
        let shown = file.display();
        let text =
            fs::read_to_string(file).map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let record: Record = serde_json::from_str(&text).map_err(|error| {
            format!("{shown} is no result of spmd-perf sweep ({error}); move it away")
        })?;
        match record.format {
            FORMAT => Ok(record),
            other => Err(format!(
                "{shown} has the format {other}, and this version of spmd-perf writes {FORMAT}; use \
                 another --out"
            )),
        }
    }

    /// All of a folder.
    ///
    /// Errors: it cannot be read, or one of its `.json` files is none of these.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Record>, String> {
        let shown = folder.display();
        let entries = fs::read_dir(folder).map_err(|e| format!("{shown} cannot be read: {e}"))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|it| it == "json"));
        files.sort();
        files.iter().map(|file| Record::read(file)).collect()
    }

    /// Writes it beside its place, and then moves it there: whoever looks sees all of it or
    /// nothing.
    ///
    /// Errors: it cannot be written.
    pub(crate) fn write(&self, file: &Path) -> Result<(), String> {
        let part = file.with_extension("part");
        let written = || -> std::io::Result<()> {
            let text = serde_json::to_string_pretty(self)?;
            let mut new = fs::File::create(&part)?;
            new.write_all(text.as_bytes())?;
            new.write_all(b"\n")?;
            new.sync_all()?;
            fs::rename(&part, file)
        };
        written().map_err(|error| format!("{} cannot be written: {error}", file.display()))
    }

    /// Why its figures are not to be drawn beside those of another as if they were of one sweep:
    /// they are of another library, or of another build of this program.
    pub(crate) fn differs_from(&self, other: &Record) -> Option<String> {
        let facts = |it: &Record| {
            let machine = it.machine.clone()?;
            let library = machine.library.unwrap_or_default();
            Some([library, format!("spmd-perf {}", machine.spmd_perf), machine.rustc])
        };
        let (mine, others) = (facts(self)?, facts(other)?);
        let (mine, others) = mine.iter().zip(&others).find(|(mine, others)| mine != others)?;
        Some(format!(
            "it ran with {mine}, and what is here already with {others}; use another --out for one \
             of the two, and spmd-perf compare"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::args::{Carrier, Mode};

    fn job() -> Job {
        let placement = Placement {
            transport: Carrier::Shm,
            hosts: Vec::new(),
            ranks_per_host: 2,
            mode: Mode::Threads,
            ranks_per_process: 2,
        };
        let settings =
            Settings { sizes: vec![8], seconds: 0.1, bind: "none".into(), env: Vec::new() };
        Job { bench: Bench::Allreduce, placement, settings }
    }

    #[test]
    fn what_is_there_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut job = job();
        assert!(job.known(folder.path()).unwrap().is_none());
        let file = job.file(folder.path());
        let mut record = job.record();
        record.write(&file).unwrap();
        assert!(job.known(folder.path()).unwrap().is_some());
        assert_eq!(Record::all(folder.path()).unwrap().len(), 1);

        job.settings.seconds = 0.2;
        let told = job.known(folder.path()).unwrap_err();
        assert!(told.contains("seconds 0.1, and now it is 0.2"), "{told}");

        record.error = Some("a rank failed".into());
        record.write(&file).unwrap();
        assert!(job.known(folder.path()).unwrap().is_none());

        fs::write(&file, "{}").unwrap();
        let told = job.known(folder.path()).unwrap_err();
        assert!(told.contains("no result of spmd-perf sweep"), "{told}");
        record.error = None;
        record.format = 7;
        record.write(&file).unwrap();
        assert!(job.known(folder.path()).unwrap_err().contains("the format 7"));
    }

    #[test]
    fn a_folder_that_cannot_be_written() {
        let file = job().file(Path::new("/no/such/folder"));
        let told = job().record().write(&file).unwrap_err();
        assert!(told.contains("cannot be written"), "{told}");
    }
}
