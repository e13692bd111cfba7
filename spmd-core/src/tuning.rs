//! What makes calls fast or slow and changes no result: which algorithm a call takes, and the size
//! of segments. The same on all ranks of a world.

mod file;
mod read;

use std::sync::Arc;

pub use file::{File, path};

use crate::algorithm::Algorithm;
use crate::call::Kind;
use crate::transport::wrap::TraceFile;

/// Bytes of a segment, where nobody asks for another size.
const SEGMENT: usize = 128 << 10;
/// The same where processes share cores: each segment costs a meeting, in which all of them take
/// turns. Measured (docs/performance.md).
const CROWDED: usize = 256 << 10;

/// Bytes of messages that a rank keeps from each other one, where nobody asks for another bound:
/// more than a program lets pile up that does not mean to, and what a machine has to spare.
const WINDOW: usize = 64 << 20;

/// What a world is set up with besides its ranks.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// What `SPMD_FORCE` or the program asks for, on every communicator.
    pub(crate) forced: Rules,
    /// What was measured, for the communicators of all ranks.
    pub(crate) tuned: Rules,
    /// Bytes of a segment, where large data go through staging areas.
    pub(crate) segment: usize,
    /// The same if nobody asks for another size.
    pub(crate) built_in_segment: usize,
    /// Whether large data of processes are read through the kernel: messages if it is said, in
    /// collectives unless it is denied.
    pub(crate) single_copy: Option<bool>,
    /// Bytes of messages that a rank keeps from each other one before it has received them.
    pub(crate) window: usize,
    /// The seed of delays before and after each call.
    pub(crate) chaos: Option<u64>,
    /// Whether libraries beneath must not fold in an order of their own.
    pub(crate) reproducible: bool,
    /// Whether ranks of different processes compare each call before they make it.
    pub(crate) check: bool,
    /// Where calls are written down.
    pub(crate) trace: Option<Arc<TraceFile>>,
    /// Whether ranks of one process take each other's buffers for unreachable, as processes must.
    pub(crate) unreachable: bool,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            forced: Rules::default(),
            tuned: Rules::default(),
            segment: SEGMENT,
            built_in_segment: SEGMENT,
            single_copy: None,
            window: WINDOW,
            chaos: None,
            reproducible: false,
            check: false,
            trace: None,
            unreachable: false,
        }
    }
}

impl Tuning {
    /// The same with what was measured, and with this segment, if one is asked for.
    pub(crate) fn with(mut self, measured: Option<&Section>, segment: Option<usize>) -> Tuning {
        self.tuned = measured.map_or_else(Rules::default, |section| section.rules.clone());
        let tuned = measured.and_then(|section| section.segment);
        self.segment = segment.or(tuned).unwrap_or(self.built_in_segment);
        self
    }

    /// The same where processes share cores.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "processes need Linux"))]
    pub(crate) fn crowded(self) -> Tuning {
        Tuning { built_in_segment: CROWDED, ..self }
    }
}

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

/// Reads any text as a tuning file and as one section of it; what is understood is understood
/// again as it is written.
#[cfg(fuzzing)]
pub(crate) fn fuzz(text: &str) {
    if let Ok(sections) = read::sections(text) {
        let again = read::sections(&File::from(sections.clone()).to_string());
        assert!(again.is_ok_and(|again| again == sections));
    }
    if let Ok(section) = Section::from_inline(text) {
        assert_eq!(Section::from_inline(&section.inline()), Ok(section));
    }
}
