//! What is behind an error.

use std::error::Error;
use std::fmt;
use std::iter::successors;

/// The error, what is behind it, and so on.
pub(super) fn all<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let behind = |error: &&'a (dyn Error + 'static)| -> Option<&'a (dyn Error + 'static)> {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    };
    successors(Some(error), behind)
}

/// The texts of all of these, each behind the one that it has caused, but for those that the one before
/// says already.
pub(crate) struct WithCauses<'a>(pub(super) &'a (dyn Error + 'static));

impl fmt::Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        for cause in all(self.0) {
            let text = cause.to_string();
            if said.is_empty() {
                said = text;
            } else if !said.ends_with(&text) {
                said = format!("{said}: {text}");
            }
        }
        // In one piece: `main` writes it to a place where other ranks may write, too.
        f.write_str(&said)
    }
}
