//! Clocks of different hosts, as far as they can be known from each other.
//!
//! Two processes read their clocks before and after each of some meetings, which nobody leaves before all
//! have come. So a reading before a meeting is earlier than the other's reading after it, whatever the
//! clocks say, and each meeting bounds from both sides how far one clock is ahead. That is the algorithm of
//! Cristian (Probabilistic clock synchronization, 1989), with a meeting in place of a question and its
//! answer: the tightest bounds count.

/// What a clock said before a meeting and after it, in nanoseconds.
pub(crate) type Readings = (u64, u64);

/// How far a clock is ahead of another one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    /// When this was found out, by the clock that is ahead.
    at_ns: u64,
    by_ns: i64,
    /// It may be more or less by so much.
    error_ns: u64,
}

impl Ahead {
    /// Of a clock that was read at some meetings, as another one was.
    pub(crate) fn of(own: &[Readings], other: &[Readings]) -> Ahead {
        let difference = |one: u64, other: u64| one.wrapping_sub(other).cast_signed();
        let least = own.iter().zip(other).map(|(own, other)| difference(own.0, other.1)).max();
        let most = own.iter().zip(other).map(|(own, other)| difference(own.1, other.0)).min();
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
        let width = most.saturating_sub(least);
        let at_ns = own.last().map_or(0, |last| last.1);
        Ahead {
            at_ns,
            by_ns: least.saturating_add(width / 2),
            error_ns: width.unsigned_abs() / 2 + 1,
        }
    }
}

/// What is known of two clocks at the start and at the end of a job. If both can be true of clocks that
/// differ by the same all the time, they do; else they drift evenly in between.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alignment {
    start: Ahead,
    end: Ahead,
}

impl Alignment {
    pub(crate) fn new(start: Ahead, end: Ahead) -> Alignment {
        let bound =
            |of: Ahead, sign: i64| of.by_ns.saturating_add(sign * of.error_ns.cast_signed());
        let least = bound(start, -1).max(bound(end, -1));
        let most = bound(start, 1).min(bound(end, 1));
        if least > most {
            return Alignment { start, end };
        }
        // What another process says may be anything.
        let half = most.saturating_sub(least) / 2;
        let both =
            Ahead { by_ns: least.saturating_add(half), error_ns: half.unsigned_abs() + 1, ..start };
        Alignment { start: both, end: Ahead { at_ns: end.at_ns, ..both } }
    }

    /// The time that the other clock showed when the one that is ahead showed this.
    pub(crate) fn aligned(&self, ns: u64) -> u64 {
        let (start, end) = (self.start, self.end);
        let span = end.at_ns.saturating_sub(start.at_ns).max(1);
        let passed = ns.saturating_sub(start.at_ns).min(span);
        let gained = i128::from(end.by_ns) - i128::from(start.by_ns);
        let drift = gained.saturating_mul(passed.into()) / i128::from(span);
        let ahead = i128::from(start.by_ns) + drift;
        (i128::from(ns) - ahead).clamp(0, u64::MAX.into()) as u64
    }

    /// By how much that may be wrong, and by how much it is less than what the clock shows at the end.
    pub(crate) fn error_and_shift_ns(&self) -> (u64, i64) {
        (self.start.error_ns.max(self.end.error_ns), self.end.by_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of a clock that is ahead by so much and gains a nanosecond in so many, at meetings that take
    /// their time.
    fn readings(ahead: i64, gains: u64, at: u64, before: u64, after: u64) -> Vec<Readings> {
        let read = |time: u64| (time + time / gains).saturating_add_signed(ahead);
        let meeting = |k: u64| {
            let time = at + 100_000 * k;
            (read(time - before * (16 - k)), read(time + after * (k + 1)))
        };
        (0..16).map(meeting).collect()
    }

    #[test]
    fn the_true_difference_is_within_the_bounds() {
        for ahead in [0, 5, -700_000, 3_000_000_000_000, -5_000_000_000] {
            let (hour, second) = (3_600_000_000_000, 1_000_000_000);
            let at = 10 * second;
            let never = u64::MAX;
            let found = Ahead::of(
                &readings(ahead, never, at, 300, 2_000),
                &readings(0, never, at, 5_000, 100),
            );
            assert!((found.by_ns - ahead).unsigned_abs() <= found.error_ns, "{found:?}");
            assert!(found.error_ns < 20_000, "{found:?}");
            // One that gains 50 µs in a second.
            let at_end = at + hour;
            let later = Ahead::of(
                &readings(ahead, 20_000, at_end, 300, 2_000),
                &readings(0, never, at_end, 5_000, 100),
            );
            let first = Ahead::of(
                &readings(ahead, 20_000, at, 300, 2_000),
                &readings(0, never, at, 5_000, 100),
            );
            let both = Alignment::new(first, later);
            for time in [at, at + hour / 3, at + hour] {
                let shown = (time + time / 20_000).saturating_add_signed(ahead);
                let error = both.aligned(shown).abs_diff(time);
                assert!(error <= both.error_and_shift_ns().0 + 1, "{error} at {time}: {both:?}");
            }
        }
    }

    /// What the meetings leave open is no drift.
    #[test]
    fn what_may_be_the_same_is_the_same() {
        let found = |at_ns, by_ns, error_ns| Ahead { at_ns, by_ns, error_ns };
        let both = Alignment::new(found(1_000_000, 500, 600), found(2_000_000, -200, 300));
        for time in [0, 1_500_000, 3_000_000] {
            assert_eq!(both.aligned(time), time);
        }
        assert_eq!(both.error_and_shift_ns(), (101, 0));
    }

    /// A process that says what cannot be.
    #[test]
    fn nonsense_is_no_panic() {
        let values = [0, 1, 1 << 62, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
        let pairs = || values.into_iter().flat_map(|a| values.map(|b| (a, b)));
        for (own, other) in pairs().flat_map(|own| pairs().map(move |other| (own, other))) {
            let (start, end) = (Ahead::of(&[own], &[other]), Ahead::of(&[other], &[own]));
            let both = Alignment::new(start, end);
            for ns in values {
                std::hint::black_box(both.aligned(ns));
            }
            std::hint::black_box(both.error_and_shift_ns());
        }
    }

    #[test]
    fn without_meetings_nothing_is_shifted() {
        let both = Alignment::new(Ahead::of(&[], &[]), Ahead::default());
        assert_eq!([0, 7, u64::MAX].map(|ns| both.aligned(ns)), [0, 7, u64::MAX]);
    }
}
