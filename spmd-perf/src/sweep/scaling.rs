//! How it scales: a picture for each benchmark, with time against ranks above and bandwidth against
//! size below, a line for each placement.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::placement::Placement;
use super::result::Record;
use crate::plot::axes;
use crate::plot::picture::{Cluster, Panel, Picture, Up};
use crate::plot::times_of_what;
use crate::report::Line;

/// kB/s in one GB/s.
const KILO: f64 = 1e6;

/// The results of a sweep, by the name under which they are drawn.
pub(crate) type Named = (String, Vec<Record>);

/// A line of results, and what it belongs to.
struct Found<'a> {
    label: String,
    placement: &'a Placement,
    line: &'a Line,
}

/// Draws each benchmark into a file of its own there, and gives the files.
///
/// Errors: one cannot be written.
pub(crate) fn draw(sweeps: &[Named], folder: &Path) -> Result<Vec<PathBuf>, String> {
    let names = Names::of(sweeps);
    let numbered = sweeps.iter().enumerate();
    let records = numbered.flat_map(|(number, (_, all))| all.iter().map(move |it| (number, it)));
    let good: Vec<(usize, &Record)> = records.filter(|(_, it)| it.error.is_none()).collect();
    let benches: BTreeSet<&str> = good.iter().map(|(_, it)| it.benchmark.as_str()).collect();
    let mut files = Vec::new();
    for bench in benches {
        let mut mine = good.clone();
        mine.retain(|(_, it)| it.benchmark == bench);
        mine.sort_by_key(|(number, it)| {
            let place = &it.placement;
            let kind = (place.transport.name(), place.mode.name(), place.ranks_per_process);
            (*number, kind, place.ranks_per_host, place.host_count())
        });
        let mut found = Vec::new();
        for (number, record) in mine {
            let placement = &record.placement;
            let label = names.label(&sweeps[number].0, placement);
            let lines = record.results.iter();
            found.extend(lines.map(|line| Found { label: label.clone(), placement, line }));
        }
        let file = folder.join(format!("{bench}.svg"));
        picture(bench, &found).write(&file)?;
        files.push(file);
    }
    Ok(files)
}

/// What sets lines apart in these results, and so belongs to their names.
struct Names {
    sweeps: bool,
    transports: bool,
    hosts: bool,
    /// Some host has several processes of several ranks each.
    shared_out: bool,
}

impl Names {
    fn of(sweeps: &[Named]) -> Names {
        let places = || sweeps.iter().flat_map(|(_, all)| all.iter().map(|it| &it.placement));
        let transports: BTreeSet<_> = places().map(|place| place.transport.name()).collect();
        let hosts = places().any(|place| place.host_count() > 1);
        let shared_out = places().any(Placement::is_shared_out);
        Names { sweeps: sweeps.len() > 1, transports: transports.len() > 1, hosts, shared_out }
    }

    fn label(&self, sweep: &str, place: &Placement) -> String {
        let parts = [
            self.sweeps.then(|| sweep.to_owned()),
            self.transports.then(|| place.transport.name().to_owned()),
            Some(place.shape(self.shared_out)),
            self.hosts.then(|| format!("{} a host", place.ranks_per_host)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// On several hosts, a line goes through the numbers of hosts, and each number of ranks on a host
/// has its own; on one, it goes through the numbers of ranks.
fn picture(bench: &str, found: &[Found]) -> Picture {
    let mut picture = Picture::default();
    let sizes: BTreeSet<usize> = found.iter().map(|it| it.line.bytes).collect();
    let ranks: BTreeSet<usize> = found.iter().map(|it| it.placement.ranks()).collect();
    let several_hosts = found.iter().any(|it| it.placement.host_count() > 1);
    let mut panels = Vec::new();
    for bytes in some(&common(found)) {
        let title = match bytes {
            0 => bench.to_owned(),
            _ => format!("{bench} of {}", axes::bytes(bytes)),
        };
        let mut panel = panel(bench, title, Cluster::Ranks);
        for it in found.iter().filter(|it| it.line.bytes == bytes) {
            let value = value(&panel, it.line);
            panel.points.push((picture.label(&it.label), it.placement.ranks(), value));
        }
        panels.push(panel);
    }
    if ranks.len() > 1 {
        picture.rows.push(panels);
    }
    let part = |it: &Found| match several_hosts {
        true => (it.placement.host_count(), "host"),
        false => (it.placement.ranks(), "rank"),
    };
    let parts: BTreeSet<_> = found.iter().map(part).collect();
    let mut panels = Vec::new();
    for (count, what) in parts.into_iter().filter(|_| sizes.len() > 1) {
        let plural = if count == 1 { "" } else { "s" };
        let mut panel = panel(bench, format!("{bench}, {count} {what}{plural}"), Cluster::Size);
        for it in found.iter().filter(|it| part(it) == (count, what)) {
            let value = value(&panel, it.line);
            panel.points.push((picture.label(&it.label), it.line.bytes, value));
        }
        panels.push(panel);
    }
    let all: Vec<f64> = panels.iter().flat_map(|it| &it.points).map(|(.., value)| *value).collect();
    panels.iter_mut().for_each(|panel| panel.held.clone_from(&all));
    picture.add_rows(panels);
    if picture.rows.is_empty() {
        // One size on one number of ranks: a point is all there is.
        let mut panel = panel(bench, bench.to_owned(), Cluster::Ranks);
        let points =
            found.iter().map(|it| (&it.label, it.placement.ranks(), value(&panel, it.line)));
        panel.points =
            points.map(|(label, ranks, value)| (picture.label(label), ranks, value)).collect();
        picture.rows.push(vec![panel]);
    }
    picture
}

/// An empty panel. Messages are seen as a rate; collectives, too, against their size.
fn panel(bench: &str, title: String, cluster: Cluster) -> Panel {
    let (up, what) = match (bench, cluster) {
        ("bandwidth" | "bidirectional" | "message-rate" | "isend", _) => (Up::Rate, "bandwidth"),
        ("barrier" | "latency", _) | (_, Cluster::Ranks) => (Up::Time, times_of_what(bench)),
        _ if bench.starts_with("overlap-") => (Up::Time, times_of_what(bench)),
        _ => (Up::Rate, "bus bandwidth"),
    };
    Panel { title, cluster, up, what, points: Vec::new(), held: Vec::new() }
}

fn value(panel: &Panel, line: &Line) -> f64 {
    if panel.up == Up::Time { line.p50_us } else { line.busbw_gbps * KILO }
}

/// The sizes that were measured in all placements, or all if there are none.
fn common(found: &[Found]) -> Vec<usize> {
    let all: BTreeSet<usize> = found.iter().map(|it| it.line.bytes).collect();
    let places: BTreeSet<String> = found.iter().map(|it| it.placement.name()).collect();
    let everywhere = |bytes: &usize| {
        let here = found.iter().filter(|it| it.line.bytes == *bytes);
        here.map(|it| it.placement.name()).collect::<BTreeSet<_>>().len() == places.len()
    };
    let common: Vec<usize> = all.iter().copied().filter(everywhere).collect();
    if common.is_empty() { all.into_iter().collect() } else { common }
}

/// The first, the middle and the last.
fn some(sizes: &[usize]) -> Vec<usize> {
    let mut chosen: Vec<usize> =
        [0, sizes.len() / 2, sizes.len().saturating_sub(1)].iter().map(|at| sizes[*at]).collect();
    chosen.dedup();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Bench;
    use crate::sweep::args::{Carrier, Mode};
    use crate::sweep::result::{Job, Settings};

    fn record(bench: Bench, hosts: usize, ranks: usize, mode: Mode) -> Record {
        let placement = Placement {
            transport: Carrier::Mpi,
            hosts: ["a", "b", "c", "d"][..hosts].iter().map(|name| (*name).to_owned()).collect(),
            ranks_per_host: ranks,
            mode,
            ranks_per_process: if mode == Mode::Processes { 1 } else { ranks },
        };
        let settings =
            Settings { sizes: vec![8, 64], seconds: 0.1, bind: "none".into(), env: vec![] };
        let mut record = Job { bench, placement, settings }.record();
        for bytes in [8, 4096, 1 << 20] {
            record.results.push(
                serde_json::from_value(serde_json::json!({
                    "collective": bench.name(), "ranks": hosts * ranks, "as": mode.name(),
                    "transport": "mpi", "bytes": bytes, "iterations": 100, "min_us": 1.0,
                    "avg_us": 2.0, "p50_us": 2.0, "p99_us": 3.0, "max_us": 4.0, "algbw_gbps": 1.0,
                    "busbw_gbps": 0.5, "wrong": 0, "memory": "vec", "type": "f64",
                }))
                .unwrap(),
            );
        }
        record
    }

    #[test]
    fn a_picture_for_each_benchmark() {
        let folder = tempfile::tempdir().unwrap();
        let mut records = Vec::new();
        for hosts in [1, 2, 4] {
            for mode in [Mode::Processes, Mode::Threads] {
                records.push(record(Bench::Allreduce, hosts, 4, mode));
                records.push(record(Bench::Latency, hosts, 4, mode));
            }
        }
        records[0].error = Some("it failed".into());
        let files = draw(&[(String::new(), records)], folder.path()).unwrap();
        let names: Vec<_> = files.iter().map(|it| it.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["allreduce.svg", "latency.svg"]);
        let svg = std::fs::read_to_string(&files[0]).unwrap();
        for text in
            ["allreduce of 4 KiB", "allreduce, 2 hosts", "threads, 4 a host", "bus bandwidth"]
        {
            assert!(svg.contains(&format!("\n{text}\n")), "{text} in {svg}");
        }
    }

    #[test]
    fn lines_and_panels() {
        let sweeps = [("one".to_owned(), vec![record(Bench::Allreduce, 1, 2, Mode::Threads)])];
        let names = Names::of(&sweeps);
        let placement = &sweeps[0].1[0].placement;
        assert_eq!(names.label("one", placement), "threads");
        let names = Names { sweeps: true, transports: true, hosts: true, shared_out: false };
        assert_eq!(names.label("one", placement), "one, mpi, threads, 2 a host");
        let line = |record: &Record| record.results[1].clone();
        let records = [2, 4].map(|ranks| record(Bench::Allreduce, 1, ranks, Mode::Threads));
        let lines = records.each_ref().map(line);
        let found: Vec<Found> = records
            .iter()
            .zip(&lines)
            .map(|(it, line)| Found { label: "threads".into(), placement: &it.placement, line })
            .collect();
        let picture = picture("allreduce", &found);
        assert_eq!(picture.rows.len(), 1);
        assert_eq!(picture.rows[0][0].points, [(0, 2, 2.0), (0, 4, 2.0)]);
        assert_eq!(some(&[8, 16, 32, 64]), [8, 32, 64]);
        assert_eq!(some(&[0]), [0]);
    }
}
