//! Parts of data.

use std::ops::Range;

/// Some rows and columns of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
}

impl Region {
    /// Of data that are used as a whole.
    pub(crate) const WHOLE: Region = Region { rows: 0..1, columns: 0..1 };

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() || self.columns.is_empty()
    }

    /// What both have in common.
    pub(crate) fn common(&self, other: &Region) -> Option<Region> {
        let both = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start)..a.end.min(b.end);
        let rows = both(&self.rows, &other.rows);
        let common = Region { rows, columns: both(&self.columns, &other.columns) };
        (!common.is_empty()).then_some(common)
    }

    /// What is left without the other one: what lies above, below, to its left and to its right.
    pub(crate) fn without(&self, other: &Region) -> impl Iterator<Item = Region> + use<> {
        let parts = match self.common(other) {
            None => [Some(self.clone()), None, None, None],
            Some(common) => {
                let rows = |rows| Region { rows, columns: self.columns.clone() };
                let columns = |columns| Region { rows: common.rows.clone(), columns };
                [
                    Some(rows(self.rows.start..common.rows.start)),
                    Some(rows(common.rows.end..self.rows.end)),
                    Some(columns(self.columns.start..common.columns.start)),
                    Some(columns(common.columns.end..self.columns.end)),
                ]
            }
        };
        parts.into_iter().flatten().filter(|part| !part.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element of one region is in what both have in common, or in one of the parts, once.
    #[test]
    fn parts_are_exact() {
        let ranges = || (0..4).flat_map(|start| (start..5).map(move |end| start..end));
        let regions = || {
            ranges()
                .flat_map(|rows| ranges().map(move |c| Region { rows: rows.clone(), columns: c }))
        };
        let has = |region: &Region, (i, j): (usize, usize)| {
            region.rows.contains(&i) && region.columns.contains(&j)
        };
        for a in regions() {
            for b in regions() {
                let common = a.common(&b);
                assert_eq!(common, b.common(&a));
                let parts: Vec<Region> = a.without(&b).collect();
                assert!(parts.len() <= 4);
                for at in (0..5).flat_map(|i| (0..5).map(move |j| (i, j))) {
                    let both = has(&a, at) && has(&b, at);
                    assert_eq!(common.as_ref().is_some_and(|it| has(it, at)), both);
                    let times = parts.iter().filter(|part| has(part, at)).count();
                    assert_eq!(times, usize::from(has(&a, at) && !both));
                }
            }
        }
    }
}
