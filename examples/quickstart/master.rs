use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        let tasks: Vec<u64> = (1..=30).collect();
        let steps = ctx.map_dynamic(&tasks, |task| {
            let (mut n, mut steps) = (*task, 0);
            while n != 1 {
                n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
                steps += 1;
            }
            Ok(steps)
        })?;
        if ctx.rank() == 0 {
            println!("the longest takes {:?} steps", steps.iter().max());
        }
        Ok(())
    })
}
