//! Running a job where there are no Unix processes: all ranks in one process, whose output and
//! input are the launcher's own.

use std::process::Command;

use crate::environment::Environment;
use crate::error::Error;
use crate::job;
use crate::place::Places;
use crate::plan::Plan;
use crate::report::{Failure, Outcome, ending, say, shell_status};
use crate::variables::not_for_ranks;

pub(crate) fn run(plan: &Plan, places: &Places, environment: &Environment) -> Result<u8, Error> {
    let asked = [
        (plan.tag, "--tag"),
        (plan.timestamps, "--timestamps"),
        (plan.output_dir.is_some(), "--output-dir"),
        (plan.show_ranks.is_some(), "--show-ranks"),
        (plan.timeout.is_some(), "--timeout"),
        (places.union().is_some(), "--bind"),
    ];
    if let Some((_, option)) = asked.iter().find(|(given, _)| *given) {
        return Err(Error::Usage(format!("{option} works on Unix only; drop it")));
    }
    let job = job::create(plan)?;
    let program = &plan.programs[0];
    let mut command = Command::new(&program.path);
    command.args(&program.arguments);
    for name in not_for_ranks() {
        command.env_remove(name);
    }
    environment.begin_trace(plan)?;
    command.envs(environment.of(plan, program, 0, places, job.as_ref(), false));
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
    let status = command
        .status()
        .map_err(|error| Error::system(format!("run {}", program.name.display()), error))?;
    let outcome = match status.success() {
        true => Outcome::Success,
        false => Outcome::Failed(Failure {
            who: Some("the process of all ranks".into()),
            why: ending(status),
            code: shell_status(status).max(1),
        }),
    };
    let trace = environment.trace_line(plan, outcome.status() == 0);
    outcome.last_line().into_iter().chain(trace).for_each(|line| say(&line));
    Ok(outcome.status())
}
