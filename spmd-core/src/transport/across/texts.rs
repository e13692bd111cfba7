//! Text of ranks elsewhere: which of it has been sent, and what came.

use std::collections::{HashMap, HashSet};

use crate::text::{Interner, Table};

/// Text that this process has sent, and has been sent.
pub(super) struct Texts {
    /// Rank, number, process: what this process's ranks have told others.
    told: HashSet<(u32, u16, u32)>,
    /// What each rank elsewhere has told.
    heard: Vec<Option<Heard>>,
}

struct Heard {
    interner: Interner,
    numbers: HashMap<u16, u16>,
}

impl Texts {
    pub(super) fn new(ranks: usize) -> Texts {
        Texts { told: HashSet::new(), heard: (0..ranks).map(|_| None).collect() }
    }

    /// Whether this process is to be told now what `rank` means by `number`.
    pub(super) fn is_news(&mut self, rank: u32, number: u16, process: usize) -> bool {
        number != 0 && self.told.insert((rank, number, process as u32))
    }

    /// Keeps what `rank` means by `number`, in its table. False if there is no such rank.
    pub(super) fn hear(&mut self, table: &Table, rank: u32, number: u16, text: &str) -> bool {
        let Some(heard) = self.heard.get_mut(rank as usize) else { return false };
        let heard = heard
            .get_or_insert_with(|| Heard { interner: Interner::new(), numbers: HashMap::new() });
        heard.numbers.insert(number, heard.interner.number_of(table, text));
        true
    }

    /// The number in this process's table of `rank` for one that it has told.
    pub(super) fn here(&self, rank: u32, number: u16) -> u16 {
        let heard = self.heard.get(rank as usize).and_then(Option::as_ref);
        heard.and_then(|heard| heard.numbers.get(&number)).copied().unwrap_or(0)
    }
}
