//! A set of ranges of numbers.

use std::collections::{BTreeMap, BTreeSet};

/// Ranges that neither overlap nor touch: start to end.
#[derive(Default)]
pub(super) struct Ranges {
    ends: BTreeMap<u64, u64>,
    total: u64,
    /// Lengths and starts, where places of a length are looked for.
    by_length: Option<BTreeSet<(u64, u64)>>,
}

impl Ranges {
    /// Ranges in which [`Ranges::best_of`] finds places.
    pub(super) fn searched() -> Ranges {
        Ranges { by_length: Some(BTreeSet::new()), ..Ranges::default() }
    }

    /// Numbers in all ranges.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The start of the shortest range of `len` numbers at least, the lowest of these.
    pub(super) fn best_of(&self, len: u64) -> Option<u64> {
        self.by_length.as_ref()?.range((len, 0)..).next().map(|(_, start)| *start)
    }

    fn put(&mut self, start: u64, end: u64) {
        self.ends.insert(start, end);
        self.total += end - start;
        if let Some(lengths) = &mut self.by_length {
            lengths.insert((end - start, start));
        }
    }

    fn drop(&mut self, start: u64, end: u64) {
        self.ends.remove(&start);
        self.total -= end - start;
        if let Some(lengths) = &mut self.by_length {
            lengths.remove(&(end - start, start));
        }
    }

    /// Whether all of `start..end` is in the set.
    pub(super) fn contains(&self, start: u64, end: u64) -> bool {
        self.ends.range(..=start).next_back().is_some_and(|(_, last)| *last >= end)
    }

    /// Adds what is not in the set yet.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        // Those that overlap or touch, from the last on.
        while let Some((&first, &last)) = self.ends.range(..=end).next_back()
            && last >= start
        {
            self.drop(first, last);
            (start, end) = (start.min(first), end.max(last));
        }
        self.put(start, end);
    }

    /// Takes `start..end` out; tells `each` what of it was in the set, from the end on. (A list of
    /// that might be long, and come from the allocator that asks.)
    pub(super) fn remove(&mut self, start: u64, end: u64, mut each: impl FnMut(u64, u64)) {
        while let Some((&first, &last)) = self.ends.range(..end).next_back()
            && last > start
        {
            self.drop(first, last);
            if first < start {
                self.put(first, start);
            }
            if last > end {
                self.put(end, last);
            }
            each(first.max(start), last.min(end));
        }
    }

    /// Takes everything out.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (u64, u64)> + use<> {
        self.total = 0;
        self.by_length.iter_mut().for_each(BTreeSet::clear);
        std::mem::take(&mut self.ends).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_part() {
        let mut ranges = Ranges::searched();
        ranges.insert(10, 20);
        ranges.insert(30, 40);
        ranges.insert(20, 25);
        assert_eq!(ranges.total(), 25);
        assert!(ranges.contains(12, 25) && !ranges.contains(12, 26));
        assert_eq!(ranges.best_of(11), Some(10));
        assert_eq!(ranges.best_of(10), Some(30));
        let mut taken = Vec::new();
        ranges.remove(15, 35, |start, end| taken.push((start, end)));
        assert_eq!(taken, [(30, 35), (15, 25)]);
        assert_eq!((ranges.total(), ranges.best_of(6)), (10, None));
        ranges.insert(0, 100);
        assert_eq!(ranges.take_all().collect::<Vec<_>>(), [(0, 100)]);
        assert_eq!(ranges.total(), 0);
    }

    #[test]
    fn as_a_set_of_numbers_does() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut ranges, mut set) = (Ranges::searched(), [false; 64]);
        for _ in 0..if cfg!(miri) { 50 } else { 2000 } {
            let start = random.u64(..63);
            let end = start + 1 + random.u64(..63 - start);
            let within = &mut set[start as usize..end as usize];
            if random.bool() {
                ranges.insert(start, end);
                within.fill(true);
            } else {
                let mut taken = 0;
                ranges.remove(start, end, |first, last| taken += last - first);
                assert_eq!(taken as usize, within.iter().filter(|it| **it).count());
                within.fill(false);
            }
            assert_eq!(ranges.total() as usize, set.iter().filter(|it| **it).count());
            let lengths = ranges.ends.iter().map(|(start, end)| (end - start, *start)).collect();
            assert_eq!(ranges.by_length, Some(lengths));
            for (start, end) in ranges.ends.iter().map(|(a, b)| (*a as usize, *b as usize)) {
                assert!(set[start..end].iter().all(|it| *it));
                assert!((start == 0 || !set[start - 1]) && !set.get(end).is_some_and(|it| *it));
            }
        }
    }
}
