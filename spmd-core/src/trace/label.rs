//! Short texts that are copied.

use std::fmt;

const BYTES: usize = 47;
/// What ends one that was longer.
const CUT: &str = "..";

/// The first 47 bytes of a text.
#[derive(Clone, Copy)]
pub struct Label {
    bytes: [u8; BYTES],
    len: u8,
}

impl Label {
    /// Of a text, whose end is left away if it is longer.
    pub fn new(text: &str) -> Label {
        let fits = text.len() <= BYTES;
        let whole = |kept: &usize| text.is_char_boundary(*kept);
        let cut = || (0..=BYTES - CUT.len()).rev().find(whole).unwrap_or(0);
        let kept = if fits { text.len() } else { cut() };
        let (mut bytes, len) = ([0; BYTES], if fits { kept } else { kept + CUT.len() });
        bytes[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        bytes[kept..len].copy_from_slice(&CUT.as_bytes()[..len - kept]);
        Label { bytes, len: len as u8 }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (text, label) in [
            ("", "".to_owned()),
            ("short", "short".into()),
            (&"x".repeat(47), "x".repeat(47)),
            (&"x".repeat(48), "x".repeat(45) + ".."),
            (&"ü".repeat(24), "ü".repeat(22) + ".."),
        ] {
            assert_eq!(Label::new(text).to_string(), label);
        }
    }
}
