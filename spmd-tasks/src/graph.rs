//! The graph of a rank's tasks, as far as it is recorded.

use std::fmt;
use std::panic::Location;

use parking_lot::Mutex;
use spmd_core::internal::Label;

/// So many needs are recorded for each task that may be.
const NEEDS_PER_TASK: usize = 8;

/// Why a task comes after another one.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// It gets the other one's value.
    Value,
    /// Both use some data.
    Data,
    /// Both are in a sequence.
    Order,
}

/// How far a task is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Waiting,
    Ready,
    Running,
    Over,
    Failed,
    Cancelled,
}

impl State {
    /// What it is called, and its colour.
    fn shown(self) -> (&'static str, &'static str) {
        match self {
            State::Waiting => ("waiting", "white"),
            State::Ready => ("ready", "lightyellow"),
            State::Running => ("running", "lightblue"),
            State::Over => ("over", "palegreen"),
            State::Failed => ("failed", "lightcoral"),
            State::Cancelled => ("cancelled", "lightgray"),
        }
    }
}

/// The tasks that a rank has spawned since this was begun, up to a limit.
pub(crate) struct Log {
    limit: usize,
    recorded: Mutex<Recorded>,
}

#[derive(Clone, Debug, Default)]
struct Recorded {
    tasks: Vec<(Option<Label>, &'static Location<'static>, State)>,
    /// The second needs the first.
    needs: Vec<(u32, u32, Need)>,
    /// What is beyond the limit.
    more_tasks: usize,
    more_needs: usize,
}

impl Log {
    pub(crate) fn new(limit: usize) -> Log {
        Log { limit: limit.min(u32::MAX as usize), recorded: Mutex::default() }
    }

    /// Adds a task. Its number, if there is room for it.
    pub(crate) fn add(&self, name: Option<&str>, site: &'static Location<'static>) -> Option<u32> {
        let mut recorded = self.recorded.lock();
        if recorded.tasks.len() == self.limit {
            recorded.more_tasks += 1;
            return None;
        }
        recorded.tasks.push((name.map(Label::new), site, State::Waiting));
        Some(recorded.tasks.len() as u32 - 1)
    }

    /// A task needs another one. A number is missing of a task for which there was no room.
    pub(crate) fn needs(&self, task: Option<u32>, other: Option<u32>, why: Need) {
        let mut recorded = self.recorded.lock();
        match (task, other) {
            (Some(task), Some(other)) if recorded.needs.len() / NEEDS_PER_TASK < self.limit => {
                recorded.needs.push((other, task, why));
            }
            _ => recorded.more_needs += 1,
        }
    }

    pub(crate) fn is(&self, task: u32, state: State) {
        if let Some(task) = self.recorded.lock().tasks.get_mut(task as usize) {
            task.2 = state;
        }
    }
}

/// The tasks of a rank and what they need, as they were when this was made: see
/// [`Tasks::task_graph`](crate::Tasks::task_graph).
///
/// Displayed, it is a graph in the language of Graphviz, for `dot -Tsvg` and its like. An arrow leads
/// from a task to one that needs it: a solid one if that gets its value, a dashed one if both use some
/// data, a dotted one if both are in a sequence.
#[derive(Clone, Debug)]
pub struct TaskGraph {
    rank: usize,
    /// How many tasks could be in it; none was recorded without.
    limit: Option<usize>,
    recorded: Recorded,
}

impl TaskGraph {
    pub(crate) fn of(rank: usize, log: Option<&Log>) -> TaskGraph {
        let recorded = log.map(|log| log.recorded.lock().clone()).unwrap_or_default();
        TaskGraph { rank, limit: log.map(|log| log.limit), recorded }
    }

    fn title(&self) -> String {
        let Recorded { more_tasks, more_needs, .. } = self.recorded;
        let rank = self.rank;
        match self.limit {
            None => {
                format!("Tasks of rank {rank} are not recorded: call record_tasks(limit) first")
            }
            Some(_) if more_tasks + more_needs == 0 => format!("Tasks of rank {rank}"),
            Some(limit) => format!(
                "Tasks of rank {rank}, the first {limit}; {more_tasks} tasks and {more_needs} arrows \
                 more are not recorded"
            ),
        }
    }
}

impl fmt::Display for TaskGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "digraph tasks {{")?;
        writeln!(f, "  label=\"{}\";", self.title())?;
        writeln!(f, "  node [shape=box, style=filled];")?;
        for (number, (name, site, state)) in self.recorded.tasks.iter().enumerate() {
            let (line, (state, colour)) =
                (format!("{}:{}", site.file(), site.line()), state.shown());
            let name = name.map_or_else(String::new, |name| escaped(&name.to_string()) + "\\n");
            let label = format!("{name}{}\\n{state}", escaped(&line));
            writeln!(f, "  t{number} [label=\"{label}\", fillcolor={colour}];")?;
        }
        for (from, to, why) in &self.recorded.needs {
            let style = match why {
                Need::Value => "",
                Need::Data => " [style=dashed]",
                Need::Order => " [style=dotted]",
            };
            writeln!(f, "  t{from} -> t{to}{style};")?;
        }
        writeln!(f, "}}")
    }
}

/// A text as it stands in quotes there.
fn escaped(text: &str) -> String {
    let one = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".into(),
        c if c.is_control() => " ".into(),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}
