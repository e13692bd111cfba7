//! What the other crates of this workspace are written with. It may change with every version.

pub use crate::algorithm::*;
pub use crate::args::{Args, Blocks, Collective, Incoming, Memory, SingleRank};
pub use crate::buffer::{
    DeviceCopies, Place, Room, Rows, StagedView, SubarrayLayout, View, ViewMut, by_host,
    in_one_piece, on_host, set_device_copies,
};
pub use crate::call::{Call, Form};
pub use crate::comm::{
    Answer, CallGuard, CombiningCall, ContextOffer, Internals, LockOf, Part, RawWindow, Shown,
    Starts, Steps, Trial, Watch,
};
pub use crate::copy::{copy_around, copy_bytes, copy_from_peer, move_bytes};
pub use crate::dispatch::dispatch;
pub use crate::known::{nearest, unknown_variables};
pub use crate::op::{ErasedOp, Native, canonical_split, fold_ranks};
pub use crate::panics::{discard, panic_text};
pub use crate::plane::Plane;
pub use crate::resources::{PARTS, Resource, Resources, parts};
pub use crate::tasks::{
    HelperThread, ProcessWorkers, RankHook, bind_to_process, cannot_wait, wait_for_borrowers,
    wait_for_task,
};
pub use crate::trace::{Bar, Label, Moment, TaskEnd, Trace, TracedTask, TracedWorker};
pub use crate::transport::cluster::Leader;
pub use crate::transport::cluster::one_sided::Pattern;
pub use crate::transport::fabric::{BlockLayout, Fold, NativeCollective, ProcessBlocks};
pub use crate::transport::shared::collective::{FLAT, LAST_STAGE, Round};
pub use crate::transport::shared::layout::PAYLOAD;
pub use crate::transport::shared::window::{Mode, words};
pub use crate::transport::shared::{Common, Health, RankTasks, packed_if_apart};
pub use crate::wait::tasks::{
    Sleeper, TaskFeed, TaskStacks, TaskWorker, stack_left, worker_is_full,
};
pub use crate::wait::{as_task, in_operation, task};
