//! The hotplate of `heat`, on GPUs: each rank has a band of rows in the memory of its device, and a
//! kernel of this program's own computes a step.
//!
//!     cargo run --release --example heat_gpu [size [steps]]
//!     spmdrun --as gpus target/release/examples/heat_gpu
//!
//! In each step a rank sends the first and the last row of its band to its neighbours, straight from the
//! device, and gets theirs: the halo, one row above the band and one below. The heat of all rows is added up
//! on the devices, too, while the host goes on. At the end rank 0 computes the same field without a GPU,
//! which has the same bits.

use std::time::Instant;

use spmd::gpu::cudarc::driver::{LaunchConfig, PushKernelArg};
use spmd::gpu::{DeviceBuffer, OnDevice, planes, probe};
use spmd::prelude::*;

/// Share of the difference to its neighbours that flows into a cell in a step; stable up to 0.25.
const FLOW: f64 = 0.2;

/// A cell of a band of `rows` rows between two rows of halo; columns go around.
const STEP: &str = r#"
extern "C" __global__ void step(const double *now, double *next, unsigned rows, unsigned columns,
                                double flow, unsigned wire) {
    unsigned cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= rows * columns) return;
    unsigned row = cell / columns + 1, column = cell % columns;
    const double *here = now + row * columns;
    double left = here[(column + columns - 1) % columns], right = here[(column + 1) % columns];
    double around = (here[(int)column - (int)columns] + here[column + columns]) + (left + right);
    double power = column == wire ? 1.0 : 0.0;
    next[row * columns + column] = here[column] + flow * (around - 4.0 * here[column]) + power;
}
"#;

fn main() -> Result<()> {
    if let Err(missing) = probe().ready() {
        println!("This program needs a GPU: {missing}");
        return Ok(());
    }
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let (size, steps) = (number(2048)?, number(500)?);
    spmd::run_on_planes(&planes(), |ctx| {
        let start = Instant::now();
        let (band, heat) = simulate(ctx, size, steps)?;
        let took = start.elapsed();
        let Some(field) = ctx.gatherv_vec(&band, 0)? else { return Ok(()) };
        if field.iter().flatten().ne(&on_the_host(size, steps)) {
            return Err("the GPUs get another field than the host".into());
        }
        println!(
            "{size} × {size} cells, {steps} steps, {} ranks: {took:.2?}, heat {heat}",
            ctx.size()
        );
        Ok(())
    })?;
    Ok(())
}

/// This rank's rows after all steps, and the heat of the whole plate.
fn simulate(ctx: &Ctx, size: usize, steps: usize) -> Result<(Vec<f64>, f64)> {
    let (n, me) = (ctx.size(), ctx.rank());
    let rows = (me + 1) * size / n - me * size / n;
    if rows == 0 {
        return Err(format!("{size} rows are too few for {n} ranks").into());
    }
    let device = ctx.device()?;
    let step = device.compile(STEP)?.load_function("step").map_err(Error::user)?;
    let mut now = device.zeros::<f64>((rows + 2) * size)?;
    let mut next = device.zeros::<f64>((rows + 2) * size)?;
    for _ in 0..steps {
        exchange(ctx, &mut now, rows, size)?;
        // SAFETY: both are in this rank's stream, as the kernel, and used here alone.
        let (from, mut into) = unsafe { (now.as_cuda_slice()?, next.as_cuda_slice()?) };
        let (height, width, wire) = (rows as u32, size as u32, size as u32 / 2);
        let mut launch = device.stream().launch_builder(&step);
        launch.arg(&*from).arg(&mut *into).arg(&height).arg(&width).arg(&FLOW).arg(&wire);
        // SAFETY: both buffers have two more rows than the kernel is told, of as many columns.
        unsafe { launch.launch(LaunchConfig::for_num_elems(height * width)) }
            .map_err(Error::user)?;
        drop((from, into));
        std::mem::swap(&mut now, &mut next);
    }
    let band = now.to_vec()?[size..(rows + 1) * size].to_vec();
    let mut heat = device.buffer_from(&[band.iter().sum::<f64>()])?;
    ctx.allreduce_in_place(&mut heat, Sum)?;
    Ok((band, heat.to_vec()?[0]))
}

/// Sends the first and the last row of the band, and gets the rows beside it.
fn exchange(ctx: &Ctx, field: &mut DeviceBuffer<f64>, rows: usize, size: usize) -> Result<()> {
    let n = ctx.size();
    let (above, below) = ((ctx.rank() + n - 1) % n, (ctx.rank() + 1) % n);
    let (mut halo_above, rest) = field.split_at_mut(size);
    let (band, mut halo_below) = rest.split_at_mut(rows * size);
    // What all ranks send upward, all receive from below.
    ctx.sendrecv(&band.slice(0..size), above, 0, &mut halo_below, below, 0)?;
    ctx.sendrecv(&band.slice((rows - 1) * size..rows * size), below, 1, &mut halo_above, above, 1)?;
    Ok(())
}

/// The same on one processor.
fn on_the_host(size: usize, steps: usize) -> Vec<f64> {
    let mut now = vec![0.0f64; size * size];
    for _ in 0..steps {
        let at = |row: usize, column: usize| now[row % size * size + column % size];
        let cell = |cell: usize| {
            let (row, column) = (cell / size, cell % size);
            let sides = at(row, column + size - 1) + at(row, column + 1);
            let around = (at(row + size - 1, column) + at(row + 1, column)) + sides;
            let power = if column == size / 2 { 1.0 } else { 0.0 };
            at(row, column) + FLOW * (around - 4.0 * at(row, column)) + power
        };
        now = (0..size * size).map(cell).collect();
    }
    now
}
