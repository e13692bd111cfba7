//! Which words of a part a request is for.

/// Blocks of elements, or of words, of a part, each `stride` after the start of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Where the first block starts.
    pub first: usize,
    /// How many blocks there are.
    pub blocks: usize,
    /// How long each is.
    pub block: usize,
    /// From the start of one to that of the next.
    pub stride: usize,
}

impl Pattern {
    /// One block.
    #[must_use]
    pub const fn one(first: usize, block: usize) -> Pattern {
        Pattern { first, blocks: 1, block, stride: 0 }
    }

    /// The words of elements of so many words each, which lie in a part.
    pub(crate) fn in_words(self, words: usize) -> Pattern {
        let Pattern { first, blocks, block, stride } = self;
        let stride = if blocks > 1 { stride * words } else { 0 };
        Pattern { first: first * words, blocks, block: block * words, stride }
    }

    /// How long all blocks are together, if that is a number.
    pub(crate) fn len(self) -> Option<usize> {
        self.blocks.checked_mul(self.block)
    }

    /// Whether all of it lies in a part of so many words.
    pub(crate) fn is_within(self, words: usize) -> bool {
        let last = self.blocks.saturating_sub(1).saturating_mul(self.stride);
        self.first.saturating_add(last).saturating_add(self.block) <= words
    }

    /// Each block: where it starts in the part, and where among all of them.
    pub(crate) fn starts(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.blocks).map(move |index| (self.first + index * self.stride, index * self.block))
    }

    /// The same in pieces of at most `most`, each with where it starts among all blocks.
    pub(crate) fn cut(self, most: usize) -> impl Iterator<Item = (Pattern, usize)> {
        let blocks = if self.block == 0 { 0 } else { self.blocks };
        let together = (most / self.block.max(1)).max(1);
        let starts = (0..blocks).step_by(together);
        starts.flat_map(move |index| {
            let blocks = together.min(blocks - index);
            let (first, from) = (self.first + index * self.stride, index * self.block);
            (0..self.block).step_by(self.block.min(most)).map(move |at| {
                let block = (self.block - at).min(most);
                (Pattern { first: first + at, blocks, block, ..self }, from + at)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_and_no_longer_than_they_may_be() {
        for (blocks, block, stride) in [(1, 1, 0), (1, 100, 0), (7, 3, 5), (7, 1, 1), (3, 25, 40)] {
            let all = Pattern { first: 11, blocks, block, stride };
            let words = |it: Pattern| {
                let of = move |(at, from)| (0..it.block).map(move |word| (at + word, from + word));
                it.starts().flat_map(of).collect::<Vec<_>>()
            };
            for most in [1, 4, 10, 1000] {
                let pieces = all.cut(most).inspect(|(it, _)| assert!(it.len() <= Some(most)));
                let cut: Vec<_> = pieces
                    .flat_map(|(it, start)| {
                        words(it).into_iter().map(move |(at, from)| (at, from + start))
                    })
                    .collect();
                assert_eq!(cut, words(all), "{all:?} by {most}");
            }
        }
        assert_eq!(Pattern { first: 3, blocks: 5, block: 0, stride: 7 }.cut(4).count(), 0);
    }

    #[test]
    fn what_reaches_beyond_a_part_is_seen() {
        let within =
            |first, blocks, block, stride| Pattern { first, blocks, block, stride }.is_within(20);
        assert!(within(0, 1, 20, usize::MAX) && within(5, 4, 3, 4) && within(20, 1, 0, 0));
        assert!(!within(0, 1, 21, 0) && !within(5, 4, 4, 4) && !within(usize::MAX, 1, 1, 0));
        assert!(!within(1, usize::MAX, 1, usize::MAX) && !within(0, 2, 1, usize::MAX));
    }
}
