//! Who uses a value after whom.

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::sync::Arc;

use crate::graph::Need;
use crate::header::follows;
use crate::inner::{AnyTask, Making};
use crate::place::{Before, Mode, Ordered, Use};
use crate::turns::Queue;

/// How many tasks have made something at most that is yet to be added to the value.
pub(crate) const PRIVATE: usize = 256;

/// Whom the next task waits for that uses a value. Of those who use it together, or in any order, it
/// knows at most 16, or twice as many as were not over when it last looked.
#[derive(Default)]
pub(crate) struct Order {
    /// The last one that writes the value, or comes after all that did.
    writer: Option<AnyTask>,
    /// Those since, who read it, or write it in any order.
    users: Vec<AnyTask>,
    /// When there are so many, it is looked which are over.
    many: usize,
    /// Which of the users has its turn, if they write.
    queue: Option<Arc<Queue>>,
    /// The last ones that add something to the value, [`PRIVATE`] at most.
    folds: VecDeque<AnyTask>,
}

impl Order {
    pub(crate) const fn new() -> Order {
        Order { writer: None, users: Vec::new(), many: 0, queue: None, folds: VecDeque::new() }
    }

    /// Puts a task of nobody's behind the users, so that each of many that come next waits for one.
    fn join(&mut self, making: &Making<'_>) {
        let mut users = take(&mut self.users);
        let write = self.queue.take().is_some();
        if write && users.len() == 1 {
            self.writer = users.pop();
            return;
        }
        let well = if write { users.clone() } else { Vec::from_iter(self.writer.clone()) };
        // SAFETY: it borrows nothing.
        let join = unsafe { making.inner(well, None) };
        for task in self.writer.iter().chain(&users) {
            follows(&join, task.header(), Need::Data);
        }
        self.writer = Some(join);
    }

    /// Forgets users that are over; of those who write, one that has failed is known still.
    fn forget(&mut self) {
        let (write, mut failed) = (self.queue.is_some(), false);
        self.users.retain(|user| {
            let header = user.header();
            let mut last = || write && header.failure().is_some() && !replace(&mut failed, true);
            !header.is_over() || last()
        });
        self.many = 2 * self.users.len();
    }
}

impl Ordered for Order {
    fn before(&mut self, how: &Use, before: &mut Before, making: &Making<'_>) {
        match how.mode {
            Mode::Read if self.queue.is_some() => self.join(making),
            Mode::Commute if self.queue.is_none() => {
                self.forget();
                if !self.users.is_empty() {
                    self.join(making);
                }
                self.queue = Some(Arc::default());
            }
            _ => {}
        }
        match how.mode {
            Mode::Overwrite => {}
            Mode::Write | Mode::Fold if self.queue.is_some() => {
                before.well.extend_from_slice(&self.users);
            }
            _ => before.well.extend(self.writer.clone()),
        }
        match how.mode {
            Mode::Commute => before.queues.extend(self.queue.clone()),
            Mode::Fold if self.folds.len() == PRIVATE => before.over = self.folds.front().cloned(),
            _ => {}
        }
    }

    fn follows(&mut self, task: &AnyTask, how: &Use) {
        if let Some(writer) = &self.writer {
            follows(task, writer.header(), Need::Data);
        }
        if matches!(how.mode, Mode::Read | Mode::Commute) {
            if self.users.len() >= self.many.max(16) {
                self.forget();
            }
            return self.users.push(task.clone());
        }
        for user in self.users.drain(..) {
            follows(task, user.header(), Need::Data);
        }
        self.queue = None;
        self.writer = Some(task.clone());
        if how.mode == Mode::Fold {
            while self.folds.front().is_some_and(|first| first.header().is_over()) {
                self.folds.pop_front();
            }
            self.folds.push_back(task.clone());
            if self.folds.len() > PRIVATE {
                self.folds.pop_front();
            }
        }
    }
}
