use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        // Once for all ranks, wherever they are.
        let steps: u32 =
            ctx.once(|| Ok(std::env::var("STEPS").unwrap_or("3".into()).parse()?))?;
        let host = ctx.split_host()?;
        for step in 1..=steps {
            let slowest = ctx.allreduce_value(f64::from(step) * (ctx.rank() + 1) as f64, Max)?;
            if ctx.rank() == 0 {
                println!("step {step}: {slowest}, {} of the ranks on this host", host.size());
            }
        }
        Ok(())
    })
}
