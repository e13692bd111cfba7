//! Whose order a task enters, and how.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::inner::{Act, AnyTask, Making};
use crate::processor::Home;
use crate::region::Region;
use crate::turns::Queue;

/// How a task uses data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    /// It reads what was there, too.
    Write,
    /// What was there does not matter.
    Overwrite,
    /// As `Write`, in any order with others.
    Commute,
    /// It adds to what was there what it has made by itself.
    Fold,
}

/// What of some data a task uses, and how.
#[derive(Clone, Debug)]
pub struct Use {
    pub(crate) mode: Mode,
    pub(crate) region: Region,
}

/// Data that a task uses.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Place<'d> {
    pub(crate) order: &'d Mutex<dyn Ordered + 'd>,
    pub(crate) how: Use,
    /// How what it has made is added to what was there.
    pub(crate) fold: Act<'d>,
    /// Why it cannot be used like this.
    pub(crate) wrong: Option<String>,
    /// Where they are, if on the host or on GPUs.
    pub(crate) home: Option<Arc<Home>>,
}

impl Place<'_> {
    /// Whose locks are taken first.
    pub(crate) fn address(&self) -> usize {
        (&raw const *self.order).cast::<()>().addr()
    }

    pub(crate) fn is_of_same(&self, other: &Place<'_>) -> bool {
        self.address() == other.address()
    }
}

/// What must be before a task uses its data.
#[derive(Default)]
pub struct Before {
    /// Tasks that have gone well.
    pub(crate) well: Vec<AnyTask>,
    /// It has its turn in these.
    pub(crate) queues: Vec<Arc<Queue>>,
    /// A task that is over before something is made to be added.
    pub(crate) over: Option<AnyTask>,
}

/// Knows who uses some data after whom.
pub trait Ordered: Send {
    /// Adds what must be before the next task uses them like this.
    fn before(&mut self, how: &Use, before: &mut Before, making: &Making<'_>);
    /// `task`, which is being made, uses them like this, after those that use them now.
    fn follows(&mut self, task: &AnyTask, how: &Use);
}
