//! What is made of the description of the options: completions for shells, and a page for `man`.

use clap::Command;

use super::JobOptions;

/// The text that the command line asks for, if it does.
pub(super) fn asked_for(job: &JobOptions, mut options: Command) -> Option<String> {
    let mut text = Vec::new();
    if let Some(shell) = job.completions {
        clap_complete::generate(shell, &mut options, "spmdrun", &mut text);
    } else if job.man {
        clap_mangen::Man::new(options).render(&mut text).ok()?;
    } else {
        return None;
    }
    String::from_utf8(text).ok()
}
