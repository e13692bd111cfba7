use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        // Rank 0 has rows of different lengths; the others have none.
        let row = |n: usize| (1..=n).collect::<Vec<_>>();
        let rows: Vec<Vec<usize>> = (1..=10).map(row).collect();
        let part = |rank| rows[ctx.share_of(rank, rows.len())].to_vec();
        let parts = (ctx.rank() == 0).then(|| (0..ctx.size()).map(part).collect::<Vec<_>>());
        let mine = ctx.scatter_object(parts.as_deref(), 0)?;
        let sums: Vec<usize> = mine.iter().map(|row| row.iter().sum()).collect();
        if let Some(all) = ctx.gatherv_vec(&sums, 0)? {
            println!("sums of the rows: {:?}", all.elements());
        }
        Ok(())
    })
}
