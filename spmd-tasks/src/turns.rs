//! Tasks that use the same data one at a time, in whichever order they come.
//!
//! # Why each of them gets its turn
//! A task asks for its turn when it needs nothing else, and takes all its data in one step, under all
//! their locks, or none of them. So whoever has data waits for nothing but a worker, and no cycle of
//! waits goes through them, in whatever order tasks name their data. A task that finds data taken is put
//! into their list under the lock under which it has found that. Whoever has them gives them back at
//! its end, and then calls those in the list, until one of them takes these data, or finds others of its
//! own taken and is in their list, or nobody is left: a task is in a list only while somebody has the
//! data, or calls. Locks are taken in the order of their addresses, and nothing else is done under them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::*};

use parking_lot::Mutex;

use crate::failure::Failure;

/// It has not come to its turn.
const WAITS: u8 = 0;
/// It has its data.
const HAS: u8 = 1;
/// It is over.
const GONE: u8 = 2;

/// A task that has turns.
pub trait InTurn: Send + Sync {
    fn turn(&self) -> Option<&Turn>;
    /// Its turn has come, or it needs none any more.
    fn has_turn(self: Arc<Self>);
}

/// Who has some data, and who is to have them next. As many may wait as there are tasks.
#[derive(Default)]
pub struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    taken: bool,
    waiting: VecDeque<Arc<dyn InTurn>>,
    /// Why the data are no good: one has failed that had them.
    failure: Option<Failure>,
}

/// What a task takes together.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Turn {
    /// In the order of their addresses.
    queues: Box<[Arc<Queue>]>,
    state: AtomicU8,
}

impl Turn {
    /// A task's that needs all of these; none, if it needs nothing.
    pub(crate) fn of(mut queues: Vec<Arc<Queue>>) -> Option<Turn> {
        queues.sort_unstable_by_key(|queue| Arc::as_ptr(queue).addr());
        let turn = Turn { queues: queues.into(), state: AtomicU8::new(WAITS) };
        (!turn.queues.is_empty()).then_some(turn)
    }

    /// Why the data are no good, if the task that has its turn finds them so.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.queues.iter().find_map(|queue| queue.0.lock().failure.clone())
    }

    /// A task that needs nothing else takes its turn now, or when it comes.
    pub(crate) fn take(task: Arc<dyn InTurn>) {
        let mut free = Vec::new();
        take(task, &mut free);
        call(free);
    }

    /// The task, whose turn this is, is over.
    pub(crate) fn ends(&self, failure: Option<&Failure>) {
        if self.state.swap(GONE, AcqRel) == HAS {
            self.give_back(failure);
            call(self.queues.to_vec());
        }
    }

    /// Whether nobody had any of its data, which it has now. Else the task is in the list of one of them.
    fn takes_all(&self, task: &Arc<dyn InTurn>) -> bool {
        let mut states: Vec<_> = self.queues.iter().map(|queue| queue.0.lock()).collect();
        if let Some(taken) = states.iter_mut().find(|state| state.taken) {
            taken.waiting.push_back(task.clone());
            return false;
        }
        states.iter_mut().for_each(|state| state.taken = true);
        true
    }

    fn give_back(&self, failure: Option<&Failure>) {
        for queue in &self.queues {
            let mut state = queue.0.lock();
            state.taken = false;
            state.failure = state.failure.take().or_else(|| failure.cloned());
        }
    }
}

/// The task takes its turn, or is in a list. Puts here what it has given back, as it is over.
fn take(task: Arc<dyn InTurn>, free: &mut Vec<Arc<Queue>>) {
    let Some(turn) = task.turn() else { return };
    // A scope that gives up ends tasks that wait: they need no turn.
    let is_gone = turn.state.load(Acquire) == GONE;
    if !is_gone && !turn.takes_all(&task) {
        return;
    }
    if !is_gone && turn.state.compare_exchange(WAITS, HAS, AcqRel, Acquire).is_err() {
        turn.give_back(None);
        free.extend_from_slice(&turn.queues);
    }
    task.has_turn();
}

/// Calls those who wait for these data, which were given back.
fn call(mut free: Vec<Arc<Queue>>) {
    while let Some(queue) = free.pop() {
        while let Some(task) = queue.next() {
            take(task, &mut free);
        }
    }
}

impl Queue {
    /// Who has waited longest, unless somebody has the data.
    fn next(&self) -> Option<Arc<dyn InTurn>> {
        let mut state = self.0.lock();
        if state.taken { None } else { state.waiting.pop_front() }
    }
}
