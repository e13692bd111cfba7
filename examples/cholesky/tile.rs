//! A tile of a matrix.

use ndarray::{ArrayView2, ShapeBuilder};

/// A tile, column after column.
#[derive(Clone, Default, PartialEq)]
pub struct Tile {
    pub rows: usize,
    pub values: Vec<f64>,
}

impl Tile {
    /// A tile of so many rows and columns with these values.
    pub fn new([rows, columns]: [usize; 2], value: impl Fn(usize, usize) -> f64) -> Tile {
        let places = (0..columns).flat_map(|j| (0..rows).map(move |i| (i, j)));
        Tile { rows, values: places.map(|(i, j)| value(i, j)).collect() }
    }

    pub fn columns(&self) -> usize {
        self.values.len() / self.rows
    }

    pub fn get(&self) -> ArrayView2<'_, f64> {
        let shape = (self.rows, self.columns()).f();
        ArrayView2::from_shape(shape, &self.values).expect("columns are whole")
    }

    /// Becomes the same as another one, in the memory that it has.
    pub fn copy_from(&mut self, other: &Tile) {
        self.rows = other.rows;
        self.values.clone_from(&other.values);
    }
}
