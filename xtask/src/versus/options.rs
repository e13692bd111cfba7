//! The command line of a comparison.

use std::path::PathBuf;

use super::rows::{Group, Row};
use crate::tools::built;

/// What a comparison is asked for.
pub(super) struct Options {
    pub(super) rounds: usize,
    /// Rows whose titles contain this.
    pub(super) only: Option<String>,
    pub(super) groups: Vec<Group>,
    /// The commit to be beside, instead of other libraries.
    pub(super) against: Option<String>,
    /// Where the results go.
    pub(super) output: PathBuf,
}

impl Options {
    /// Whether this row is asked for.
    pub(super) fn wants(&self, row: &Row) -> bool {
        let only = self.only.as_deref();
        self.groups.contains(&row.group) && only.is_none_or(|text| row.title().contains(text))
    }

    pub(super) fn parse(words: &[&str]) -> Result<Options, String> {
        let (groups, output) = (Group::ALL.to_vec(), built("versus"));
        let mut options = Options { rounds: 5, only: None, groups, against: None, output };
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                return Err(format!("'{}' needs a value", pair[0]));
            };
            match *name {
                "--rounds" => options.rounds = number_of_rounds(value)?,
                "--against" => options.against = Some(value.to_string()),
                "--only" => options.only = Some(value.to_string()),
                "--group" => {
                    options.groups.retain(|group| group.name() == *value);
                    if options.groups.is_empty() {
                        return Err(format!("'{value}' is no group: two or sixteen"));
                    }
                }
                "--output" => {
                    // What draws the picture runs in another folder.
                    let output = std::path::absolute(value);
                    options.output = output.map_err(|error| format!("'{value}': {error}"))?;
                }
                other => return Err(format!("'{other}' is not known")),
            }
        }
        Ok(options)
    }
}

pub(super) fn number_of_rounds(value: &str) -> Result<usize, String> {
    let rounds = value.parse().ok().filter(|rounds| *rounds > 0);
    rounds.ok_or(format!("'{value}' is no number of rounds"))
}
