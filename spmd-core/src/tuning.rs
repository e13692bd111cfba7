//! What makes calls fast or slow and changes no result: which algorithm a call takes, and the size
//! of segments. The same on all ranks of a world.

mod file;
mod format;
mod read;
mod rules;
mod setup;

pub use file::{File, path};
pub use rules::{Rule, Rules, Section};
pub(crate) use setup::Tuning;

/// Reads any text as a tuning file and as one section of it; what is understood is understood
/// again as it is written.
#[cfg(fuzzing)]
pub(crate) fn fuzz(text: &str) {
    if let Ok(sections) = read::sections(text) {
        let again = read::sections(&File::from(sections.clone()).to_string());
        assert!(again.is_ok_and(|again| again == sections));
    }
    if let Ok(section) = Section::from_inline(text) {
        assert_eq!(Section::from_inline(&section.inline()), Ok(section));
    }
}
