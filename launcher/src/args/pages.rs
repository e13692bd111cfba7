//! What is made of the description of the options: completions for shells, and a page for `man`.

use clap::Command;
use clap_complete::Shell;

/// What this shell needs to complete the options.
pub(super) fn completions(shell: Shell, mut options: Command) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut options, "spmdrun", &mut text);
    text
}

/// The page of the options.
pub(super) fn man(options: Command) -> Vec<u8> {
    let mut text = Vec::new();
    // A vector takes all that is written to it.
    let _ = clap_mangen::Man::new(options).render(&mut text);
    text
}
