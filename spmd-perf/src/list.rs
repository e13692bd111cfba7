//! `--list-algorithms`: every collective that has a choice, from the table by which calls choose.

use std::fmt::Write;

use spmd_core::algorithm::{CHOICES, Choice, Size};

/// What the short names mean.
const LEGEND: &str = "\
n ranks; b bytes of one rank's data, or of one block; s bytes of a segment (SPMD_SEGMENT), k of them
in b. Steps: how often a rank waits for others. Bytes: what a rank reads from others' memory, and
what it copies once more where data are staged. docs/algorithms.md explains them.
";

/// The list, as it is printed.
pub(crate) fn list() -> String {
    let mut text = LEGEND.to_owned();
    for (index, choice) in CHOICES.iter().enumerate() {
        // Collectives with the same algorithms stand together.
        let same = |other: &Choice| std::ptr::eq(other.candidates, choice.candidates);
        if index > 0 && same(&CHOICES[index - 1]) {
            continue;
        }
        let names: Vec<_> =
            CHOICES[index..].iter().take_while(|it| same(it)).map(|it| it.kind.name()).collect();
        let by = match choice.by {
            Size::One => "bytes of one rank's data, or of the longest block",
            Size::All => "bytes of all blocks together, as one rank sends them",
            Size::Unknown => "ranks alone: they know no size that they agree on",
        };
        let _ = writeln!(text, "\n{} (by {by})", names.join(", "));
        for candidate in choice.candidates {
            let _ =
                writeln!(text, "  {:<9} chosen: {}", candidate.algorithm.name(), candidate.chosen);
            let _ = writeln!(text, "  {:<9} steps:  {}", "", candidate.steps);
            let _ = writeln!(text, "  {:<9} bytes:  {}", "", candidate.bytes);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed() {
        let text = list();
        for choice in CHOICES {
            let name = choice.kind.name();
            assert!(text.contains(&format!("{name} (")) || text.contains(&format!("{name}, ")));
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
