//! Latency against size as an SVG picture: a panel for each collective and number of ranks, in it
//! a line for each library or kind of ranks, algorithm and memory.

mod axes;

use std::fs;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;

use crate::report::Line;
use axes::{Sizes, Times};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Width and height of a panel.
const PANEL: (u32, u32) = (430, 330);
/// Panels beside each other, at most.
const COLUMNS: usize = 3;
const FONT: &str = "sans-serif";
/// Colours that most eyes tell apart (M. Okabe, K. Ito, "Color Universal Design", 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(160, 150, 30),
];

/// Draws what `--json` wrote into these files.
///
/// Errors: a file cannot be read, or holds other lines; the picture cannot be written.
pub(crate) fn draw_files(results: &[PathBuf], output: &Path) -> Result<(), String> {
    let mut lines = Vec::new();
    for file in results {
        let name = file.display();
        let text = fs::read_to_string(file).map_err(|e| format!("{name} cannot be read: {e}"))?;
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
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
    let mut picture = String::new();
    render(lines, &mut picture).map_err(|error| format!("cannot draw: {error}"))?;
    fs::write(output, picture).map_err(|e| format!("{} cannot be written: {e}", output.display()))
}

/// What is drawn into one panel.
struct Panel<'a> {
    title: String,
    lines: Vec<&'a Line>,
}

fn render(lines: &[Line], picture: &mut String) -> Drawn {
    let mut panels: Vec<Panel> = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    for line in lines {
        let title = format!("{}, {} ranks", line.collective, line.ranks);
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.lines.push(line),
            None => panels.push(Panel { title, lines: vec![line] }),
        }
        let label = label(line);
        if !labels.contains(&label) {
            labels.push(label);
        }
    }

    let columns = panels.len().min(COLUMNS);
    let rows = panels.len().div_ceil(columns);
    let (width, height) = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
    let legend = Legend::new(&labels, width);
    let size = (width, height + legend.height());
    let root = SVGBackend::with_string(picture, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(height);
    for (area, panel) in upper.split_evenly((rows, columns)).iter().zip(&panels) {
        panel.draw(area, &labels)?;
    }
    legend.draw(&lower)?;
    root.present()
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

impl Panel<'_> {
    fn draw(&self, area: &Area, labels: &[String]) -> Drawn {
        let sizes = Sizes::of(self.lines.iter().map(|line| line.bytes));
        let times = Times::of(self.lines.iter().map(|line| line.p50_us));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 18))
            .margin(8)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(sizes.clone(), times)?;
        chart
            .configure_mesh()
            .light_line_style(RGBColor(238, 238, 238))
            .bold_line_style(RGBColor(205, 205, 205))
            .label_style((FONT, 14))
            .x_label_formatter(&|x| sizes.text(*x))
            .y_label_formatter(&|y| axes::time(*y))
            .x_desc("size")
            .y_desc(self.times_of_what())
            .draw()?;
        for (index, wanted) in labels.iter().enumerate() {
            let mine = self.lines.iter().filter(|line| label(line) == *wanted);
            let mut points: Vec<(f64, f64)> =
                mine.map(|line| (axes::size(line.bytes), axes::height(line.p50_us))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let colour = colour(index);
            let dots = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
            chart.draw_series(dots)?;
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        }
        Ok(())
    }

    fn times_of_what(&self) -> &'static str {
        match self.lines[0].collective.as_str() {
            "latency" => "time one way, median",
            "bandwidth" | "bidirectional" | "message-rate" => "time of 64 messages, median",
            _ => "time of a call, median",
        }
    }
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// What the lines mean, below the panels, in columns of the same width.
struct Legend<'a> {
    labels: &'a [String],
    columns: usize,
    column_width: u32,
}

impl Legend<'_> {
    const ROW: u32 = 22;

    fn new(labels: &[String], width: u32) -> Legend<'_> {
        let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) as u32;
        // Wide enough for most fonts; how wide one really is, the viewer knows alone.
        let column_width = 60 + 9 * longest;
        let columns = (width / column_width).max(1) as usize;
        Legend { labels, columns, column_width }
    }

    fn height(&self) -> u32 {
        Legend::ROW * self.labels.len().div_ceil(self.columns) as u32 + 16
    }

    fn draw(&self, area: &Area) -> Drawn {
        for (index, label) in self.labels.iter().enumerate() {
            let x = 24 + (index % self.columns) as i32 * self.column_width as i32;
            let y = 12 + (index / self.columns) as i32 * Legend::ROW as i32;
            let colour = colour(index);
            area.draw(&PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2)))?;
            area.draw(&Circle::new((x + 12, y), 3, colour.filled()))?;
            area.draw(&Text::new(label.as_str(), (x + 32, y - 7), (FONT, 15)))?;
        }
        Ok(())
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
        let mut picture = String::new();
        render(&lines, &mut picture).unwrap();
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
            assert!(picture.contains(&format!("\n{text}\n")), "{text} in {picture}");
        }
    }
}
