//! The Cholesky factor of a symmetric, positive definite matrix, A = L Lᵀ, in tiles.
//!
//!     cargo run --release --example cholesky [--rounds n] [size [tile]]
//!
//! A rank by itself spawns a task for each step of the algorithm, which names the tiles that it reads
//! and writes; `faer` does the arithmetic in tiles. Several ranks have the tiles dealt out over a grid of
//! them, and send columns of L along its rows and columns, in tasks, too.
//!
//! What comes out is checked on rank 0: that ‖A − L Lᵀ‖ is small, and that many ranks find the same bits
//! as one. With `--rounds` it is measured beside `faer`'s own parallel factorisation.

mod alone;
mod measure;
mod tile;
mod tiles;
mod together;

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};
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
        rounds.map_or(Ok(()), |rounds| measure::beside_faer(ctx, &layout, rounds))
    })?;
    Ok(())
}

/// ‖A − L Lᵀ‖ ÷ ‖A‖, in Frobenius' norm.
fn relative_error(layout: &Layout, factor: &[Tile]) -> f64 {
    let (n, mut l) = (layout.size, Mat::<f64>::zeros(layout.size, layout.size));
    for ((i, j), tile) in layout.lower().zip(factor) {
        let (above, before, values) = (i * layout.tile, j * layout.tile, tile.get());
        for c in 0..values.ncols() {
            // The upper triangle of a tile on the diagonal has nothing to do with L.
            for r in if i == j { c } else { 0 }..values.nrows() {
                l[(above + r, before + c)] = values[(r, c)];
            }
        }
    }
    let a = Mat::from_fn(n, n, |i, j| layout.value(i, j));
    let mut rest = a.clone();
    matmul(rest.as_mut(), Accum::Add, l.as_ref(), l.transpose(), -1.0, Par::Seq);
    rest.norm_l2() / a.norm_l2()
}
