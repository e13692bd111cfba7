//! The factor of a matrix that one rank has.

use spmd::prelude::*;

use crate::kernels::{gemm, potrf, syrk, trsm};
use crate::tiles::Tiles;

/// Spawns what a loop without tasks would do, in its order. What may go on at the same time follows from
/// the tiles that each task names: so columns to the right begin while those to the left are not done.
pub fn factor(ctx: &Ctx, tiles: &Tiles, steps: usize) -> Result<()> {
    ctx.datadeps(|d| {
        for k in 0..steps {
            d.spawn((d.write(tiles.at(k, k)),), potrf);
            for i in k + 1..steps {
                d.spawn((d.read(tiles.at(k, k)), d.write(tiles.at(i, k))), trsm);
            }
            for i in k + 1..steps {
                for j in k + 1..i {
                    let (a, b) = (d.read(tiles.at(i, k)), d.read(tiles.at(j, k)));
                    d.spawn((a, b, d.write(tiles.at(i, j))), gemm);
                }
                d.spawn((d.read(tiles.at(i, k)), d.write(tiles.at(i, i))), syrk);
            }
        }
        Ok(())
    })
}
