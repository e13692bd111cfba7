//! Text of ranks elsewhere: which of it has been sent, and what came.

use std::ops::Range;

use crate::text::{Interner, Table};

/// Text that this process has sent, and has been sent.
pub(super) struct Texts {
    /// The ranks of this process.
    local: Range<usize>,
    /// What each process has been told: a bit for each number of each of those ranks.
    told: Vec<Vec<u64>>,
    /// What each rank elsewhere has told.
    heard: Vec<Option<ReceivedTexts>>,
}

struct ReceivedTexts {
    interner: Interner,
    /// The number here for each of its numbers.
    numbers: Vec<u16>,
}

impl Texts {
    pub(super) fn new(local: Range<usize>, processes: usize) -> Texts {
        let ranks = processes * local.len();
        Texts {
            local,
            told: vec![Vec::new(); processes],
            heard: (0..ranks).map(|_| None).collect(),
        }
    }

    /// Whether this process is to be told now what `rank`, one of this one, means by `number`.
    pub(super) fn is_news(&mut self, rank: usize, number: u16, process: usize) -> bool {
        if number == 0 {
            return false;
        }
        let which = usize::from(number) * self.local.len() + (rank - self.local.start);
        let (word, bit) = (which / 64, 1 << (which % 64));
        let told = &mut self.told[process];
        if told.len() <= word {
            told.resize(word + 1, 0);
        }
        let news = told[word] & bit == 0;
        told[word] |= bit;
        news
    }

    /// Keeps what `rank` means by `number`, in its table. False if there is no such rank.
    pub(super) fn receive(&mut self, table: &Table, rank: u32, number: u16, text: &str) -> bool {
        let Some(heard) = self.heard.get_mut(rank as usize) else { return false };
        let heard = heard.get_or_insert_with(|| ReceivedTexts {
            interner: Interner::new(),
            numbers: Vec::new(),
        });
        let place = usize::from(number);
        if heard.numbers.len() <= place {
            heard.numbers.resize(place + 1, 0);
        }
        heard.numbers[place] = heard.interner.number_of(table, text);
        true
    }

    /// The number in this process's table of `rank` for one that it has told.
    pub(super) fn here(&self, rank: u32, number: u16) -> u16 {
        let heard = self.heard.get(rank as usize).and_then(Option::as_ref);
        heard.and_then(|heard| heard.numbers.get(usize::from(number))).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_is_told_each_text_of_each_rank_once() {
        let mut texts = Texts::new(4..6, 3);
        for (process, rank, number) in [(0, 4, 1), (0, 5, 1), (0, 4, 900), (2, 4, 1)] {
            assert!(texts.is_news(rank, number, process));
            assert!(!texts.is_news(rank, number, process));
        }
        assert!(!texts.is_news(4, 0, 0));
    }
}
