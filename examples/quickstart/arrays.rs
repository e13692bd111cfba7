use ndarray::{Array1, Array2, s};
use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        let (n, last) = (120, ctx.size() - 1);
        let rows = ctx.share(n);
        let element = |(i, j): (usize, usize)| 1.0 / (rows.start + i + j + 1) as f64;
        let a = Array2::from_shape_fn((rows.len(), n), element);
        let mut x = Array1::from_elem(n, if ctx.rank() == 0 { 1.0 } else { 0.0 });
        ctx.broadcast(&mut x, 0)?;
        let y = ctx.allgatherv_vec(&a.dot(&x))?; // all rows of a times x
        // A column goes as it lies: the last rank's to the first.
        let (to, from) = ((ctx.rank() == last).then_some(0), (ctx.rank() == 0).then_some(last));
        let (column, _) = ctx.sendrecv_vec(&a.slice(s![.., 0]), to, 0, from, 0)?;
        if ctx.rank() == 0 {
            println!("{:.6}, {:.6}", y.elements()[n - 1], column[column.len() - 1]);
        }
        Ok(())
    })
}
