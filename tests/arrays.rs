//! Arrays of `ndarray` as buffers.

use ndarray::{ArcArray, Array, Array0, Array2, Array3, Axis, ShapeBuilder, arr1, arr2, s};
use spmd::prelude::*;

/// A matrix of which each element is known by its place.
fn matrix(rows: usize, columns: usize) -> Array2<f64> {
    Array::from_shape_fn((rows, columns), |(row, column)| (100 * row + column) as f64)
}

#[test]
fn whole_arrays() -> Result<()> {
    spmd(3, |ctx| {
        let mine = matrix(4, 5) + ctx.rank() as f64;
        let mut sum = Array2::zeros((4, 5));
        ctx.allreduce(&mine, &mut sum, Sum)?;
        assert_eq!(sum, matrix(4, 5) * 3.0 + 3.0);
        let mut all = Array3::zeros((3, 4, 5));
        ctx.allgather(&mine, &mut all)?;
        for (rank, one) in all.axis_iter(Axis(0)).enumerate() {
            assert_eq!(one, matrix(4, 5) + rank as f64);
        }
        let mut one = Array0::from_elem((), if ctx.rank() == 0 { 7 } else { 0 });
        ctx.broadcast(&mut one, 0)?;
        assert_eq!(one[()], 7);
        let (mut empty, none) = (Array2::<f64>::zeros((0, 5)), Array2::<f64>::zeros((5, 0)));
        ctx.allreduce(&none, &mut empty, Sum)
    })?;
    Ok(())
}

/// Every other column backwards, rows of a matrix that is stored by columns, a block of a cube.
#[test]
fn views_with_gaps() -> Result<()> {
    spmd(2, |ctx| {
        let peer = 1 - ctx.rank();
        let m = matrix(6, 7);
        let by_column = Array2::from_shape_vec((7, 6).f(), m.iter().copied().collect()).unwrap();
        let cube = Array3::from_shape_fn((5, 4, 6), |(i, j, k)| (100 * i + 10 * j + k) as f64);
        let mut room = Array2::from_elem((9, 30), -1.0);
        let mut views = vec![
            m.slice(s![.., 1]).into_dyn(),
            m.slice(s![..;-1, ..;2]).into_dyn(),
            m.t().into_dyn(),
            m.slice(s![1..3, 2..;-2]).into_dyn(),
            by_column.view().into_dyn(),
            by_column.slice(s![2, ..]).into_dyn(),
            cube.slice(s![1..3, .., 2..5]).into_dyn(),
            cube.slice(s![..;-1, ..;-1, ..;-1]).into_dyn(),
            cube.slice(s![2..3, .., 4..5]).into_dyn(),
        ];
        let line = arr1(&[1.0, 2.0, 3.0]);
        views.push(line.broadcast((4, 3)).unwrap().into_dyn());
        for view in &views {
            let expected: Vec<f64> = view.iter().copied().collect();
            let (got, _) = ctx.sendrecv_vec(view, peer, 0, peer, 0)?;
            assert_eq!(got, expected);
            // Into a view with gaps, of as many elements.
            let mut row = room.slice_mut(s![..;-3, ..]);
            let mut row = row.row_mut(1);
            let mut into = row.slice_mut(s![..;-1]);
            let len = into.len().min(expected.len());
            let mut into = into.slice_mut(s![..len]);
            let cut: Vec<f64> = expected[..len].to_vec();
            ctx.sendrecv(&cut, peer, 1, &mut into, peer, 1)?;
            assert_eq!(into.to_vec(), cut);
            let mut sum = vec![0.0; expected.len()];
            ctx.allreduce(view, &mut sum, Sum)?;
            assert_eq!(sum, expected.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        }
        assert!(
            room.rows()
                .into_iter()
                .enumerate()
                .all(|(row, values)| row == 5 || values.iter().all(|value| *value == -1.0))
        );
        Ok(())
    })?;
    Ok(())
}

/// Who writes an array that shares its elements does not write those of others.
#[test]
fn shared_arrays() -> Result<()> {
    spmd(2, |ctx| {
        let before = ArcArray::from(arr2(&[[1, 2], [3, 4]]));
        let mut sum = before.clone();
        ctx.allreduce_in_place(&mut sum, Sum)?;
        assert_eq!((before, sum), (arr2(&[[1, 2], [3, 4]]).into(), arr2(&[[2, 4], [6, 8]]).into()));
        Ok(())
    })?;
    Ok(())
}
