//! Whom the ranks of a combining barrier wait for, found once for all of them: each of thousands
//! that looked at all the others would take longer than what they wait for.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// A rank that is behind, as somebody found it last. Ranks go forward only: one that has come to a
/// goal has come to all before it.
#[derive(Default)]
pub(super) struct Behind {
    rank: AtomicUsize,
    /// All have come here.
    reached: AtomicU64,
}

impl Behind {
    /// One of so many ranks that has not come to `goal`. All looks for one goal together take as
    /// many steps as there are ranks, and one each.
    pub(super) fn find(
        &self,
        ranks: usize,
        goal: u64,
        has_come: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if self.reached.load(Acquire) >= goal {
            return None;
        }
        // Between two looks only the ranks in between have come.
        let start = self.rank.load(Relaxed);
        let late = (start..ranks).chain(0..start).find(|rank| !has_come(*rank));
        match late {
            Some(rank) if rank != start => self.rank.store(rank, Relaxed),
            Some(_) => {}
            None => drop(self.reached.fetch_max(goal, AcqRel)),
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::Behind;

    #[test]
    fn all_looks_together_take_one_walk() {
        const RANKS: usize = 1000;
        let (behind, steps) = (Behind::default(), Cell::new(0));
        let at = vec![Cell::new(0); RANKS];
        let find = |goal| {
            behind.find(RANKS, goal, |rank| {
                steps.set(steps.get() + 1);
                at[rank].get() >= goal
            })
        };
        for goal in 1..=3 {
            steps.set(0);
            // Every rank comes, in an order of its own, and looks.
            for turn in 0..RANKS {
                let rank = turn * 7 % RANKS;
                at[rank].set(goal);
                let late = find(goal);
                assert!(late.is_none_or(|late| at[late].get() < goal));
                assert_eq!(late.is_none(), turn == RANKS - 1);
            }
            for _ in 0..RANKS {
                assert_eq!(find(goal), None);
            }
            assert!(steps.get() <= 4 * RANKS, "{} steps", steps.get());
        }
    }

    #[test]
    fn finds_who_is_behind_an_earlier_goal() {
        let behind = Behind::default();
        let at = [5, 9, 9, 3];
        let find = |goal| behind.find(at.len(), goal, |rank| at[rank] >= goal);
        assert_eq!(find(9), Some(0));
        assert_eq!(find(4), Some(3));
        assert_eq!(find(9), Some(3));
        assert_eq!(find(3), None);
    }
}
