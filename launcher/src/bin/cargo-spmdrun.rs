//! `cargo spmdrun`: builds a program with cargo, then starts its ranks as `spmdrun` does.

fn main() -> std::process::ExitCode {
    spmd_launcher::cargo_spmdrun()
}
