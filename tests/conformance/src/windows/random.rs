//! Random programs of windows, against plain memory.

use crate::prelude::*;

/// SplitMix64: all ranks draw the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % bound
    }
}

/// Each program is of one window, and of several epochs.
pub(super) fn random_programs(ctx: &Ctx) -> Result<()> {
    let programs = if crate::full() { 300 } else { 30 };
    let programs = super::turns(ctx, programs) as u64;
    (0..programs).try_for_each(|seed| {
        let mut window = RandomWindow::new(ctx, seed)?;
        (0..4).try_for_each(|turn| window.epoch(seed << 8 | turn))
    })
}

/// A window beside plain memory, in which each rank computes what all do.
pub(crate) struct RandomWindow {
    window: Window<i64>,
    expected: Vec<Vec<i64>>,
    me: usize,
}

impl RandomWindow {
    /// All ranks make it, with the same seed.
    pub(crate) fn new(comm: &Comm, seed: u64) -> Result<RandomWindow> {
        let (me, mut random) = (comm.rank(), Random(seed));
        let expected: Vec<Vec<i64>> =
            (0..comm.size()).map(|_| vec![0; random.below(200)]).collect();
        let window = comm.window::<i64>(expected[me].len())?;
        window.fence()?;
        Ok(RandomWindow { window, expected, me })
    }

    /// Random calls of all ranks, each of which carries out its own. In an epoch, an element is put
    /// or replaced by one rank, or changed by any in one way whose order does not matter, or read.
    pub(crate) fn epoch(&mut self, seed: u64) -> Result<()> {
        let RandomWindow { window, expected, me } = self;
        let (me, n, mut random) = (*me, expected.len(), Random(seed));
        let passive = random.below(2) == 0;
        if passive {
            window.lock_all()?;
        }
        // Which rank puts what element, who changes it (n, n + 1), or that it is read (n + 2).
        let mut plan = |part: &Vec<i64>| (0..part.len()).map(|_| random.below(n + 3)).collect();
        let plans: Vec<Vec<usize>> = expected.iter().map(&mut plan).collect();
        for _ in 0..30 * n {
            let (by, target) = (random.below(n), random.below(n));
            let (first, block) = (random.below(200), 1 + random.below(8));
            let (count, stride) = (1 + random.below(3), block + random.below(5));
            let given = random.below(1000) as i64;
            let places = |i: usize| first + i / block * stride + i % block;
            let all = count * block;
            let plan = |i: usize| plans[target].get(places(i)).copied();
            let Some(kind) = plan(0) else { continue };
            // As long as one kind of call fits.
            let all = (0..all).take_while(|i| plan(*i) == Some(kind)).count();
            let at = if all == count * block && count > 1 {
                At::strided(first, count, block, stride)
            } else {
                At::from(first)
            };
            let all = if at == At::from(first) { all.min(block) } else { all };
            let values: Vec<i64> = (0..all).map(|i| given + i as i64).collect();
            let old: Vec<i64> = (0..all).map(|i| expected[target][places(i)]).collect();
            if kind == by || (n..n + 2).contains(&kind) {
                for (i, value) in values.iter().enumerate() {
                    let there = &mut expected[target][places(i)];
                    *there = match kind {
                        kind if kind == by => *value,
                        kind if kind == n => *there + value,
                        _ => (*there).max(*value),
                    };
                }
            }
            if by != me {
                continue;
            }
            let single = all == 1 && given % 2 == 0;
            if kind == by && single {
                let before = window.fetch_and_op(given, target, first, Replace)?;
                assert_eq!(before, old[0], "seed {seed}");
            } else if kind == by {
                window.put(&values, target, at)?;
            } else if kind == n && single {
                window.fetch_and_op(given, target, first, Sum)?;
            } else if kind == n {
                window.accumulate(&values, target, at, Sum)?;
            } else if kind == n + 1 {
                window.accumulate(&values, target, at, Max)?;
            } else if kind == n + 2 {
                let mut there = vec![0; all];
                window.get(&mut there, target, at)?;
                assert_eq!(there, old, "seed {seed}");
            }
        }
        if passive {
            window.unlock_all()?;
        }
        window.fence()?;
        assert_eq!(window.read(..)?, expected[me], "seed {seed}");
        window.fence()
    }
}
