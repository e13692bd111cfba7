//! A request to another process, as bytes.

use super::pattern::Pattern;
use crate::op::Native;
use crate::transport::shared::window::{LockKind, Mode};

/// Bytes of a part that a request may be for: with them it fits a packet, and so does its answer.
pub(crate) const MOST: usize = 63 << 10;

/// What a process asks another one to do to a part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Request<'a> {
    /// The number of the window's communicator.
    pub(crate) window: u64,
    /// Who asks, and whose part it is: ranks of that communicator.
    pub(crate) by: u32,
    pub(crate) target: u32,
    /// The number with which it is answered; 0 if it is not.
    pub(crate) ticket: u64,
    pub(crate) what: What,
    /// For which words.
    pub(crate) pattern: Pattern,
    /// Words.
    pub(crate) data: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Writes the data.
    Put,
    /// Is answered with what is there.
    Get,
    /// Changes each word; the answer is what was there.
    Change(Native),
    /// The data are twice as many words as the pattern has. Writes those of the second half where
    /// those of the first are; the answer is what was there.
    Swap,
    /// Is answered.
    Flush,
    /// Is answered when the rank that asks has the lock.
    Lock(LockKind, Mode),
    Unlock(LockKind),
    /// The process has dropped the window.
    Close,
}

/// How many words, each of so many bytes, fit a request of this kind.
pub(crate) fn fitting(what: What, word: usize) -> usize {
    let most = if what == What::Swap { MOST / 2 } else { MOST };
    most / word
}

const NATIVE: [Native; 6] =
    [Native::Add, Native::And, Native::Or, Native::Xor, Native::Swap, Native::Load];
const KINDS: [LockKind; 3] = [LockKind::Window, LockKind::Part, LockKind::Update];
const MODES: [Mode; 3] = [Mode::Exclusive, Mode::Shared, Mode::SharedToo];

/// The place of one of a list, as a byte of a number.
fn place<T: PartialEq>(of: &T, list: &[T], shift: u32) -> u32 {
    (list.iter().position(|it| it == of).unwrap_or(0) as u32) << shift
}

fn at<T: Copy>(code: u32, list: &[T], shift: u32) -> Option<T> {
    list.get((code >> shift & 0xff) as usize).copied()
}

impl What {
    /// As a number: what in the lowest byte, its arguments above.
    pub(crate) fn code(self) -> u32 {
        match self {
            What::Put => 1,
            What::Get => 2,
            What::Change(native) => 3 | place(&native, &NATIVE, 8),
            What::Swap => 4,
            What::Flush => 5,
            What::Lock(kind, mode) => 6 | place(&kind, &KINDS, 8) | place(&mode, &MODES, 16),
            What::Unlock(kind) => 7 | place(&kind, &KINDS, 8),
            What::Close => 8,
        }
    }

    /// What that number says, if it says anything.
    pub(crate) fn of(code: u32) -> Option<What> {
        let kind = || at(code, &KINDS, 8);
        let what = match code & 0xff {
            1 => What::Put,
            2 => What::Get,
            3 => What::Change(at(code, &NATIVE, 8)?),
            4 => What::Swap,
            5 => What::Flush,
            6 => What::Lock(kind()?, at(code, &MODES, 16)?),
            7 => What::Unlock(kind()?),
            8 => What::Close,
            _ => return None,
        };
        (what.code() == code).then_some(what)
    }
}

impl Request<'_> {
    /// Whether it is for words of a part of so many words, of so many bytes each, as far as its data
    /// and what it is to be answered with go.
    pub(crate) fn fits(&self, words: usize, word: usize) -> bool {
        let Some(bytes) = self.pattern.len().and_then(|len| len.checked_mul(word)) else {
            return false;
        };
        let data = match self.what {
            What::Get => 0,
            What::Swap => 2 * bytes,
            _ => bytes,
        };
        // Of blocks of nothing there could be any number.
        self.pattern.block > 0
            && bytes <= MOST
            && self.data.len() == data
            && self.pattern.is_within(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_what_is_asked_and_others_nothing() {
        let mut all = vec![What::Put, What::Get, What::Swap, What::Flush, What::Close];
        all.extend(NATIVE.map(What::Change));
        all.extend(KINDS.map(What::Unlock));
        all.extend(KINDS.iter().flat_map(|kind| MODES.map(|mode| What::Lock(*kind, mode))));
        for what in &all {
            assert_eq!(What::of(what.code()), Some(*what));
        }
        let said = (0..1 << 18).filter_map(What::of).count();
        assert_eq!(said, all.len());
        assert_eq!(What::of(u32::MAX), None);
    }

    #[test]
    fn a_request_beyond_its_part_or_with_other_data_does_not_fit() {
        let pattern = Pattern { first: 2, blocks: 2, block: 3, stride: 4 };
        let request = |what, pattern, data| {
            let (window, by, target, ticket) = (7, 0, 1, 1);
            Request { window, by, target, ticket, what, pattern, data }
        };
        let bytes = [0u8; 2 * MOST];
        assert!(request(What::Put, pattern, &bytes[..24]).fits(9, 4));
        assert!(request(What::Get, pattern, &[]).fits(9, 4));
        assert!(request(What::Swap, pattern, &bytes[..48]).fits(9, 4));
        for (what, pattern, data, words, word) in [
            (What::Put, pattern, 24, 8, 4),
            (What::Put, pattern, 23, 9, 4),
            (What::Put, pattern, 24, 9, 8),
            (What::Get, pattern, 24, 9, 4),
            (What::Get, Pattern { block: 0, blocks: usize::MAX, ..pattern }, 0, 9, 4),
            (What::Swap, pattern, 24, 9, 4),
            (What::Get, Pattern::one(0, MOST + 1), 0, usize::MAX, 1),
            (What::Get, Pattern { blocks: usize::MAX, ..pattern }, 0, usize::MAX, 8),
            (What::Get, Pattern { first: usize::MAX, ..pattern }, 0, usize::MAX - 1, 8),
            (What::Get, Pattern { stride: usize::MAX, ..pattern }, 0, usize::MAX - 1, 8),
            (What::Put, Pattern::one(0, usize::MAX / 4), 24, usize::MAX, 8),
        ] {
            assert!(!request(what, pattern, &bytes[..data]).fits(words, word), "{pattern:?}");
        }
    }
}
