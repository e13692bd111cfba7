//! Lines: put together from what a pipe happens to deliver, and marked with rank and time.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A line longer than this is passed on in pieces, so that output without any line end does not
/// fill the memory.
const LONGEST: usize = 1 << 20;

/// Puts the whole lines of one stream together.
#[derive(Default)]
pub(crate) struct Assembler {
    partial: Vec<u8>,
}

impl Assembler {
    /// Takes what was read, and gives each whole line, without its line end, to `each`.
    pub(crate) fn push(&mut self, mut data: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = data.iter().position(|&byte| byte == b'\n') {
            if self.partial.is_empty() {
                each(&data[..end]);
            } else {
                self.partial.extend_from_slice(&data[..end]);
                each(&self.partial);
                self.partial.clear();
            }
            data = &data[end + 1..];
        }
        self.partial.extend_from_slice(data);
        if self.partial.len() > LONGEST {
            each(&self.partial);
            self.partial.clear();
        }
    }

    /// Gives the last line where it had no line end.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            each(&self.partial);
            self.partial.clear();
        }
    }
}

/// Splits off the invisible mark `\x1e<rank>\x1e` by which the library says which rank of a
/// process printed the line.
pub(crate) fn split_mark(line: &[u8]) -> (Option<usize>, &[u8]) {
    let parse = || {
        let rest = line.strip_prefix(b"\x1e")?;
        let end = rest.iter().position(|&byte| byte == 0x1e)?;
        let rank = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        Some((Some(rank), &rest[end + 1..]))
    };
    parse().unwrap_or((None, line))
}

/// How lines are marked.
#[derive(Clone)]
pub(crate) struct Style {
    pub(crate) tag: bool,
    pub(crate) timestamps: bool,
    /// The digits of the highest rank, so that tags line up.
    pub(crate) width: usize,
    /// The tag of a line that no rank is known for: the program's name.
    pub(crate) process: String,
}

impl Style {
    /// Appends a line to `out`, with the marks asked for.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
        rank: Option<usize>,
        now: SystemTime,
        colour: bool,
        line: &[u8],
    ) {
        if self.timestamps {
            let _ = write!(out, "{} ", time_of_day(now));
        }
        if self.tag {
            let label = match rank {
                Some(rank) => format!("[{rank:width$}]", width = self.width),
                None => format!("[{}]", self.process),
            };
            // Writing to a Vec cannot fail. Six colours, from red (31) to cyan (36), in turn.
            let _ = match rank.filter(|_| colour) {
                Some(rank) => write!(out, "\x1b[{}m{label}\x1b[0m ", 31 + rank % 6),
                None => write!(out, "{label} "),
            };
        }
        out.extend_from_slice(line);
        out.push(b'\n');
    }
}

/// `hh:mm:ss.mmm` in UTC.
fn time_of_day(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let day = since.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", day / 3600, day / 60 % 60, day % 60, since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&str]) -> Vec<String> {
        let mut assembler = Assembler::default();
        let mut lines = Vec::new();
        let mut each = |line: &[u8]| lines.push(String::from_utf8_lossy(line).into_owned());
        for piece in pieces {
            assembler.push(piece.as_bytes(), &mut each);
        }
        assembler.finish(&mut each);
        lines
    }

    #[test]
    fn lines_survive_any_split() {
        assert_eq!(lines(&["a\nbc", "d", "\n\nlast"]), ["a", "bcd", "", "last"]);
        assert_eq!(lines(&[""]), Vec::<String>::new());
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(lines(&[&long, "y\n"]), [&long, "y"]);
    }

    #[test]
    fn marks_are_stripped() {
        assert_eq!(split_mark(b"\x1e12\x1ehello"), (Some(12), &b"hello"[..]));
        for plain in [&b"hello"[..], b"\x1e12", b"\x1ex\x1ehello", b""] {
            assert_eq!(split_mark(plain), (None, plain));
        }
    }

    #[test]
    fn styles() {
        let style = Style { tag: true, timestamps: true, width: 2, process: "app".into() };
        let now = UNIX_EPOCH + Duration::from_millis(86_400_000 + 3_723_004);
        let mut out = Vec::new();
        style.write(&mut out, Some(3), now, false, b"x");
        style.write(&mut out, None, now, true, b"y");
        style.write(&mut out, Some(7), now, true, b"z");
        let expected =
            "01:02:03.004 [ 3] x\n01:02:03.004 [app] y\n01:02:03.004 \x1b[32m[ 7]\x1b[0m z\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
