//! The Cholesky factor of a symmetric, positive definite matrix, A = L Lᵀ, in tiles.
//!
//!     cargo run --release --example cholesky [size [tile]]
//!     cargo run --release --example cholesky --features spmd-cholesky/faer -- --rounds n [size [tile]]
//!
//! A rank by itself spawns a task for each step of the algorithm, which names the tiles that it reads
//! and writes. Several ranks have the tiles dealt out over a grid of them, and send columns of L along its
//! rows and columns, in tasks, too.
//!
//! What comes out is checked on rank 0: that ‖A − L Lᵀ‖ is small, and that many ranks find the same bits
//! as one. With `--rounds` it is measured beside the parallel factorisation of the crate `faer`, whose kernels
//! then do what is done in tiles. It takes longer to compile than all examples, so it is there with a feature only.

mod alone;
#[cfg(not(feature = "faer"))]
#[path = "plain.rs"]
mod kernels;
#[cfg(feature = "faer")]
#[path = "with_faer.rs"]
mod kernels;
#[cfg(feature = "faer")]
mod measure;
mod tile;
mod tiles;
mod together;

use ndarray::Array2;
use ndarray::linalg::general_mat_mul;
use spmd::prelude::*;

use tile::Tile;
use tiles::{Layout, Tiles};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let rounds = arguments.next_if(|first| first == "--rounds").is_some();
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let rounds = if rounds { Some(number(5)?) } else { None };
    let (size, tile) = (number(2048)?, number(128)?);
    if size == 0 || tile == 0 {
        return Err("a matrix and its tiles have rows".into());
    }
    spmd::run(|ctx| {
        let layout = Layout::over(ctx, size, tile);
        let tiles = Tiles::of_matrix(&layout);
        if ctx.size() == 1 {
            alone::factor(ctx, &tiles, layout.steps())?;
        } else {
            together::factor(ctx, &layout, &tiles)?;
        }
        let factor = together::gather(ctx, &layout, tiles)?;
        if ctx.rank() != 0 {
            return Ok(());
        }
        let error = relative_error(&layout, &factor);
        println!("{size} × {size} in tiles of {tile}: relative error {error:.1e}");
        if error.is_nan() || error >= 1e-12 {
            return Err(format!("the factor is off by {error:e}").into());
        }
        if ctx.size() > 1 {
            let tiles = Tiles::of_matrix(&Layout::alone(size, tile));
            alone::factor(ctx, &tiles, layout.steps())?;
            if !tiles.into_tiles().eq(factor.into_iter().map(Some)) {
                return Err("many ranks find another factor than one".into());
            }
        }
        rounds.map_or(Ok(()), |rounds| beside_faer(ctx, &layout, rounds))
    })?;
    Ok(())
}

#[cfg(feature = "faer")]
use measure::beside_faer;

#[cfg(not(feature = "faer"))]
fn beside_faer(_: &Ctx, _: &Layout, _: usize) -> Result<()> {
    Err("--rounds measures beside faer, without which this was built: --features spmd-cholesky/faer".into())
}

/// ‖A − L Lᵀ‖ ÷ ‖A‖, in Frobenius' norm.
fn relative_error(layout: &Layout, factor: &[Tile]) -> f64 {
    let mut l = Array2::<f64>::zeros((layout.size, layout.size));
    for ((i, j), tile) in layout.lower().zip(factor) {
        let (above, before, values) = (i * layout.tile, j * layout.tile, tile.get());
        for ((r, c), value) in values.indexed_iter() {
            // The upper triangle of a tile on the diagonal has nothing to do with L.
            if i > j || r >= c {
                l[(above + r, before + c)] = *value;
            }
        }
    }
    let a = Array2::from_shape_fn((layout.size, layout.size), |(i, j)| layout.value(i, j));
    let mut rest = a.clone();
    general_mat_mul(-1.0, &l, &l.t(), 1.0, &mut rest);
    let norm = |values: &Array2<f64>| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    norm(&rest) / norm(&a)
}
