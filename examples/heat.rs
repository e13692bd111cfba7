//! A hotplate warms up: heat diffuses from a spiral heating wire over a square plate.
//!
//!     cargo run --release --example heat [size [steps [picture.png]]]
//!
//! The plate is cut into tiles, one for each rank of a two-dimensional Cartesian communicator. In
//! each step a rank needs the edges of its four neighbours' tiles (a halo): edge columns are sent
//! as strided views, straight from the tile. The plate is a torus: what leaves on one side comes
//! in on the other, so that all heat stays, and every rank has four neighbours.

use std::f64::consts::TAU;
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;

use indicatif::ProgressBar;
use spmd::prelude::*;

/// Share of the difference to its neighbours that flows into a cell in a step; stable up to 0.25.
const FLOW: f64 = 0.2;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
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
        let Some(field) = simulate(ctx, size, steps, &bar)? else { return Ok(()) };

        // Only rank 0 comes here, with the whole plate. It opens a block of one rank, which must
        // get the same field without any message, to the last bit.
        let alone = spmd(1, |one| simulate(one, size, steps, &ProgressBar::hidden()))?;
        if alone != [Some(field.clone())] {
            return Err("many ranks get another field than one".into());
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

/// The whole field after `steps` on rank 0, nothing elsewhere.
fn simulate(comm: &Comm, size: usize, steps: usize, bar: &ProgressBar) -> Result<Option<Vec<f64>>> {
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
    for _ in 0..steps {
        halo.exchange(&grid, &now)?;
        step(&now, &halo, &power, &mut next);
        std::mem::swap(&mut now, &mut next);
        bar.inc(1);
    }
    bar.finish_and_clear();

    let Some(tiles) = grid.gatherv_vec(&now, 0)? else { return Ok(None) };
    let mut field = vec![0.0; size * size];
    for (rank, tile_of) in tiles.iter().enumerate() {
        let [rows, columns] = tile(size, &grid, rank)?;
        for (row, values) in rows.zip(tile_of.chunks(columns.len())) {
            field[row * size..][columns.clone()].copy_from_slice(values);
        }
    }
    Ok(Some(field))
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
        let (rows, columns) = (self.left.len(), self.above.len());
        let first_row = &tile[..columns];
        let last_row = &tile[(rows - 1) * columns..];
        // A column is every `columns`-th cell: `rows` blocks of one.
        let first_column = strided(tile, rows, 1, columns)?;
        let last_column = strided(&tile[columns - 1..], rows, 1, columns)?;
        let [Some(above), Some(below), Some(left), Some(right)] = grid.neighbors()[..] else {
            return Err("on a torus every rank has four neighbours".into());
        };
        // What all ranks send upward, all receive from below.
        grid.sendrecv(first_row, above, 0, &mut self.below, below, 0)?;
        grid.sendrecv(last_row, below, 1, &mut self.above, above, 1)?;
        grid.sendrecv(&first_column, left, 2, &mut self.right, right, 2)?;
        grid.sendrecv(&last_column, right, 3, &mut self.left, left, 3)?;
        Ok(())
    }
}

/// Heat flows between each cell and its four neighbours, and the wire adds some.
fn step(now: &[f64], halo: &Halo, power: &[f64], next: &mut [f64]) {
    let (rows, columns) = (halo.left.len(), halo.above.len());
    for i in 0..rows {
        let row = |i: usize| &now[i * columns..][..columns];
        let here = row(i);
        let above = if i > 0 { row(i - 1) } else { &halo.above };
        let below = if i + 1 < rows { row(i + 1) } else { &halo.below };
        let power = &power[i * columns..][..columns];
        let next = &mut next[i * columns..][..columns];
        for j in 0..columns {
            let left = if j > 0 { here[j - 1] } else { halo.left[i] };
            let right = if j + 1 < columns { here[j + 1] } else { halo.right[i] };
            let around = (above[j] + below[j]) + (left + right);
            next[j] = here[j] + FLOW * (around - 4.0 * here[j]) + power[j];
        }
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
