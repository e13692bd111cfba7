//! The verbs are the library's: a type of the program's own has none of them.

use spmd::prelude::*;

struct Mine;

impl Barrier for Mine {
    fn barrier(&self) -> Result<()> {
        Ok(())
    }
}

struct Last;

impl spmd::Source for Last {
    fn source(self) -> Option<usize> {
        None
    }
}

fn main() {}
