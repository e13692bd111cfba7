//! `--dry-run`: what would be started, as lines that a shell understands.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;

use crate::environment::Environment;
use crate::job::Job;
use crate::place::Places;
use crate::plan::Plan;

/// One line for each process: its rank and CPUs as a comment at the end, after its directory, the
/// variables that are set for it, and its command.
pub(crate) fn describe(
    plan: &Plan,
    places: &Places,
    environment: &Environment,
    job: Option<&Job>,
) -> String {
    let mut text = String::new();
    for (rank, program) in plan.processes().enumerate() {
        if let Some(cwd) = &program.cwd {
            let _ = write!(text, "cd {} && ", quoted(cwd.as_os_str()));
        }
        for (name, value) in environment.of(plan, program, rank, places, job, false) {
            let _ = write!(text, "{name}={} ", quoted(&value));
        }
        text += &quoted(program.path.as_os_str());
        for argument in &program.arguments {
            let _ = write!(text, " {}", quoted(argument));
        }
        let _ = match plan.one_process() {
            true if plan.size == 1 => writeln!(text, " # rank 0"),
            true => writeln!(text, " # ranks 0 to {}", plan.size - 1),
            false => writeln!(text, " # {}", places.describe(rank)),
        };
    }
    text
}

/// A word as a shell needs it.
fn quoted(word: &OsStr) -> Cow<'_, str> {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting() {
        assert_eq!(quoted(OsStr::new("./a-b=1")), "./a-b=1");
        assert_eq!(quoted(OsStr::new("it's $HOME")), r"'it'\''s $HOME'");
        assert_eq!(quoted(OsStr::new("")), "''");
    }
}
