//! `spmd-perf compare`: several sweeps in the same pictures, and their times as ratios.

use std::fs;
use std::path::{Path, PathBuf};

use super::result::Record;
use super::scaling::{self, Named};
use crate::plot::axes::{bytes, height, three_digits, time};
use crate::report::Line;

/// Draws all of these sweeps into pictures there, and prints a table: the time of the first, and
/// how many times as long each other took.
///
/// Errors: a folder cannot be read or has no results; the pictures cannot be written.
pub(crate) fn compare(folders: &[PathBuf], out: &Path) -> Result<(), String> {
    let sweeps = folders.iter().map(|folder| named(folder)).collect::<Result<Vec<_>, _>>()?;
    fs::create_dir_all(out).map_err(|error| format!("--out {}: {error}", out.display()))?;
    let pictures = scaling::draw(&sweeps, out)?;
    print!("{}", table(&sweeps));
    println!("# {} pictures in {}", pictures.len(), out.display());
    Ok(())
}

/// What a folder holds, under its own name.
fn named(folder: &Path) -> Result<Named, String> {
    let mut records = Record::all(folder)?;
    records.retain(|record| record.error.is_none());
    if records.is_empty() {
        return Err(format!("{} holds no results of spmd-perf sweep", folder.display()));
    }
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok((name.unwrap_or_else(|| folder.display().to_string()), records))
}

/// A line for each size of each job of the first sweep.
fn table(sweeps: &[Named]) -> String {
    let Some((first, others)) = sweeps.split_first() else { return String::new() };
    let mut text = format!("{:<40} {:>8} {:>12}", "", "size", first.0);
    others.iter().for_each(|(name, _)| text += &format!(" {name:>12}"));
    text.push('\n');
    let mut records: Vec<&Record> = first.1.iter().collect();
    records.sort_by_key(|it| (&it.benchmark, it.placement.ranks(), it.placement.name()));
    for record in records {
        for line in &record.results {
            let size = if line.bytes > 0 { bytes(line.bytes) } else { String::new() };
            let what = format!("{} {}", record.benchmark, record.placement.name());
            text += &format!("{what:<40} {size:>8} {:>12}", time(height(line.p50_us)));
            for (_, others) in others {
                let ratio = same(others, record, line).map(|other| other.p50_us / line.p50_us);
                let ratio = ratio.map_or("-".into(), three_digits);
                text += &format!(" {ratio:>12}");
            }
            text.push('\n');
        }
    }
    text
}

/// The result of the same measurement in another sweep.
fn same<'a>(others: &'a [Record], record: &Record, line: &Line) -> Option<&'a Line> {
    let is_same = |it: &&Record| {
        it.benchmark == record.benchmark && it.placement.name() == record.placement.name()
    };
    let other = others.iter().find(is_same)?;
    other.results.iter().find(|it| it.bytes == line.bytes)
}
