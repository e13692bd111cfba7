//! Running a job, from its first process to the last byte of its output.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, at, never, select, unbounded};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::environment::Environment;
use crate::error::Error;
use crate::place::Places;
use crate::plan::Plan;
use crate::report::Outcome;
use crate::streams::Streams;
use crate::supervise::{Event, Supervisor};
use crate::{alarm, create_job, input, signals, spawn, watchdog};

/// How long the last line may take to be written once output has been given up.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why output was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The grace has passed since a job that was told to end has ended.
    Late,
    Signal(i32),
}

/// Runs the job to its end.
pub(crate) fn run(plan: &Plan, places: &Places, environment: &Environment) -> Result<u8, Error> {
    let (sender, events) = unbounded();
    signals::listen(sender.clone())?;
    let streams = Streams::start(&sender)?;
    let (lines, code, cut) = match supervised(plan, places, environment, &streams, sender, &events)
    {
        Ok((outcome, cut)) => {
            let (lines, code) = last_words(&outcome, cut, streams.lost());
            (lines, code, cut)
        }
        Err(error) => (vec![error.to_string()], error.status(), None),
    };
    lines.iter().for_each(|line| streams.say(line));
    let deadline = cut.map(|_| Instant::now() + LAST_WORDS);
    wait_for(&events, deadline, streams.flush().split_off(streams.last()));
    Ok(code)
}

/// Runs it until its output is written, or given up.
fn supervised(
    plan: &Plan,
    places: &Places,
    environment: &Environment,
    streams: &Streams,
    sender: Sender<Event>,
    events: &Receiver<Event>,
) -> Result<(Outcome, Option<Cut>), Error> {
    alarm::listen(environment, sender.clone())?;
    environment.begin_trace()?;
    // Before the job, whose shared memory it would inherit.
    let watchdog = watchdog::Watchdog::start(&environment.token)?;
    let job = create_job(plan)?;
    let job = job.as_ref();
    let mut started = spawn::start(plan, places, job, environment, watchdog, streams)?;
    input::forward(started.inputs)?;
    let reader = started.output.map(|output| output.start(sender)).transpose()?;
    let mut reading = reader.is_some();
    let supervisor = Supervisor::new(plan, job, &mut started.processes.all, streams);
    let outcome = supervisor.run(events, &mut reading);
    started.processes.end();
    if plan.under.is_some() {
        // An MPI launcher's processes are in groups of their own.
        watchdog::kill_strays(&environment.token);
    }
    drop(reader);
    // Whoever reads our output may have stopped reading: a job that was told to end waits no
    // longer than the grace, and a signal ends any.
    let deadline = outcome.told_to_end().then(|| Instant::now() + plan.grace);
    let read = if reading { vec![Event::OutputDone] } else { Vec::new() };
    let cut =
        wait_for(events, deadline, read).or_else(|| wait_for(events, deadline, streams.flush()));
    Ok((outcome, cut))
}

/// Waits until all of these have happened; says why not, if it gives up before.
fn wait_for(
    events: &Receiver<Event>,
    deadline: Option<Instant>,
    mut missing: Vec<Event>,
) -> Option<Cut> {
    let late = deadline.map_or_else(never, at);
    while !missing.is_empty() {
        select! {
            recv(events) -> event => match event {
                Ok(Event::Signal(signal @ (SIGINT | SIGTERM))) => return Some(Cut::Signal(signal)),
                Ok(event) => missing.retain(|awaited| *awaited != event),
                // The threads that send last as long as this.
                Err(_) => return None,
            },
            recv(late) -> _ => return Some(Cut::Late),
        }
    }
    None
}

/// What is said last, and the exit status.
fn last_words(outcome: &Outcome, cut: Option<Cut>, lost: Option<String>) -> (Vec<String>, u8) {
    let mut lines = Vec::from_iter(outcome.last_line());
    match (outcome.status(), cut, lost) {
        (0, Some(Cut::Signal(signal)), _) => {
            let given_up = Outcome::Interrupted { signal };
            lines.push("the ranks have ended well, but nobody has read all of their output".into());
            lines.extend(given_up.last_line());
            (lines, given_up.status())
        }
        (0, _, Some(lost)) => {
            lines.push(format!("the ranks have ended well, but output is lost: {lost}"));
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
    use super::*;

    #[test]
    fn lost_output_is_no_success() {
        let code =
            |cut, lost: Option<&str>| last_words(&Outcome::Success, cut, lost.map(str::to_owned)).1;
        assert_eq!(code(None, None), 0);
        assert_eq!(code(None, Some("a full disk")), 1);
        assert_eq!(code(Some(Cut::Signal(SIGTERM)), None), 143);
        let ended = Outcome::Interrupted { signal: SIGINT };
        let (lines, code) = last_words(&ended, Some(Cut::Late), None);
        assert!(code == 130 && lines[0].contains("lost") && lines.len() == 2, "{lines:?}");
    }
}
