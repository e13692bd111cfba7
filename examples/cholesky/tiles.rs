//! The lower triangle of a matrix in tiles, of which a rank may have some.

use spmd::prelude::*;

use crate::tile::Tile;

/// How a matrix is cut, and which tiles this rank has: those of its row and column in a grid of ranks,
/// over which rows and columns of tiles are dealt out in turn.
#[derive(Clone, Copy)]
pub struct Layout {
    pub size: usize,
    pub tile: usize,
    /// Rows and columns of ranks.
    pub ranks: [usize; 2],
    /// This rank's row and column.
    pub mine: [usize; 2],
}

impl Layout {
    /// All tiles in one place.
    pub fn alone(size: usize, tile: usize) -> Layout {
        Layout { size, tile, ranks: [1, 1], mine: [0, 0] }
    }

    /// Over all ranks, in a grid that is about as wide as high.
    pub fn over(comm: &Comm, size: usize, tile: usize) -> Layout {
        let all = comm.size();
        let fits = |rows: &usize| all.is_multiple_of(*rows) && rows * rows <= all;
        let rows = (1..=all).rev().find(fits).unwrap_or(1);
        let columns = all / rows;
        let mine = [comm.rank() / columns, comm.rank() % columns];
        Layout { size, tile, ranks: [rows, columns], mine }
    }

    /// How many rows and columns of tiles there are.
    pub fn steps(&self) -> usize {
        self.size.div_ceil(self.tile)
    }

    pub fn has_row(&self, i: usize) -> bool {
        i % self.ranks[0] == self.mine[0]
    }

    pub fn has_column(&self, j: usize) -> bool {
        j % self.ranks[1] == self.mine[1]
    }

    /// Which rank has this tile.
    pub fn owner(&self, (i, j): (usize, usize)) -> usize {
        i % self.ranks[0] * self.ranks[1] + j % self.ranks[1]
    }

    /// How high the tiles of this row are, or how wide those of this column.
    pub fn extent(&self, i: usize) -> usize {
        self.tile.min(self.size - i * self.tile)
    }

    /// All tiles of the lower triangle, row after row.
    pub fn lower(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        (0..self.steps()).flat_map(|i| (0..=i).map(move |j| (i, j)))
    }

    /// The matrix that is to be factored: random numbers, the same on both sides of a diagonal that makes
    /// it positive definite.
    pub fn value(&self, i: usize, j: usize) -> f64 {
        if i == j {
            return self.size as f64;
        }
        let seed = (i.max(j) * self.size + i.min(j)) as u64;
        let mixed = (seed ^ seed >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// This tile of the matrix.
    pub fn tile_at(&self, (i, j): (usize, usize)) -> Tile {
        let (above, before) = (i * self.tile, j * self.tile);
        Tile::new([self.extent(i), self.extent(j)], |r, c| self.value(above + r, before + c))
    }
}

/// The tiles of the lower triangle that a rank has.
pub struct Tiles(Vec<Option<Data<Tile>>>);

impl Tiles {
    /// Those of the matrix.
    pub fn of_matrix(layout: &Layout) -> Tiles {
        let mine = |(i, j): (usize, usize)| layout.has_row(i) && layout.has_column(j);
        let tile = |at| mine(at).then(|| Data::new(layout.tile_at(at)));
        Tiles(layout.lower().map(tile).collect())
    }

    /// A tile that this rank has.
    pub fn at(&self, i: usize, j: usize) -> &Data<Tile> {
        self.0[i * (i + 1) / 2 + j].as_ref().expect("this rank has the tile")
    }

    /// The tiles, when no task uses them.
    pub fn into_tiles(self) -> impl Iterator<Item = Option<Tile>> {
        self.0.into_iter().map(|tile| tile.map(Data::into_inner))
    }
}
