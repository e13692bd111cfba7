//! Who uses which parts of an array after whom.

use crate::graph::Need;
use crate::header::follows;
use crate::inner::{AnyTask, Making};
use crate::place::{Before, Mode, Ordered, Use};
use crate::region::Region;

/// Who uses which parts of an array: tasks that are not over, and what those that have failed were to
/// write. No two parts of those who write have anything in common: each element has one who writes it
/// last. Each task is compared with all parts; there are at most 16, or twice as many as were of use when it
/// was last looked. What is left of a part from which another one was cut is up to four parts.
#[derive(Default)]
pub(crate) struct Regions {
    parts: Vec<Part>,
    /// When there are so many, it is looked which are of use.
    many: usize,
}

/// A part of the array that a task uses.
struct Part {
    region: Region,
    task: AnyTask,
    writes: bool,
}

impl Regions {
    pub(crate) const fn new() -> Regions {
        Regions { parts: Vec::new(), many: 0 }
    }

    fn forget(&mut self) {
        self.parts.retain(|part| {
            let header = part.task.header();
            !header.is_over() || part.writes && header.failure().is_some()
        });
        self.many = 2 * self.parts.len();
    }
}

impl Ordered for Regions {
    fn before(&mut self, how: &Use, before: &mut Before, _: &Making<'_>) {
        if how.mode != Mode::Overwrite {
            let read = |part: &&Part| part.writes && part.region.common(&how.region).is_some();
            before.well.extend(self.parts.iter().filter(read).map(|part| part.task.clone()));
        }
    }

    fn follows(&mut self, task: &AnyTask, how: &Use) {
        if self.parts.len() >= self.many.max(16) {
            self.forget();
        }
        let writes = how.mode != Mode::Read;
        let mut left = Vec::new();
        self.parts.retain(|part| {
            let goes_with = !writes && !part.writes;
            if goes_with || part.region.common(&how.region).is_none() {
                return true;
            }
            follows(task, part.task.header(), Need::Data);
            if writes {
                // Who uses these elements next waits for this task, and with it for that one.
                let cut = part.region.without(&how.region);
                left.extend(cut.map(|region| Part { region, task: part.task.clone(), ..*part }));
            }
            !writes
        });
        self.parts.extend(left);
        if !how.region.is_empty() {
            self.parts.push(Part { region: how.region.clone(), task: task.clone(), writes });
        }
    }
}
