//! What becomes of a rank.

use std::process::ExitStatus;

/// How one rank's end is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// Well, if no rank enters the world.
    NeverEntered,
    Failed,
}

/// How to take the end of a rank that had or had not entered the world, and left it properly.
pub(super) fn judge(status: ExitStatus, entered: bool, finished: bool) -> Verdict {
    match (status.success(), entered, finished) {
        (false, ..) | (true, true, false) => Verdict::Failed,
        (true, true, true) => Verdict::Fine,
        (true, false, _) => Verdict::NeverEntered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn verdicts() {
        let (good, bad) = (ExitStatus::from_raw(0), ExitStatus::from_raw(1 << 8));
        assert_eq!(judge(good, true, true), Verdict::Fine);
        assert_eq!(judge(good, true, false), Verdict::Failed);
        assert_eq!(judge(good, false, false), Verdict::NeverEntered);
        assert_eq!(judge(bad, true, true), Verdict::Failed);
    }
}
