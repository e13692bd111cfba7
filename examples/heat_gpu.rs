//! The hotplate of `heat`, on GPUs: each rank has a band of rows in the memory of its device, and a
//! kernel of this program's own computes a step.
//!
//!     cargo run --release --example heat_gpu [size [steps]]
//!     spmdrun --as gpus target/release/examples/heat_gpu
//!
//! Each step is a kernel and a collective on device buffers: the ranks exchange the first and the last row of
//! their bands (`alltoallv`) and compute the next ones beside what they got, the halo. Both are put into the
//! rank's stream: where a plane of devices carries the call out, nobody waits for a device before the end. Then rank 0
//! computes the same field without a GPU, which has the same bits.

use std::time::Instant;

use spmd::gpu::cudarc::driver::{LaunchConfig, PushKernelArg};
use spmd::gpu::{OnDevice, planes, probe};
use spmd::prelude::*;

/// Share of the difference to its neighbours that flows into a cell in a step; stable up to 0.25.
const FLOW: f64 = 0.2;

/// A cell of a band of `rows` rows; columns go around. The rows beside the band are in `halo`, and its own first and
/// last row are written to `edges`, too.
const STEP: &str = r#"
extern "C" __global__ void step(const double *now, double *next, const double *halo, double *edges,
                                unsigned rows, unsigned columns, double flow, unsigned above_at,
                                unsigned below_at, unsigned first_at, unsigned last_at) {
    unsigned cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= rows * columns) return;
    unsigned row = cell / columns, column = cell % columns;
    const double *here = now + row * columns;
    const double *above = row == 0 ? halo + above_at : here - columns;
    const double *below = row == rows - 1 ? halo + below_at : here + columns;
    double left = here[(column + columns - 1) % columns], right = here[(column + 1) % columns];
    double around = (above[column] + below[column]) + (left + right);
    double power = column == columns / 2 ? 1.0 : 0.0;
    double heat = here[column] + flow * (around - 4.0 * here[column]) + power;
    next[cell] = heat;
    if (row == 0) edges[first_at + column] = heat;
    if (row == rows - 1) edges[last_at + column] = heat;
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
    let (above, below) = ((me + n - 1) % n, (me + 1) % n);
    // The blocks of a call are in the order of the ranks. Of two rows for one rank the first goes before the last.
    let mut counts = vec![0; n];
    [above, below].into_iter().for_each(|rank| counts[rank] += size);
    let place = |later: bool| if later { (size as u32, 0) } else { (0, size as u32) };
    let ((first_at, last_at), (above_at, below_at)) = (place(above > below), place(above >= below));
    let (mut now, mut next) = (device.zeros::<f64>(rows * size)?, device.zeros(rows * size)?);
    let (mut edges, mut halo) = (device.zeros::<f64>(2 * size)?, device.zeros(2 * size)?);
    for _ in 0..steps {
        ctx.alltoallv(&edges, &mut halo, &counts, &counts)?;
        // SAFETY: all are in this rank's stream, as the kernel, and used here alone.
        let (from, mut into) = unsafe { (now.as_cuda_slice()?, next.as_cuda_slice()?) };
        // SAFETY: as above.
        let (beside, mut own) = unsafe { (halo.as_cuda_slice()?, edges.as_cuda_slice()?) };
        let (height, width) = (rows as u32, size as u32);
        let mut launch = device.stream().launch_builder(&step);
        launch.arg(&*from).arg(&mut *into).arg(&*beside).arg(&mut *own).arg(&height).arg(&width);
        launch.arg(&FLOW).arg(&above_at).arg(&below_at).arg(&first_at).arg(&last_at);
        // SAFETY: the fields have so many rows of so many columns, the others two.
        unsafe { launch.launch(LaunchConfig::for_num_elems(height * width)) }
            .map_err(Error::user)?;
        drop((from, into, beside, own));
        std::mem::swap(&mut now, &mut next);
    }
    let band = now.to_vec()?;
    let heat = ctx.allreduce_value(band.iter().sum::<f64>(), Sum)?;
    Ok((band, heat))
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
