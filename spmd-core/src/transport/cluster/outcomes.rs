//! What has come of agreements, for the ranks of a process that wait for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What a rank has learnt in an agreement, for the others of its process.
pub(crate) type Outcome = Arc<dyn Any + Send + Sync>;

/// Outcomes of agreements that ranks of this process have still to see, and how many of them.
pub(super) type Outcomes = Mutex<BTreeMap<(u64, u64), (Option<Outcome>, usize)>>;
