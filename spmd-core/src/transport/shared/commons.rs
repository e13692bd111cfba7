//! What the ranks of a process make together (`common.rs`).

use std::any::Any;
use std::collections::HashMap;
use std::sync::Weak;

use parking_lot::Mutex;

/// The communicator and the round.
pub(super) type Key = (u64, u64);

/// What is in use of it. There are no more entries than rounds in which ranks make something.
#[derive(Default)]
pub(super) struct Commons(pub(super) Mutex<HashMap<Key, Weak<dyn Any + Send + Sync>>>);
