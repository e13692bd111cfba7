//! Who is in which part of a communicator that is split.

use std::ops::Range;

use spmd_core::Comm;
use spmd_core::internal::Part;

/// The groups into which a communicator is split.
pub(super) struct Groups {
    /// All ranks that are in one, group by group, each in its new order.
    ranks: Vec<usize>,
    /// Of each group its part of `ranks`, and the same for what is made of it.
    groups: Vec<(Range<usize>, Part)>,
    /// Of each rank its group, and its number there.
    places: Vec<Option<(usize, usize)>>,
}

impl Groups {
    /// What each rank says is its color plus one, or 0, and its key.
    pub(super) fn new(comm: &Comm, said: impl Iterator<Item = [u64; 2]>) -> Groups {
        let with_rank = |(rank, [color, key]): (usize, [u64; 2])| (color, key as u32 as i32, rank);
        let mut order: Vec<_> = said.enumerate().map(with_rank).collect();
        order.retain(|(color, ..)| *color != 0);
        order.sort_unstable();
        let ranks: Vec<usize> = order.iter().map(|(.., rank)| *rank).collect();
        let (mut groups, mut places) = (Vec::new(), vec![None; comm.size()]);
        let mut start = 0;
        for same in order.chunk_by(|(one, ..), (next, ..)| one == next) {
            let range = start..start + same.len();
            for (number, rank) in ranks[range.clone()].iter().enumerate() {
                places[*rank] = Some((groups.len(), number));
            }
            start = range.end;
            groups.push((range.clone(), comm.internals().part_of(&ranks[range])));
        }
        Groups { ranks, groups, places }
    }

    /// The group of this rank, and its number there, if it gave a color.
    pub(super) fn part(&self, comm: &Comm) -> Option<(&Part, usize)> {
        self.places[comm.rank()].map(|(group, number)| (&self.groups[group].1, number))
    }

    /// The ranks of that group.
    pub(super) fn ranks(&self, comm: &Comm) -> &[usize] {
        let group = self.places[comm.rank()];
        group.map_or(&[], |(group, _)| &self.ranks[self.groups[group].0.clone()])
    }
}
