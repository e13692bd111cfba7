//! `spmdrun`: starts the ranks of a program and supervises them.

fn main() -> std::process::ExitCode {
    spmd_launcher::spmdrun()
}
