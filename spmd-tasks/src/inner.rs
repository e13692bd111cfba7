//! Tasks that nobody has spawned: they follow others by the data that these use.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

use crate::about::About;
use crate::failure::Failure;
use crate::group::Group;
use crate::header::{Header, Runnable, is_made};
use crate::node::{Node, Work, unbound};

/// A task, whatever it does.
pub(crate) type AnyTask = Arc<dyn Runnable>;

/// Makes tasks that follow others by data, while the data's orders are locked, and has them begin.
pub struct Making<'g> {
    group: &'g Arc<Group>,
    site: &'static Location<'static>,
    /// Those of nobody's.
    inner: RefCell<Vec<AnyTask>>,
}

impl<'g> Making<'g> {
    pub(crate) fn new(group: &'g Arc<Group>, site: &'static Location<'static>) -> Making<'g> {
        Making { group, site, inner: RefCell::default() }
    }

    pub(crate) fn task<W: Work>(&self, about: Option<Box<About>>, work: W) -> Arc<Node<W>> {
        Arc::new(Node::new(Header::new(self.group, self.site, about), work))
    }

    /// The same task, of which others may keep this when the scope has been left.
    ///
    /// # Safety
    /// It is a task of the group, whose end is waited for as long as what it borrows is there.
    pub(crate) unsafe fn shared<W: Work>(&self, task: &Arc<Node<W>>) -> AnyTask {
        // SAFETY: once the task is over (this function's contract has that soon enough) its work is gone, and
        // its value, which its handle's end, or its own, has freed; where the handle is forgotten, the task
        // is never freed.
        unsafe { unbound(task.clone()) }
    }

    /// A task of nobody's that does this, if these have gone well.
    ///
    /// # Safety
    /// As of [`Making::shared`].
    pub(crate) unsafe fn inner(&self, well: Vec<AnyTask>, act: Act<'_>) -> AnyTask {
        let task = self.task(None, Inner { well, act });
        // Nobody asks for it: its failure is told at the end.
        task.header().is_left_early();
        // SAFETY: this function's contract.
        let shared = unsafe { self.shared(&task) };
        self.inner.borrow_mut().push(shared.clone());
        shared
    }

    /// All is known that this task and those of nobody's need, and nothing is locked.
    pub(crate) fn done(self, task: AnyTask) {
        for task in self.inner.into_inner().into_iter().chain([task]) {
            self.group.waits(|| task.clone());
            is_made(task, &self.group.pool);
        }
    }
}

/// What an inner task does.
pub(crate) type Act<'a> = Option<Box<dyn FnOnce() + Send + 'a>>;

struct Inner<'a> {
    well: Vec<AnyTask>,
    act: Act<'a>,
}

impl Work for Inner<'_> {
    type Value = ();

    fn run(self, task: &Header) -> Result<(), Failure> {
        let Inner { well, act } = self;
        if let Some(failure) = first_failure(&well) {
            // It is told where it belongs.
            task.is_known();
            return Err(failure);
        }
        act.into_iter().for_each(|act| act());
        Ok(())
    }
}

/// Why the first of these has no value that has none. They are over.
pub(crate) fn first_failure(tasks: &[AnyTask]) -> Option<Failure> {
    tasks.iter().find_map(|task| task.header().failure().cloned())
}
