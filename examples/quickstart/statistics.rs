use spmd::prelude::*;

#[derive(Clone, Copy, Debug, Element, Sum)]
#[repr(C)]
struct Moments {
    count: u64,
    sum: f64,
    squares: f64,
}

fn main() -> Result<()> {
    spmd::main(|ctx| {
        let mut mine = Moments { count: 0, sum: 0.0, squares: 0.0 };
        for x in ctx.share(10_000).map(|i| (i % 100) as f64) {
            mine =
                Moments { count: mine.count + 1, sum: mine.sum + x, squares: mine.squares + x * x };
        }
        let all = ctx.allreduce_value(mine, Sum)?;
        let mean = all.sum / all.count as f64;
        if ctx.rank() == 0 {
            println!("mean {mean}, variance {}", all.squares / all.count as f64 - mean * mean);
        }
        Ok(())
    })
}
