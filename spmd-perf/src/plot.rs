//! Latency against size as an SVG picture: a panel for each collective and number of ranks, in it
//! a line for each library or kind of ranks, algorithm and memory.

pub(crate) mod axes;
pub(crate) mod picture;

use std::fs;
use std::path::{Path, PathBuf};

use crate::describe;
use crate::report::Line;
use picture::{Cluster, Panel, Picture, Up};

/// Draws what `--json` wrote into these files.
///
/// Errors: a file cannot be read, or holds other lines; the picture cannot be written.
pub(crate) fn draw_files(results: &[PathBuf], output: &Path) -> Result<(), String> {
    let mut lines = Vec::new();
    for file in results {
        let name = file.display();
        let text = fs::read_to_string(file).map_err(|e| format!("{name} cannot be read: {e}"))?;
        let is_result = |line: &str| !line.is_empty() && !describe::is_description(line);
        for (index, line) in text.lines().enumerate().filter(|(_, line)| is_result(line)) {
            let line: Line = serde_json::from_str(line).map_err(|error| {
                format!("{name}:{}: not a line that --json writes: {error}", index + 1)
            })?;
            lines.push(line);
        }
    }
    draw(&lines, output)
}

/// Draws these results.
///
/// Errors: there are none; the picture cannot be written.
pub(crate) fn draw(lines: &[Line], output: &Path) -> Result<(), String> {
    if lines.is_empty() {
        return Err("there are no results to draw".into());
    }
    picture(lines).write(output)
}

fn picture(lines: &[Line]) -> Picture {
    let mut picture = Picture::default();
    let mut panels: Vec<Panel> = Vec::new();
    for line in lines {
        let title = format!("{}, {} ranks", line.collective, line.ranks);
        let at = panels.iter().position(|panel| panel.title == title).unwrap_or_else(|| {
            let what = times_of_what(&line.collective);
            let (cluster, up) = (Cluster::Size, Up::Time);
            panels.push(Panel { title, cluster, up, what, points: Vec::new(), held: Vec::new() });
            panels.len() - 1
        });
        panels[at].points.push((picture.label(&label(line)), line.bytes, line.p50_us));
    }
    picture.add_rows(panels);
    picture
}

/// What a line of the picture is called: what sets these results apart.
fn label(line: &Line) -> String {
    let mut label = match &line.library {
        Some(library) => library.clone(),
        None => format!("spmd, {}", line.mode),
    };
    let transport = Some(&line.transport).filter(|transport| *transport != "shm");
    let memory = Some(&line.memory).filter(|memory| *memory != "vec");
    for part in [transport, line.algorithm.as_ref(), memory].into_iter().flatten() {
        label.push_str(", ");
        label.push_str(part);
    }
    label
}

/// What the times of a bench are times of.
pub(crate) fn times_of_what(bench: &str) -> &'static str {
    match bench {
        "latency" => "time one way, median",
        "bandwidth" | "bidirectional" | "message-rate" | "isend" => "time of 64 messages, median",
        _ if bench.starts_with("overlap-") => "time of call and computation together, median",
        _ => "time of a call, median",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        let mut line: serde_json::Value = serde_json::json!({
            "collective": "allreduce", "ranks": 2, "as": "threads", "transport": "shm",
            "bytes": 8, "iterations": 100, "min_us": 0.1, "avg_us": 0.2, "p50_us": 0.2,
            "p99_us": 0.3, "max_us": 0.4, "algbw_gbps": 1.0, "busbw_gbps": 1.0, "wrong": 0,
            "memory": "vec", "type": "f64",
        });
        let serde_json::Value::Object(changes) = serde_json::from_str(text).unwrap() else {
            panic!("an object");
        };
        line.as_object_mut().unwrap().extend(changes);
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn each_panel_and_line_is_drawn() {
        let lines = [
            line("{}"),
            line(r#"{"bytes": 1048576, "p50_us": 100.0}"#),
            line(r#"{"library": "Open MPI 5", "as": "processes"}"#),
            line(r#"{"collective": "barrier", "bytes": 0, "memory": "shared"}"#),
            line(r#"{"ranks": 16, "algorithm": "ring"}"#),
        ];
        let mut svg = String::new();
        picture(&lines).render(&mut svg).unwrap();
        for text in [
            "allreduce, 2 ranks",
            "allreduce, 16 ranks",
            "barrier, 2 ranks",
            "spmd, threads",
            "spmd, threads, shared",
            "spmd, threads, ring",
            "Open MPI 5",
            "8 B",
            "1 MiB",
            "100 µs",
        ] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text} in {svg}");
        }
    }
}
