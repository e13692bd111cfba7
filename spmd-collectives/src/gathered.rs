//! What calls give that gather blocks of any lengths.

use std::iter::FusedIterator;
use std::ops::{Index, Range};

/// The elements of all ranks in rank order, and where each rank's block of them starts.
///
/// ```
/// use spmd::prelude::*;
///
/// let gathered = spmd(3, |ctx| ctx.allgatherv_vec(&vec!['x'; ctx.rank()]))?;
/// let all = &gathered[0];
/// assert_eq!(all[2], ['x', 'x']); // what rank 2 gave
/// assert_eq!(all.iter().map(<[char]>::len).collect::<Vec<_>>(), [0, 1, 2]);
/// assert_eq!((all.elements().len(), all.displacements()), (3, &[0, 0, 1, 3][..]));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gathered<T> {
    elements: Vec<T>,
    displacements: Vec<usize>,
}

impl<T> Gathered<T> {
    /// Of as many blocks as there are displacements, less the last, which is their end.
    pub(crate) fn new(elements: Vec<T>, displacements: Vec<usize>) -> Gathered<T> {
        Gathered { elements, displacements }
    }

    /// The memory of the elements, which are gone, as are the blocks.
    pub(crate) fn take_memory(&mut self) -> Vec<T> {
        std::mem::take(self).elements
    }

    /// How many blocks there are: one for each rank.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(spmd(3, |ctx| ctx.allgatherv_vec(&[1.5, 2.5]))?[0].len(), 3);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.displacements.len() - 1
    }

    /// Whether there are no blocks, as in a new one; a call gives one for each rank.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert!(Gathered::<f64>::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of all ranks, in rank order.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let all = spmd(3, |ctx| ctx.allgatherv_vec(&[ctx.rank()]))?;
    /// assert_eq!(all[0].elements(), [0, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn elements(&self) -> &[T] {
        &self.elements
    }

    /// Where each rank's elements start among all, and after the last where they end: one number
    /// more than there are ranks (`displs` of MPI).
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let all = spmd(2, |ctx| ctx.allgatherv_vec(&[1.5, 2.5]))?;
    /// assert_eq!(all[0].displacements(), [0, 2, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn displacements(&self) -> &[usize] {
        &self.displacements
    }

    /// The blocks, in rank order.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let all = spmd(2, |ctx| ctx.allgatherv_vec(&vec![7; ctx.rank()]))?;
    /// for (rank, block) in all[0].iter().enumerate() {
    ///     assert_eq!(block, vec![7; rank]);
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { gathered: self, ranks: 0..self.len() }
    }

    /// The elements, and the displacements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let sorted = spmd(2, |ctx| {
    ///     let (mut all, _) = ctx.allgatherv_vec(&[7 - ctx.rank()])?.into_parts();
    ///     all.sort();
    ///     Ok(all)
    /// })?;
    /// assert_eq!(sorted[0], [6, 7]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn into_parts(self) -> (Vec<T>, Vec<usize>) {
        (self.elements, self.displacements)
    }

    fn block(&self, rank: usize) -> &[T] {
        &self.elements[self.displacements[rank]..self.displacements[rank + 1]]
    }
}

/// One without blocks, for calls that use its memory again (`.._into`).
impl<T> Default for Gathered<T> {
    fn default() -> Gathered<T> {
        Gathered::new(Vec::new(), vec![0])
    }
}

/// The block of a rank. Panics if there is no such rank.
impl<T> Index<usize> for Gathered<T> {
    type Output = [T];

    fn index(&self, rank: usize) -> &[T] {
        let ranks = self.len();
        assert!(rank < ranks, "there is no block of rank {rank}: there are {ranks} ranks");
        self.block(rank)
    }
}

impl<'a, T> IntoIterator for &'a Gathered<T> {
    type Item = &'a [T];
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The blocks of a [`Gathered`], in rank order.
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    gathered: &'a Gathered<T>,
    ranks: Range<usize>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a [T];

    fn next(&mut self) -> Option<&'a [T]> {
        self.ranks.next().map(|rank| self.gathered.block(rank))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }
}

impl<T> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.ranks.next_back().map(|rank| self.gathered.block(rank))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<T> FusedIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_lengths() {
        let all = Gathered::new(vec![1, 2, 3], vec![0, 0, 2, 2, 3]);
        let blocks: [&[i32]; 4] = [&[], &[1, 2], &[], &[3]];
        assert_eq!(all.len(), 4);
        assert!((&all).into_iter().eq(blocks));
        assert!(all.iter().rev().eq(blocks.into_iter().rev()));
        assert!((0..4).all(|rank| all[rank] == *blocks[rank]));
        assert_eq!(all.iter().len(), 4);
        assert_eq!(all.into_parts(), (vec![1, 2, 3], vec![0, 0, 2, 2, 3]));
    }

    #[test]
    #[should_panic(expected = "there is no block of rank 2: there are 2 ranks")]
    fn a_rank_too_many() {
        let _ = &Gathered::new(vec![1], vec![0, 0, 1])[2];
    }
}
