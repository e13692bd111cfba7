//! Modules of a crate form layers: no cycle of imports joins two files. `spmd-layers ROOT..` reads
//! each crate from its root file (`src/lib.rs`, `src/main.rs`) and shows the cycles that it finds,
//! with imports without which there would be none; `--arrows` shows all imports. What is compiled
//! for tests alone does not count.
//!
//! An import is what a file names of another: by `use`, by a path, within a macro. A name that a
//! module exports again belongs to the file that defines it. Methods are not seen, as nobody
//! imports them.

mod graph;
mod imports;
mod modules;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut cycles = 0;
    let mut arguments = std::env::args().skip(1).peekable();
    let all = arguments.next_if(|first| first == "--arrows").is_some();
    for root in arguments {
        match modules::Tree::read(Path::new(&root)) {
            Ok(tree) if all => graph::arrows(&tree),
            Ok(tree) => cycles += graph::report(&root, &tree),
            Err(wrong) => {
                eprintln!("{wrong}");
                return ExitCode::from(2);
            }
        }
    }
    if cycles == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
