//! How many tests passed, as the lines of `cargo test` and `cargo nextest` tell it.

use std::ops::AddAssign;

/// Tests, or steps that count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Count {
    pub(crate) const PASSED: Count = Count { passed: 1, failed: 0, skipped: 0 };
    pub(crate) const FAILED: Count = Count { passed: 0, failed: 1, skipped: 0 };
    pub(crate) const SKIPPED: Count = Count { passed: 0, failed: 0, skipped: 1 };

    /// So many that were counted as passed were none: what they need is not here.
    pub(crate) fn skip(&mut self, idle: usize) {
        let idle = idle.min(self.passed);
        self.passed -= idle;
        self.skipped += idle;
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Count::default()
    }

    /// What a line says, nothing if it is not a summary. `unselected` tests are those that the
    /// command left out on purpose.
    ///
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished ..`
    /// `Summary [ 1.5s] 45/46 tests run: 44 passed (1 slow), 1 failed, 2 skipped`
    pub(crate) fn of_line(line: &str) -> Count {
        // Indented, it is a line that nextest shows of a test that it counts itself.
        let numbers = if let Some(result) = line.strip_prefix("test result: ") {
            result.split_once(". ").map(|(_, numbers)| numbers)
        } else if line.trim_start().starts_with("Summary [") {
            line.split_once(" run: ").map(|(_, numbers)| numbers)
        } else {
            None
        };
        let mut count = Count::default();
        for part in numbers.unwrap_or("").split([';', ',']) {
            let mut words = part.split_whitespace();
            let (number, what) = (words.next(), words.next());
            let number = number.and_then(|number| number.parse().ok()).unwrap_or(0);
            match what {
                Some("passed") => count.passed += number,
                Some("failed" | "timed") => count.failed += number,
                Some("ignored" | "skipped") => count.skipped += number,
                _ => {}
            }
        }
        count
    }
}

/// Whether a test says there that what it needs is not here, by which it passes.
pub(crate) fn is_of_idle_test(line: &str) -> bool {
    line.starts_with("SKIPPED: ")
}

/// The test that such a line says has failed.
///
/// `test cycles::of_two ... FAILED`
/// `        FAIL [   0.008s] (  5/863) spmd-tests::alone a_test`
pub(crate) fn failed_test(line: &str) -> Option<&str> {
    if let Some(test) = line.strip_prefix("test ") {
        return test.strip_suffix(" ... FAILED");
    }
    let (how, rest) = line.trim_start().split_once(" [")?;
    let failed =
        matches!(how, "FAIL" | "ABORT" | "TIMEOUT" | "LEAK-FAIL") || how.starts_with("SIG");
    let (_, rest) = rest.split_once("] ").filter(|_| failed)?;
    // Its number comes before its name, in newer versions.
    let numbered = rest.trim_start().strip_prefix('(').and_then(|it| it.split_once(") "));
    Some(numbered.map_or(rest, |(_, name)| name).trim())
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 5 filtered out";
        assert_eq!(Count::of_line(line), Count { passed: 3, failed: 2, skipped: 1 });
        let line = "     Summary [   9.3s] 47 tests run: 44 passed (1 slow), 2 failed, 1 timed out, 2 skipped";
        assert_eq!(Count::of_line(line), Count { passed: 44, failed: 3, skipped: 2 });
        assert_eq!(Count::of_line("test a::b ... ok"), Count::default());
        assert!(is_of_idle_test("SKIPPED: there is no card"));
        assert!(!is_of_idle_test("SKIPPED mpich: others are here") && !is_of_idle_test(line));
        let mut count = Count::of_line(line);
        count.skip(1);
        assert_eq!(count, Count { passed: 43, failed: 3, skipped: 3 });
    }

    #[test]
    fn failed_tests_are_named() {
        let lines = [
            ("test a::b ... FAILED", Some("a::b")),
            ("test a::b ... ok", None),
            (
                "        FAIL [   0.008s] (  5/863) spmd-tests::alone a_test",
                Some("spmd-tests::alone a_test"),
            ),
            ("     SIGABRT [   1.2s] spmd-core a::b", Some("spmd-core a::b")),
            ("        PASS [   0.008s] (  5/863) spmd-tests::alone a_test", None),
            ("test result: FAILED. 3 passed; 2 failed", None),
        ];
        lines.into_iter().for_each(|(line, test)| assert_eq!(failed_test(line), test));
    }
}
