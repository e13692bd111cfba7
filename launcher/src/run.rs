//! Running a job, from its first process to the last byte of its output.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, at, bounded, never, select};
use signal_hook::consts::SIGTSTP;

use crate::debugger::Debugger;
use crate::environment::Environment;
use crate::error::Error;
use crate::event::Event;
use crate::place::Places;
use crate::plan::Plan;
use crate::process::Process;
use crate::report::Outcome;
use crate::signals::ENDING;
use crate::streams::Streams;
use crate::supervise::Supervisor;
use crate::{alarm, input, job, signals, spawn, watchdog};

/// How long the last line may take to be written once output has been given up.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How many events may wait; whoever has another one waits, too. Signals that come faster than they
/// can be passed on are one in the meantime, as the kernel has it, so that one that ends the job
/// never stands behind many.
const EVENTS: usize = 16;

/// How long the launcher waits for whoever reads its output. It may have stopped reading: a job
/// that was told to end waits no longer than the grace, and a signal shortens the wait for any.
struct Patience {
    until: Option<Instant>,
    /// The signal that has told the job, or the launcher, to end, if there is an end to the wait.
    told: Option<i32>,
}

/// Runs the job to its end.
pub(crate) fn run(plan: &Plan, places: &Places, environment: &Environment) -> Result<u8, Error> {
    let (sender, events) = bounded(EVENTS);
    signals::listen(sender.clone())?;
    let streams = Streams::start(&sender)?;
    let (lines, code, cut) = match supervised(plan, places, environment, &streams, sender, &events)
    {
        Ok((outcome, cut)) => {
            let (mut lines, code) = last_words(&outcome, cut, streams.lost());
            lines.extend(environment.trace_line(plan, code == 0));
            (lines, code, cut)
        }
        Err(error) => (vec![error.to_string()], error.status(), None),
    };
    lines.iter().for_each(|line| streams.say(line));
    let until = cut.map(|_| Instant::now() + LAST_WORDS);
    let last = streams.flush().split_off(streams.last());
    Patience { until, told: cut }.wait_for(&events, last);
    Ok(code)
}

/// Runs it until its output is written or given up; returns by which signal, if it was.
fn supervised(
    plan: &Plan,
    places: &Places,
    environment: &Environment,
    streams: &Streams,
    sender: Sender<Event>,
    events: &Receiver<Event>,
) -> Result<(Outcome, Option<i32>), Error> {
    alarm::listen(environment, sender.clone())?;
    environment.begin_trace(plan)?;
    // Before the job, whose shared memory it would inherit.
    let watchdog = watchdog::Watchdog::start(&environment.token)?;
    let job = job::create(plan)?;
    let job = job.as_ref();
    let debugger = Debugger::find(plan)?;
    let mut started = spawn::start(plan, places, job, environment, watchdog, streams)?;
    input::forward(started.inputs)?;
    let reader = started.output.map(|output| output.start(sender)).transpose()?;
    let mut reading = reader.is_some();
    if let Some(debugger) = debugger {
        let debugged = |process: &&Process| plan.is_debugged(process.ranks.start);
        let mut debugged = started.processes.all.iter().filter(debugged);
        debugged.try_for_each(|process| debugger.attach(process, streams))?;
    }
    let supervisor = Supervisor::new(plan, job, &mut started.processes.all, streams);
    let (outcome, told) = supervisor.run(events, &mut reading);
    started.processes.end();
    if plan.under.is_some() {
        // An MPI launcher's processes are in groups of their own.
        watchdog::kill_strays(&environment.token);
    }
    drop(reader);
    let mut patience = Patience { until: told.map(|_| Instant::now() + plan.grace), told };
    let read = if reading { vec![Event::OutputDone] } else { Vec::new() };
    let written = patience.wait_for(events, read) && patience.wait_for(events, streams.flush());
    Ok((outcome, patience.told.filter(|_| !written)))
}

impl Patience {
    /// Waits until all of these have happened; `false` if it gives up before.
    fn wait_for(&mut self, events: &Receiver<Event>, mut missing: Vec<Event>) -> bool {
        while !missing.is_empty() {
            let late = self.until.map_or_else(never, at);
            select! {
                recv(events) -> event => match event {
                    Ok(Event::Signal(SIGTSTP)) => {
                        let stopped = signals::stop();
                        self.until = self.until.map(|until| until + stopped);
                    }
                    Ok(Event::Signal(signal)) if ENDING.contains(&signal) => self.shorten(signal),
                    Ok(event) => missing.retain(|awaited| *awaited != event),
                    // The threads that send last as long as this.
                    Err(_) => return true,
                },
                recv(late) -> _ => return false,
            }
        }
        true
    }

    /// What is written already may need a moment to be known as such.
    fn shorten(&mut self, signal: i32) {
        let soon = Instant::now() + LAST_WORDS;
        self.until = Some(self.until.map_or(soon, |until| until.min(soon)));
        self.told = Some(signal);
    }
}

/// What is said last, and the exit status. `cut` is the signal by which output was given up.
fn last_words(outcome: &Outcome, cut: Option<i32>, lost: Option<String>) -> (Vec<String>, u8) {
    let mut lines = Vec::from_iter(outcome.last_line());
    match (outcome.status(), cut, lost) {
        (0, Some(signal), _) => {
            let given_up = Outcome::Interrupted { signal };
            lines.push("the job would be a success, but nobody has read all of its output".into());
            lines.extend(given_up.last_line());
            (lines, given_up.status())
        }
        (0, None, Some(lost)) => {
            lines.push(format!("the job would be a success, but output is lost: {lost}"));
            (lines, 1)
        }
        (code, Some(_), _) => {
            lines.insert(0, "the last of the output is lost: nobody has read it".into());
            (lines, code)
        }
        (code, None, _) => (lines, code),
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;
    use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

    use super::*;

    #[test]
    fn lost_output_is_no_success() {
        let code =
            |cut, lost: Option<&str>| last_words(&Outcome::Success, cut, lost.map(str::to_owned)).1;
        assert_eq!(code(None, None), 0);
        assert_eq!(code(None, Some("a full disk")), 1);
        assert_eq!(code(Some(SIGTERM), None), 143);
        let ended = Outcome::Interrupted { signal: SIGINT };
        let (lines, code) = last_words(&ended, Some(SIGINT), None);
        assert!(code == 130 && lines[0].contains("lost") && lines.len() == 2, "{lines:?}");
    }

    /// Waits for an event that comes so long after these.
    fn waited(first: &[Event], patience: &mut Patience, after: Duration) -> bool {
        let (sender, events) = unbounded();
        first.iter().for_each(|event| sender.send(event.clone()).unwrap());
        let late = sender.clone();
        std::thread::spawn(move || {
            std::thread::sleep(after);
            let _ = late.send(Event::OutputDone);
        });
        patience.wait_for(&events, vec![Event::OutputDone])
    }

    #[test]
    fn a_signal_gives_up_only_what_is_not_there_in_a_moment() {
        let (soon, never) = (Duration::from_millis(20), Duration::from_secs(3600));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let ending = [Event::Signal(signal)];
            let mut patience = Patience { until: None, told: None };
            assert!(waited(&ending, &mut patience, soon));
            let mut patience = Patience { until: None, told: None };
            assert!(!waited(&ending, &mut patience, never) && patience.told == Some(signal));
        }
        // The end of the grace comes first.
        let until = Some(Instant::now() + soon);
        let mut patience = Patience { until, told: Some(SIGINT) };
        assert!(!waited(&[Event::Signal(SIGTERM), Event::Signal(SIGCHLD)], &mut patience, never));
        assert!(patience.until == until && patience.told == Some(SIGTERM));
    }
}
