use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        let (n, dims) = (24, dims_create(ctx.size(), 3));
        let grid = ctx.cartesian(&dims, &[true; 3])?.expect("a place for every rank");
        let shape = [0, 1, 2].map(|axis| n / dims[axis] + 2); // a block, and a cell around it
        let (x, y, z) = (shape[1] * shape[2], shape[2], 1); // from a cell to the next one
        let mut heat = vec![0.0; shape[0] * x];
        heat[x + y + z] = grid.rank() as f64;
        for _ in 0..20 {
            grid.exchange_halo(&mut heat, &shape, 1)?;
            let old = heat.clone();
            for c in x..heat.len() - x {
                let around: f64 = [x, y, z].iter().map(|d| old[c - d] + old[c + d]).sum();
                heat[c] += 0.1 * (around - 6.0 * old[c]);
            }
        }
        let corners = grid.allreduce_value(heat[x + y + z], Sum)?;
        if grid.rank() == 0 {
            println!("heat of the corners: {corners:.9}");
        }
        Ok(())
    })
}
