//! Lines: put together from what a pipe happens to deliver, and marked with rank and time.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A line longer than this is passed on in pieces, so that output without any line end does not
/// fill the memory.
const LONGEST: usize = 1 << 20;

/// What programs buffer of their output where it goes into a pipe is a multiple of this. A part of
/// a line at the end of so much is no prompt: the rest follows when the next buffer is full.
const BUFFER: usize = 4096;

/// A line, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Without the line end.
    pub(crate) text: &'a [u8],
    /// The line begins with it.
    pub(crate) begins: bool,
    /// The line ends with it.
    pub(crate) ends: bool,
}

/// Puts the whole lines of one stream together.
#[derive(Default)]
pub(crate) struct Assembler {
    partial: Vec<u8>,
    /// A part of the line has been given.
    begun: bool,
    /// Since when the partial line waits, if it may be given before its end comes.
    since: Option<Instant>,
}

impl Assembler {
    /// Takes what was read at this time, and gives each line that is whole now to `each`.
    pub(crate) fn push(&mut self, read: &[u8], now: Instant, mut each: impl FnMut(Piece<'_>)) {
        let mut data = read;
        let mut since = self.since.unwrap_or(now);
        while let Some(end) = data.iter().position(|&byte| byte == b'\n') {
            let begins = !std::mem::take(&mut self.begun);
            if self.partial.is_empty() {
                each(Piece { text: &data[..end], begins, ends: true });
            } else {
                self.partial.extend_from_slice(&data[..end]);
                each(Piece { text: &self.partial, begins, ends: true });
                self.partial = Vec::new();
            }
            data = &data[end + 1..];
            since = now;
        }
        self.partial.extend_from_slice(data);
        if self.partial.len() > LONGEST {
            self.give(true, &mut each);
        }
        let waits = !self.partial.is_empty() && !read.len().is_multiple_of(BUFFER);
        self.since = waits.then_some(since);
    }

    /// Since when a part of a line waits that may be given before the line's end comes.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.since
    }

    /// Bytes of memory that it takes for a partial line.
    pub(crate) fn memory(&self) -> usize {
        self.partial.capacity()
    }

    /// Gives what there is of the line.
    pub(crate) fn pass_on(&mut self, mut each: impl FnMut(Piece<'_>)) {
        self.since = None;
        if !self.partial.is_empty() && (self.begun || !unfinished_mark(&self.partial)) {
            self.give(false, &mut each);
        }
    }

    /// Gives the last line where it had no line end.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(Piece<'_>)) {
        self.since = None;
        if self.begun || !self.partial.is_empty() {
            self.give(true, &mut each);
        }
    }

    fn give(&mut self, ends: bool, each: &mut impl FnMut(Piece<'_>)) {
        each(Piece { text: &self.partial, begins: !self.begun, ends });
        self.partial = Vec::new();
        self.begun = !ends;
    }
}

/// Whether the text may be the beginning of a mark ([`split_mark`]), of which more is to come.
fn unfinished_mark(text: &[u8]) -> bool {
    text.strip_prefix(b"\x1e").is_some_and(|rest| rest.iter().all(u8::is_ascii_digit))
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
    /// Appends what a line of this rank begins with to `out`.
    pub(crate) fn begin(
        &self,
        out: &mut Vec<u8>,
        rank: Option<usize>,
        now: SystemTime,
        colour: bool,
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

    /// What is given for these reads: `+` before what goes on a line, `-` after what does not end
    /// it. An empty read passes on what there is.
    fn given(reads: &[&str]) -> Vec<String> {
        let mut assembler = Assembler::default();
        let mut given = Vec::new();
        let mut each = |piece: Piece<'_>| {
            let text = String::from_utf8_lossy(piece.text);
            let (before, after) =
                (if piece.begins { "" } else { "+" }, if piece.ends { "" } else { "-" });
            given.push(format!("{before}{text}{after}"));
        };
        for read in reads {
            match read.is_empty() {
                true => assembler.pass_on(&mut each),
                false => assembler.push(read.as_bytes(), Instant::now(), &mut each),
            }
        }
        assembler.finish(&mut each);
        given
    }

    #[test]
    fn lines_survive_any_split() {
        assert_eq!(given(&["a\nbc", "d", "\n\nlast"]), ["a", "bcd", "", "last"]);
        assert_eq!(given(&[]), Vec::<String>::new());
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(given(&[&long, "y\n"]), [&long, "y"]);
    }

    #[test]
    fn a_part_of_a_line_is_passed_on_but_for_half_a_mark() {
        assert_eq!(given(&["10%", "", "\r20", "%\n", "x\n"]), ["10%-", "+\r20%", "x"]);
        assert_eq!(given(&["a", "", "\nb\n"]), ["a-", "+", "b"]);
        assert_eq!(given(&["a", ""]), ["a-", "+"]);
        assert_eq!(given(&["\x1e1", "", "2\x1ehello", ""]), ["\x1e12\x1ehello-", "+"]);
    }

    #[test]
    fn a_line_waits_from_its_first_byte_unless_a_buffer_was_full() {
        let start = Instant::now();
        let later = start + Duration::from_millis(30);
        let mut lines = Assembler::default();
        lines.push(b"a\nb", start, |_| {});
        lines.push(b"c", later, |_| {});
        assert_eq!(lines.waits_since(), Some(start));
        lines.push(b"\nd", later, |_| {});
        assert_eq!(lines.waits_since(), Some(later));
        lines.push(&[b'x'; 2 * BUFFER], later, |_| {});
        assert_eq!(lines.waits_since(), None);
    }

    #[test]
    fn what_is_given_takes_no_memory() {
        let mut lines = Assembler::default();
        lines.push(b"a", Instant::now(), |_| {});
        assert!(lines.memory() > 0);
        lines.pass_on(|_| {});
        assert_eq!(lines.memory(), 0);
        lines.push(&[b'x'; LONGEST + 1], Instant::now(), |_| {});
        assert_eq!(lines.memory(), 0);
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
        style.begin(&mut out, Some(3), now, false);
        style.begin(&mut out, None, now, true);
        style.begin(&mut out, Some(7), now, true);
        let expected = "01:02:03.004 [ 3] 01:02:03.004 [app] 01:02:03.004 \x1b[32m[ 7]\x1b[0m ";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
