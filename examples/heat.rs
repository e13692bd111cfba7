//! A hotplate warms up: heat diffuses from a spiral heating wire over a square plate.
//!
//!     cargo run --release --example heat [--hidden] [size [steps [picture.png]]]
//!
//! The plate is cut into tiles, one for each rank of a two-dimensional Cartesian communicator. In
//! each step a rank needs the edges of its four neighbours' tiles (a halo): edge columns are sent
//! as strided views, straight from the tile. The plate is a torus: what leaves on one side comes
//! in on the other, so that all heat stays, and every rank has four neighbours.
//!
//! With `--hidden` it is simulated once more, with the halo on its way while a rank computes the
//! cells that need none of it, and told how much time that saves.

use std::f64::consts::TAU;
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use spmd::prelude::*;

/// Share of the difference to its neighbours that flows into a cell in a step; stable up to 0.25.
const FLOW: f64 = 0.2;

/// When a rank gets its halo.
#[derive(Clone, Copy)]
enum Exchange {
    /// Before it computes.
    First,
    /// While it computes the cells that need none of it.
    Hidden,
}

fn main() -> Result<()> {
    let (options, arguments): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let hidden = match &options[..] {
        [] => false,
        [option] if option == "--hidden" => true,
        other => return Err(format!("{other:?}: the only option is --hidden").into()),
    };
    let mut arguments = arguments.into_iter();
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let (size, steps) = (number(720)?, number(1600)?);
    let picture = arguments.next().unwrap_or("heat.png".into());

    spmd::run(|ctx| {
        // One bar for all ranks; it hides itself where there is no terminal.
        let bar = match ctx.rank() {
            0 => ProgressBar::new(steps as u64),
            _ => ProgressBar::hidden(),
        };
        let (field, took) = simulate(ctx, size, steps, Exchange::First, &bar)?;
        let overlapped = match hidden {
            true => Some(simulate(ctx, size, steps, Exchange::Hidden, &bar)?),
            false => None,
        };
        let Some(field) = field else { return Ok(()) };

        // Only rank 0 comes here, with the whole plate. It opens a block of one rank, which must
        // get the same field without any message, to the last bit.
        let alone = |one: &Ctx| {
            simulate(one, size, steps, Exchange::First, &ProgressBar::hidden()).map(|(it, _)| it)
        };
        if spmd(1, alone)? != [Some(field.clone())] {
            return Err("many ranks get another field than one".into());
        }
        if let Some((same, less)) = overlapped {
            if same.as_ref() != Some(&field) {
                return Err("with a hidden halo the field is another one".into());
            }
            let saved = 100.0 * (1.0 - less.as_secs_f64() / took.as_secs_f64());
            println!("{less:.2?} with a hidden halo, {took:.2?} without: saves {saved:.0} %");
        }
        let supplied = steps as f64 * wire(size, &[0..size, 0..size]).iter().sum::<f64>();
        let heat: f64 = field.iter().sum();
        if (heat - supplied).abs() > 1e-9 * supplied {
            return Err(format!("the heat supplied is {supplied}, and {heat} is there").into());
        }
        draw(&picture, size, &field)?;
        println!("{size} × {size} cells, {steps} steps, {} ranks: see {picture}", ctx.size());
        Ok(())
    })?;
    Ok(())
}

/// The whole field after `steps` on rank 0, nothing elsewhere; and how long the steps took.
fn simulate(
    comm: &Comm,
    size: usize,
    steps: usize,
    exchange: Exchange,
    bar: &ProgressBar,
) -> Result<(Option<Vec<f64>>, Duration)> {
    let dims = dims_create(comm.size(), 2);
    if dims.iter().any(|tiles| *tiles > size) {
        return Err(format!("{size} × {size} cells are too few for {dims:?} tiles").into());
    }
    let grid = comm.cartesian(&dims, &[true, true])?.ok_or("dims_create has a place for all")?;
    let mine = tile(size, &grid, grid.rank())?;
    let power = wire(size, &mine);
    let mut now = vec![0.0; power.len()];
    let mut next = now.clone();
    let mut halo = Halo::new(&mine);
    let columns = mine[1].len();
    bar.reset();
    grid.barrier()?;
    let start = Instant::now();
    for _ in 0..steps {
        match exchange {
            Exchange::First => {
                halo.exchange(&grid, &now)?;
                inside(&now, columns, &power, &mut next);
            }
            // The scope does not end before the halo is there.
            Exchange::Hidden => grid.requests(|requests| {
                halo.start(requests, &grid, &now)?;
                inside(&now, columns, &power, &mut next);
                Ok(())
            })?,
        }
        border(&now, &halo, &power, &mut next);
        std::mem::swap(&mut now, &mut next);
        bar.inc(1);
    }
    grid.barrier()?;
    let took = start.elapsed();
    bar.finish_and_clear();

    let Some(tiles) = grid.gatherv_vec(&now, 0)? else { return Ok((None, took)) };
    let mut field = vec![0.0; size * size];
    for (rank, tile_of) in tiles.iter().enumerate() {
        let [rows, columns] = tile(size, &grid, rank)?;
        for (row, values) in rows.zip(tile_of.chunks(columns.len())) {
            field[row * size..][columns.clone()].copy_from_slice(values);
        }
    }
    Ok((Some(field), took))
}

/// The rows and columns of the plate that are a rank's.
fn tile(size: usize, grid: &Cartesian, rank: usize) -> Result<[Range<usize>; 2]> {
    let (dims, place) = (grid.dims(), grid.coords_of(rank)?);
    let share = |axis| place[axis] * size / dims[axis]..(place[axis] + 1) * size / dims[axis];
    Ok([share(0), share(1)])
}

/// The edges of the four neighbours' tiles, next to this one.
struct Halo {
    above: Vec<f64>,
    below: Vec<f64>,
    left: Vec<f64>,
    right: Vec<f64>,
}

impl Halo {
    fn new([rows, columns]: &[Range<usize>; 2]) -> Halo {
        let (row, column) = (vec![0.0; columns.len()], vec![0.0; rows.len()]);
        Halo { above: row.clone(), below: row, left: column.clone(), right: column }
    }

    fn exchange(&mut self, grid: &Cartesian, tile: &[f64]) -> Result<()> {
        let [above, below, left, right] = around(grid)?;
        let (first_row, last_row, first_column, last_column) = edges(tile, self.above.len())?;
        // What all ranks send upward, all receive from below.
        grid.sendrecv(first_row, above, 0, &mut self.below, below, 0)?;
        grid.sendrecv(last_row, below, 1, &mut self.above, above, 1)?;
        grid.sendrecv(&first_column, left, 2, &mut self.right, right, 2)?;
        grid.sendrecv(&last_column, right, 3, &mut self.left, left, 3)?;
        Ok(())
    }

    /// The same, which goes on until the scope ends.
    fn start<'scope>(
        &'scope mut self,
        requests: &RequestScope<'scope, '_>,
        grid: &Cartesian,
        tile: &'scope [f64],
    ) -> Result<()> {
        let [above, below, left, right] = around(grid)?;
        let (first_row, last_row, first_column, last_column) = edges(tile, self.above.len())?;
        requests.irecv(&mut self.below, below, 0)?;
        requests.irecv(&mut self.above, above, 1)?;
        requests.irecv(&mut self.right, right, 2)?;
        requests.irecv(&mut self.left, left, 3)?;
        requests.isend(first_row, above, 0)?;
        requests.isend(last_row, below, 1)?;
        requests.isend(first_column, left, 2)?;
        requests.isend(last_column, right, 3)?;
        Ok(())
    }
}

/// The ranks above, below, to the left and to the right.
fn around(grid: &Cartesian) -> Result<[usize; 4]> {
    match grid.neighbors()[..] {
        [Some(above), Some(below), Some(left), Some(right)] => Ok([above, below, left, right]),
        _ => Err("on a torus every rank has four neighbours".into()),
    }
}

/// The first and the last row of a tile, and its first and last column.
fn edges(
    tile: &[f64],
    columns: usize,
) -> Result<(&[f64], &[f64], impl Buffer<Elem = f64>, impl Buffer<Elem = f64>)> {
    let rows = tile.len() / columns;
    // A column is every `columns`-th cell: `rows` blocks of one.
    let first_column = strided(tile, rows, 1, columns)?;
    let last_column = strided(&tile[columns - 1..], rows, 1, columns)?;
    Ok((&tile[..columns], &tile[(rows - 1) * columns..], first_column, last_column))
}

/// What a cell has after a step: heat flows between it and its neighbours (above, below, left,
/// right), and the wire adds some.
fn flow(here: f64, [above, below, left, right]: [f64; 4], power: f64) -> f64 {
    let around = (above + below) + (left + right);
    here + FLOW * (around - 4.0 * here) + power
}

/// A step of the cells that need no halo. A function by itself, so that the compiler knows that its
/// slices do not overlap: within a closure it does not.
#[inline(never)]
fn inside(now: &[f64], columns: usize, power: &[f64], next: &mut [f64]) {
    let rows = now.len() / columns;
    for i in 1..rows.saturating_sub(1) {
        let [above, here, below] = [i - 1, i, i + 1].map(|i| &now[i * columns..][..columns]);
        let power = &power[i * columns..][..columns];
        let next = &mut next[i * columns..][..columns];
        for j in 1..columns.saturating_sub(1) {
            let around = [above[j], below[j], here[j - 1], here[j + 1]];
            next[j] = flow(here[j], around, power[j]);
        }
    }
}

/// A step of the cells at the border of a tile.
fn border(now: &[f64], halo: &Halo, power: &[f64], next: &mut [f64]) {
    let (rows, columns) = (halo.left.len(), halo.above.len());
    let edges = (0..columns).flat_map(|j| [(0, j), (rows - 1, j)]);
    let sides = (0..rows).flat_map(|i| [(i, 0), (i, columns - 1)]);
    for (i, j) in edges.chain(sides) {
        let cell = i * columns + j;
        let above = if i > 0 { now[cell - columns] } else { halo.above[j] };
        let below = if i + 1 < rows { now[cell + columns] } else { halo.below[j] };
        let left = if j > 0 { now[cell - 1] } else { halo.left[i] };
        let right = if j + 1 < columns { now[cell + 1] } else { halo.right[i] };
        next[cell] = flow(now[cell], [above, below, left, right], power[cell]);
    }
}

/// Heat that the wire gives in a step to each cell of a part of the plate. The wire is an
/// Archimedean spiral of some five turns.
fn wire(size: usize, [rows, columns]: &[Range<usize>; 2]) -> Vec<f64> {
    let power = |row: usize, column: usize| {
        // The plate is 12.5 distances of the spiral's arms wide.
        let [y, x] = [row, column].map(|k| 12.5 * ((k as f64 + 0.5) / size as f64 - 0.5));
        let (radius, angle) = (x.hypot(y), y.atan2(x) / TAU);
        // How many turns the nearest arm has made where it passes this cell.
        let turns = (radius - angle).round() + angle;
        let on_wire = (radius - turns).abs() < 0.13 && (0.6..5.1).contains(&turns);
        if on_wire { 1.0 } else { 0.0 }
    };
    rows.clone().flat_map(|row| columns.clone().map(move |column| power(row, column))).collect()
}

/// Writes the field as a picture, coldest to hottest.
fn draw(path: &str, size: usize, field: &[f64]) -> Result<()> {
    let hottest = field.iter().copied().fold(0.0, f64::max);
    let pixels: Vec<u8> = field.iter().flat_map(|value| colour(value / hottest)).collect();
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(file, size as u32, size as u32);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().map_err(Error::user)?;
    writer.write_image_data(&pixels).map_err(Error::user)?;
    writer.finish().map_err(Error::user)
}

/// From black through violet, red and orange to a pale yellow; `heat` is from 0 to 1.
fn colour(heat: f64) -> [u8; 3] {
    const STOPS: [[f64; 3]; 7] = [
        [4.0, 5.0, 18.0],
        [43.0, 12.0, 84.0],
        [115.0, 20.0, 104.0],
        [187.0, 42.0, 78.0],
        [237.0, 98.0, 38.0],
        [252.0, 172.0, 50.0],
        [253.0, 246.0, 196.0],
    ];
    let place = heat.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let below = (place as usize).min(STOPS.len() - 2);
    let between = place - below as f64;
    std::array::from_fn(|c| {
        (STOPS[below][c] + between * (STOPS[below + 1][c] - STOPS[below][c])).round() as u8
    })
}
