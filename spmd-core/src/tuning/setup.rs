//! What a world is set up with besides its ranks.

use std::sync::Arc;

use super::rules::{Rules, Section};
use crate::trace::Trace;

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
    /// Whether large data of processes are read through the kernel: all messages if it is said; long
    /// ones that are not staged yet, and in collectives, unless it is denied.
    pub(crate) single_copy: Option<bool>,
    /// Bytes of messages that a rank keeps from each other one before it has received them.
    pub(crate) window: usize,
    /// The seed of delays before and after each call.
    pub(crate) chaos: Option<u64>,
    /// Whether libraries beneath must not fold in an order of their own.
    pub(crate) reproducible: bool,
    /// The plane that alone carries out calls on memory of a device, if one is named.
    pub(crate) device_plane: Option<&'static str>,
    /// Whether ranks of different processes compare each call before they make it.
    pub(crate) check: bool,
    /// Where calls and tasks are written down.
    pub(crate) trace: Option<Arc<Trace>>,
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
            device_plane: None,
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
