use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        // One half of the ranks adds while the other looks for the largest.
        let adds = ctx.rank() < ctx.size().div_ceil(2);
        let group = ctx.split(adds, 0)?.expect("every rank gives a color");
        let mine = group.share(1000).map(|i| i * i % 1009);
        let result = match adds {
            true => group.allreduce_value(mine.sum(), Sum)?,
            false => group.allreduce_value(mine.max().unwrap_or(0), Max)?,
        };
        // The first of each group tells it.
        let told = if group.rank() == 0 { vec![result] } else { vec![] };
        if let Some(all) = ctx.gatherv_vec(&told, 0)? {
            println!("the sum and the largest: {:?}", all.elements());
        }
        Ok(())
    })
}
