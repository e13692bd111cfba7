//! Steps in a row, each with its time, and what became of all of them.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::ahead;
use crate::count::Count;
use crate::leftovers;
use crate::tools::{self, Ran};

/// How a step ended.
pub(crate) enum Outcome {
    Passed(Count),
    Failed(Count, String),
    Skipped(String),
}

impl Outcome {
    /// That of a step that is one command.
    pub(crate) fn of(command: Command) -> Outcome {
        Outcome::of_saying(command, "")
    }

    /// The same, which fails as well where the command does not write these words.
    pub(crate) fn of_saying(command: Command, words: &str) -> Outcome {
        let Ran { wrong, mut count, text } = tools::watch(command);
        match wrong.or_else(|| (!text.contains(words)).then(|| format!("'{words}' is not said"))) {
            None if count.failed == 0 => {
                count += if count.is_empty() { Count::PASSED } else { Count::default() };
                Outcome::Passed(count)
            }
            wrong => Outcome::Failed(count, wrong.unwrap_or("tests failed".into())),
        }
    }

    /// One after the other, whatever becomes of those before.
    pub(crate) fn of_all(commands: impl IntoIterator<Item = Command>) -> Outcome {
        Outcome::sum(commands.into_iter().map(Outcome::of))
    }

    /// Of all together.
    pub(crate) fn sum(all: impl IntoIterator<Item = Outcome>) -> Outcome {
        let (mut sum, mut wrong) = (Count::default(), Vec::new());
        for outcome in all {
            match outcome {
                Outcome::Passed(count) => sum += count,
                Outcome::Failed(count, why) => {
                    sum += count;
                    wrong.push(why);
                }
                skipped => return skipped,
            }
        }
        if wrong.is_empty() { Outcome::Passed(sum) } else { Outcome::Failed(sum, wrong.join(", ")) }
    }

    /// Of a step that did not come as far as its tests.
    pub(crate) fn failed(why: String) -> Outcome {
        Outcome::Failed(Count::default(), why)
    }
}

/// One part of what is tested.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn() -> Outcome,
    /// What it builds in a folder of its own, or fetches, which can be done before its turn.
    pub(crate) ahead: Option<fn() -> Option<Command>>,
    /// Its tests leave processors idle: others may build beside them.
    pub(crate) waits: bool,
}

impl Step {
    pub(crate) const fn new(name: &'static str, about: &'static str, run: fn() -> Outcome) -> Step {
        Step { name, about, run, ahead: None, waits: false }
    }

    pub(crate) const fn ahead(mut self, build: fn() -> Option<Command>) -> Step {
        self.ahead = Some(build);
        self
    }

    pub(crate) const fn waits(mut self) -> Step {
        self.waits = true;
        self
    }
}

/// Runs all steps, whatever becomes of the earlier ones, and tells how they went. The last line
/// is `N passed, N failed, N skipped`: tests, where a step counts tests, else the step itself.
pub(crate) fn run(steps: &[&Step]) -> bool {
    let start = Instant::now();
    let mut total = Count::default();
    let mut report = Vec::new();
    let mut builds = None;
    for (at, step) in steps.iter().enumerate() {
        println!("\n=== {}: {}", step.name, step.about);
        if step.waits && builds.is_none() {
            let later = steps[at..].iter().filter_map(|step| step.ahead);
            builds = Some(ahead::build(later.collect()));
        }
        let begin = Instant::now();
        let outcome = (step.run)();
        leftovers::remove();
        let (line, count) = told(step, outcome, begin.elapsed());
        println!("{line}");
        total += count;
        report.push(line);
    }
    builds.into_iter().for_each(ahead::Builds::end);
    println!("\n=== all, in {}", clock(start.elapsed()));
    report.iter().for_each(|line| println!("{line}"));
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    total.failed == 0
}

fn told(step: &Step, outcome: Outcome, time: Duration) -> (String, Count) {
    let (name, time) = (step.name, clock(time));
    match outcome {
        Outcome::Passed(count) => {
            let ignored = match count.skipped {
                0 => String::new(),
                skipped => format!(", {skipped} skipped"),
            };
            (format!("{name:12} {time}  passed: {}{ignored}", count.passed), count)
        }
        Outcome::Failed(mut count, why) => {
            // A build that failed has no failed test; it counts as one.
            count.failed = count.failed.max(1);
            (format!("{name:12} {time}  FAILED: {} ({why})", count.failed), count)
        }
        Outcome::Skipped(why) => (format!("{name:12} {time}  SKIPPED: {why}"), Count::SKIPPED),
    }
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{:2}:{:02}", seconds / 60, seconds % 60)
}
