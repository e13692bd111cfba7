//! Which algorithm serves which calls.

use crate::algorithm::Algorithm;
use crate::call::Kind;

/// An algorithm for calls of up to so many bytes, or of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The most bytes.
    pub up_to: Option<usize>,
    /// What serves them.
    pub algorithm: Algorithm,
}

/// For each kind of call, which algorithm serves which sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// By [`Kind::index`]; empty where there is no rule at all.
    by_kind: Vec<Vec<Rule>>,
}

impl Rules {
    /// Replaces the rules of a call: the first that is large enough counts.
    pub fn set(&mut self, kind: Kind, rules: Vec<Rule>) {
        self.by_kind.resize(Kind::COUNT, Vec::new());
        self.by_kind[kind.index()] = rules;
        if self.by_kind.iter().all(Vec::is_empty) {
            self.by_kind.clear();
        }
    }

    pub(crate) fn force(&mut self, kind: Kind, algorithm: Algorithm) {
        self.set(kind, vec![Rule { up_to: None, algorithm }]);
    }

    /// Whether there is no rule for any call.
    pub fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }

    /// The algorithm for a call of this size, if a rule names one.
    pub(crate) fn choose(&self, kind: Kind, bytes: usize) -> Option<Algorithm> {
        let mut rules = self.by_kind.get(kind.index())?.iter();
        let rule = rules.find(|rule| rule.up_to.is_none_or(|limit| bytes <= limit))?;
        Some(rule.algorithm)
    }

    /// The calls that have rules.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &[Rule])> {
        let all = self.by_kind.iter().enumerate().filter(|(_, rules)| !rules.is_empty());
        all.filter_map(|(index, rules)| Some((Kind::from_number(index as u8 + 1)?, &rules[..])))
    }
}

/// What was measured for one place and number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Bytes of a segment, if another size than the built-in one is better.
    pub segment: Option<usize>,
    /// Algorithms.
    pub rules: Rules,
}
