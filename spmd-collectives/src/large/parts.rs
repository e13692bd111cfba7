//! Which rank works on which part of the elements.

/// Bytes of the shortest part of data that are read in place. With shorter ones, thousands of
/// virtual ranks would each look at all the others for a few bytes.
const LEAST: usize = 256;

/// How `count` elements are shared out: as many parts as ranks, or fewer, none of which is shorter
/// than [`LEAST`] bytes, on ranks that lie evenly among all.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    count: usize,
    ranks: usize,
    parts: usize,
}

impl Parts {
    /// Of elements of `size` bytes.
    pub(crate) fn new(count: usize, size: usize, ranks: usize) -> Parts {
        let least = (LEAST / size).max(1);
        Parts { count, ranks, parts: (count / least).clamp(1, ranks) }
    }

    /// Elements of the longest part.
    pub(crate) fn longest(&self) -> usize {
        self.count.div_ceil(self.parts)
    }

    /// The start and length of a rank's part: nothing, where it has none.
    pub(crate) fn of(&self, rank: usize) -> (usize, usize) {
        let index = self.before(rank);
        match index < self.parts && self.owner(index) == rank {
            true => part(self.count, self.parts, index),
            false => (0, 0),
        }
    }

    /// The parts of the other ranks, beginning behind that of `rank`: whose, start and length.
    pub(crate) fn others(&self, rank: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let (parts, first) = (*self, self.before(rank));
        let all = (0..self.parts).map(move |turn| (first + turn) % parts.parts);
        all.filter_map(move |index| {
            let (start, count) = part(parts.count, parts.parts, index);
            Some((parts.owner(index), start, count)).filter(|(owner, ..)| *owner != rank)
        })
    }

    fn owner(&self, index: usize) -> usize {
        index * self.ranks / self.parts
    }

    /// How many parts ranks below this one have.
    fn before(&self, rank: usize) -> usize {
        (rank * self.parts).div_ceil(self.ranks)
    }
}

/// The part of `count` elements that rank `rank` of `ranks` works on, where each has one: its start
/// and length.
pub(crate) fn part(count: usize, ranks: usize, rank: usize) -> (usize, usize) {
    let start = |rank: usize| count / ranks * rank + (count % ranks).min(rank);
    (start(rank), start(rank + 1) - start(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_elements_and_none_is_short() {
        for ranks in 1..40 {
            for count in (0..3000).step_by(7) {
                let parts = Parts::new(count, 8, ranks);
                let mut end = 0;
                for rank in 0..ranks {
                    let (start, len) = parts.of(rank);
                    assert!(len == 0 || start == end, "rank {rank} of {ranks}: {start} for {end}");
                    assert!(len == 0 || len >= (LEAST / 8).min(count));
                    assert!(len <= parts.longest());
                    end += len;
                    let others = parts.others(rank).inspect(|(owner, start, len)| {
                        assert_eq!(parts.of(*owner), (*start, *len));
                    });
                    assert_eq!(others.map(|(.., len)| len).sum::<usize>() + len, count);
                }
                assert_eq!(end, count);
            }
        }
    }
}
