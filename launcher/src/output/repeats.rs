//! What several processes write alike when they fail: the error that `main` returns. It is shown once, and
//! at the end who has written the same.

use crate::topology::Cpus;

/// So many different errors are known. Others are shown as they come.
const ERRORS: usize = 16;
/// So many lines of an error are compared, of so many bytes.
const LINES: usize = 64;
const BYTES: usize = 16 << 10;
/// So much of an error says which one is meant.
const SHORT: usize = 60;

/// How the standard library begins an error that `main` returns.
const BEGINNING: &[u8] = b"Error: ";

/// The errors that were shown.
#[derive(Default)]
pub(super) struct Repeats(Vec<Shown>);

struct Shown {
    lines: Vec<Vec<u8>>,
    first: usize,
    /// The ranks whose same error was not shown.
    others: Cpus,
}

/// Where a process is in what it writes.
#[derive(Clone, Copy, Default)]
pub(super) enum At {
    #[default]
    Elsewhere,
    /// In the error of this number, as the first.
    First(usize),
    /// In one that another has written before, of which so many lines have come.
    Again(usize, usize),
}

impl Repeats {
    /// Whether a line is to be shown that this rank has written to standard error.
    pub(super) fn shows(&mut self, at: &mut At, rank: usize, line: &[u8]) -> bool {
        if line.starts_with(BEGINNING) {
            return self.begins(at, rank, line);
        }
        match *at {
            At::Elsewhere => true,
            At::First(error) => {
                let lines = &mut self.0[error].lines;
                match lines.len() < LINES && line.len() <= BYTES {
                    true => lines.push(line.to_vec()),
                    false => *at = At::Elsewhere,
                }
                true
            }
            At::Again(error, next) => {
                let same = self.0[error].lines.get(next).is_some_and(|it| it == line);
                *at = if same { At::Again(error, next + 1) } else { At::Elsewhere };
                !same
            }
        }
    }

    fn begins(&mut self, at: &mut At, rank: usize, line: &[u8]) -> bool {
        let known = self.0.iter_mut().enumerate().find(|(_, it)| it.lines[0] == line);
        let Some((number, error)) = known else {
            *at = At::Elsewhere;
            if self.0.len() < ERRORS && line.len() <= BYTES {
                *at = At::First(self.0.len());
                let lines = vec![line.to_vec()];
                self.0.push(Shown { lines, first: rank, others: Cpus::default() });
            }
            return true;
        };
        // What a rank writes twice it means twice.
        if error.first == rank || !error.others.0.insert(rank) {
            *at = At::Elsewhere;
            return true;
        }
        *at = At::Again(number, 1);
        false
    }

    /// A line for each error that was written by others, too.
    pub(super) fn told(&self) -> Vec<String> {
        let several = self.0.iter().filter(|error| error.others.len() > 0);
        several.map(Shown::told).collect()
    }
}

impl Shown {
    fn told(&self) -> String {
        let text = String::from_utf8_lossy(&self.lines[0]);
        let short: String = text.chars().take(SHORT).collect();
        let more = if short.len() < text.len() { ".." } else { "" };
        let Shown { first, others, .. } = self;
        let (ranks, verb) = if others.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
        format!("{ranks} {others} {verb} printed the same as rank {first}: {short}{more}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of these lines of ranks, and what is told at the end.
    fn shown(lines: &[(usize, &str)]) -> (Vec<usize>, Vec<String>) {
        let (mut repeats, mut at) = (Repeats::default(), [At::default(); 8]);
        let each = lines.iter().enumerate();
        let shown =
            each.filter(|(_, (rank, line))| repeats.shows(&mut at[*rank], *rank, line.as_bytes()));
        (shown.map(|(number, _)| number).collect(), repeats.told())
    }

    #[test]
    fn an_error_of_many_ranks_is_shown_once() {
        let lines = [
            (3, "Error: no"),
            (3, "because"),
            (0, "hello"),
            (1, "Error: no"),
            (2, "Error: no"),
            (1, "because"),
            (2, "of something else"),
            (0, "Error: other"),
        ];
        let (shown, told) = shown(&lines);
        assert_eq!(shown, [0, 1, 2, 6, 7]);
        assert_eq!(told, ["ranks 1-2 have printed the same as rank 3: Error: no"]);
    }

    #[test]
    fn what_a_rank_writes_twice_is_shown_twice() {
        let again = [(0, "Error: x"), (0, "Error: x"), (1, "Error: x"), (1, "Error: x")];
        assert_eq!(shown(&again).0, [0, 1, 3]);
    }

    #[test]
    fn no_more_is_kept_than_said() {
        let (mut repeats, mut at) = (Repeats::default(), At::default());
        for number in 0..2 * ERRORS {
            assert!(repeats.shows(&mut at, 0, format!("Error: {number}").as_bytes()));
            for _ in 0..2 * LINES {
                assert!(repeats.shows(&mut at, 0, b"more"));
            }
        }
        assert_eq!(repeats.0.len(), ERRORS);
        assert!(repeats.0.iter().all(|it| it.lines.len() == LINES));
        assert!(repeats.shows(&mut at, 0, &[BEGINNING, &[b'x'; BYTES]].concat()));
    }
}
