//! How things are divided among ranks.

use std::ops::Range;

use super::communicator::Comm;

impl Comm {
    /// This rank's share of `n` items: one block for each rank, in rank order, of lengths that differ
    /// by one at most, the longer ones first. Any rank may call it, without the others.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let data: Vec<f64> = (0..10).map(f64::from).collect();
    /// let sums = spmd(4, |ctx| {
    ///     let mine: f64 = data[ctx.share(data.len())].iter().sum();
    ///     ctx.allreduce_value(mine, Sum)
    /// })?;
    /// assert_eq!(sums, [45.0; 4]);
    /// assert_eq!(spmd(4, |ctx| Ok(ctx.share(10)))?, [0..3, 3..6, 6..8, 8..10]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn share(&self, n: usize) -> Range<usize> {
        self.share_of(self.rank(), n)
    }

    /// The share that `rank` has of `n` items, as [`Comm::share`]: for a root that scatters them. Any
    /// rank may call it, without the others. It is empty, and behind all items, if there is no such rank.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let all: Vec<u8> = if ctx.rank() == 0 { (0..7).collect() } else { vec![] };
    ///     let counts: Vec<usize> = (0..3).map(|rank| ctx.share_of(rank, 7).len()).collect();
    ///     let mut mine = vec![0; counts[ctx.rank()]];
    ///     ctx.scatterv(&all, &counts, &mut mine, 0)?;
    ///     assert_eq!(mine.len(), [3, 2, 2][ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn share_of(&self, rank: usize, n: usize) -> Range<usize> {
        let (each, longer) = (n / self.size(), n % self.size());
        let start = |rank: usize| rank * each + rank.min(longer);
        let rank = rank.min(self.size());
        start(rank)..start((rank + 1).min(self.size()))
    }
}
