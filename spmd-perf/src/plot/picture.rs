//! A picture of several panels with one legend, as SVG.

use std::fs;
use std::path::Path;

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;

use super::axes::{self, Decades, Steps};

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

/// What lies along the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cluster {
    Size,
    Ranks,
}

/// What lies along the vertical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Up {
    /// In µs.
    Time,
    /// In kB/s.
    Rate,
}

/// One diagram.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) cluster: Cluster,
    pub(crate) up: Up,
    /// What the vertical axis is called.
    pub(crate) what: &'static str,
    /// Number of a label, and a point of its line.
    pub(crate) points: Vec<(usize, usize, f64)>,
    /// Values that the vertical axis must hold besides, so that panels can be compared.
    pub(crate) held: Vec<f64>,
}

/// Rows of panels, and the labels of the lines in them.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    pub(crate) rows: Vec<Vec<Panel>>,
    pub(crate) labels: Vec<String>,
}

impl Picture {
    /// The number of a label, which is added if it is new.
    pub(crate) fn label(&mut self, label: &str) -> usize {
        self.labels.iter().position(|known| known == label).unwrap_or_else(|| {
            self.labels.push(label.to_owned());
            self.labels.len() - 1
        })
    }

    /// Adds these panels below the others.
    pub(crate) fn add_rows(&mut self, mut panels: Vec<Panel>) {
        while !panels.is_empty() {
            let rest = panels.split_off(panels.len().min(COLUMNS));
            self.rows.push(std::mem::replace(&mut panels, rest));
        }
    }

    /// Errors: it cannot be drawn, or the file not be written.
    pub(crate) fn write(&self, output: &Path) -> Result<(), String> {
        let mut svg = String::new();
        self.render(&mut svg).map_err(|error| format!("cannot draw: {error}"))?;
        fs::write(output, svg).map_err(|e| format!("{} cannot be written: {e}", output.display()))
    }

    pub(super) fn render(&self, svg: &mut String) -> Drawn {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let width = PANEL.0 * columns as u32;
        let height = PANEL.1 * self.rows.len() as u32;
        let legend = Legend::new(&self.labels, width);
        let root = SVGBackend::with_string(svg, (width, height + legend.height()));
        let root = root.into_drawing_area();
        root.fill(&WHITE)?;
        let (upper, lower) = root.split_vertically(height);
        let areas = upper.split_evenly((self.rows.len(), columns));
        for (row, areas) in self.rows.iter().zip(areas.chunks(columns)) {
            for (panel, area) in row.iter().zip(areas) {
                panel.draw(area, self.labels.len())?;
            }
        }
        legend.draw(&lower)?;
        root.present()
    }
}

impl Panel {
    fn draw(&self, area: &Area, labels: usize) -> Drawn {
        let steps = Steps::of(self.points.iter().map(|(_, step, _)| *step));
        let values = self.points.iter().map(|(.., value)| value).chain(&self.held);
        let decades = Decades::of(values.map(|value| axes::height(*value)));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 18))
            .margin(8)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(steps.clone(), decades)?;
        chart
            .configure_mesh()
            .light_line_style(RGBColor(238, 238, 238))
            .bold_line_style(RGBColor(205, 205, 205))
            .label_style((FONT, 14))
            .x_label_formatter(&|x| match self.cluster {
                Cluster::Size => axes::bytes(steps.at(*x)),
                Cluster::Ranks => steps.at(*x).to_string(),
            })
            .y_label_formatter(&|y| match self.up {
                Up::Time => axes::time(*y),
                Up::Rate => axes::rate(*y),
            })
            .x_desc(match self.cluster {
                Cluster::Size => "size",
                Cluster::Ranks => "ranks",
            })
            .y_desc(self.what)
            .draw()?;
        for index in 0..labels {
            let mine = self.points.iter().filter(|(label, ..)| *label == index);
            let mut points: Vec<(f64, f64)> =
                mine.map(|(_, step, value)| (axes::place(*step), axes::height(*value))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let style = colour(index).stroke_width(2);
            if is_dashed(index) {
                chart.draw_series(DashedLineSeries::new(points.clone(), 6, 4, style))?;
            } else {
                chart.draw_series(LineSeries::new(points.clone(), style))?;
            }
            let dots = points.into_iter().map(|at| Circle::new(at, 3, colour(index).filled()));
            chart.draw_series(dots)?;
        }
        Ok(())
    }
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Lines beyond the number of colours.
fn is_dashed(index: usize) -> bool {
    index / COLOURS.len() % 2 == 1
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
            let pieces: &[(i32, i32)] =
                if is_dashed(index) { &[(0, 8), (16, 24)] } else { &[(0, 24)] };
            for (from, to) in pieces {
                let piece = [(x + from, y), (x + to, y)];
                area.draw(&PathElement::new(piece, colour.stroke_width(2)))?;
            }
            area.draw(&Circle::new((x + 12, y), 3, colour.filled()))?;
            area.draw(&Text::new(label.as_str(), (x + 32, y - 7), (FONT, 15)))?;
        }
        Ok(())
    }
}
