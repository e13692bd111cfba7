use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        let n = 1_000_000;
        let mine: f64 =
            ctx.share(n).map(|i| 4.0 / (1.0 + ((i as f64 + 0.5) / n as f64).powi(2))).sum();
        let pi = ctx.allreduce_value(mine / n as f64, Sum)?;
        if ctx.rank() == 0 {
            println!("pi is {pi:.10}");
        }
        Ok(())
    })
}
