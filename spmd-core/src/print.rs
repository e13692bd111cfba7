//! Printing lines that stay whole.

use std::fmt::{Arguments, Write as _};
use std::io::Write as _;

use crate::current;

/// Prints like `println!`, with the whole text in one write, so that lines of different ranks
/// never mix. Under `spmdrun` with threads or virtual ranks, which share one standard output, the
/// launcher learns from a mark which rank a line is of (`SPMD_TAG`).
///
/// Printing never fails: where nobody reads the standard output any more, the text is lost.
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(2, |ctx| {
///     rank_println!("rank {} of {}", ctx.rank(), ctx.size());
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[macro_export]
macro_rules! rank_println {
    ($($text:tt)*) => {
        $crate::print_lines(::std::format_args!($($text)*))
    };
}

/// What [`rank_println!`] expands to.
#[doc(hidden)]
pub fn print_lines(text: Arguments<'_>) {
    let tagged = std::env::var_os("SPMD_TAG").is_some_and(|value| value == "1");
    let rank = current::rank();
    let lines = marked(&text.to_string(), rank.filter(|_| tagged));
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
}

/// The text with a line end, every line marked as the rank's.
fn marked(text: &str, rank: Option<usize>) -> String {
    let mut lines = String::with_capacity(text.len() + 16);
    for line in text.split('\n') {
        if let Some(rank) = rank {
            let _ = write!(lines, "\u{1e}{rank}\u{1e}");
        }
        lines.push_str(line);
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn every_line_is_marked() {
        assert_eq!(marked("a\nb", None), "a\nb\n");
        assert_eq!(marked("a\nb", Some(3)), "\u{1e}3\u{1e}a\n\u{1e}3\u{1e}b\n");
        assert_eq!(marked("", Some(0)), "\u{1e}0\u{1e}\n");
    }
}
