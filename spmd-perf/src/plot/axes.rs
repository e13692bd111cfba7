//! The axes: where sizes, ranks, times and rates lie on logarithmic scales, and how their ticks
//! read.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Labels of the horizontal axis, at most.
const LABELS: f64 = 7.0;

/// Where a size or a number of ranks lies: powers of two are one apart. No data lie where one byte
/// does.
pub(crate) fn place(step: usize) -> f64 {
    (step.max(1) as f64).log2()
}

/// Where a time or a rate lies: powers of ten are one apart.
pub(crate) fn height(value: f64) -> f64 {
    // A clock may say that something took no time.
    value.max(1e-4).log10()
}

/// The horizontal axis: what was measured of a panel, in order.
#[derive(Clone)]
pub(crate) struct Steps(Vec<usize>);

impl Steps {
    pub(crate) fn of(steps: impl Iterator<Item = usize>) -> Steps {
        let mut steps: Vec<usize> = steps.collect();
        steps.sort_unstable();
        steps.dedup();
        Steps(steps)
    }

    /// What lies at a tick.
    pub(crate) fn at(&self, tick: f64) -> usize {
        self.0.iter().copied().find(|step| place(*step) == tick).unwrap_or(0)
    }
}

impl Ranged for Steps {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        pixel(self.range(), *value, limit)
    }

    /// Labels stand at what was measured, as far apart as a label is wide.
    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let range = self.range();
        let apart = (range.end - range.start) / LABELS;
        let mut points: Vec<f64> = Vec::new();
        for step in &self.0 {
            if points.last().is_none_or(|last| place(*step) - last >= apart) {
                points.push(place(*step));
            }
        }
        points
    }

    fn range(&self) -> Range<f64> {
        let ends = [self.0.first(), self.0.last()].map(|end| place(end.copied().unwrap_or(0)));
        ends[0] - 0.5..ends[1] + 0.5
    }
}

fn pixel(range: Range<f64>, value: f64, limit: (i32, i32)) -> i32 {
    let share = (value - range.start) / (range.end - range.start);
    limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
}

/// The label of a size.
pub(crate) fn bytes(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| bytes >= 1 << shift) else {
        return format!("{bytes} B");
    };
    format!("{} {unit}", three_digits(bytes as f64 / (1u64 << shift) as f64))
}

/// The vertical axis: from one power of ten to another.
pub(crate) struct Decades {
    from: i32,
    to: i32,
}

impl Decades {
    /// The axis that holds these heights.
    pub(crate) fn of(heights: impl Iterator<Item = f64>) -> Decades {
        let (mut from, mut to) = (i32::MAX, i32::MIN);
        for height in heights {
            from = from.min(height.floor() as i32);
            to = to.max(height.ceil() as i32);
        }
        Decades { from, to: to.max(from.saturating_add(1)) }
    }

    fn multiples(&self, of: &[i32]) -> Vec<f64> {
        let within =
            |power: i32| of.iter().map(move |times| f64::from(power) + f64::from(*times).log10());
        let last = f64::from(self.to);
        (self.from..=self.to).flat_map(within).filter(|at| *at <= last).collect()
    }
}

impl Ranged for Decades {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        pixel(self.range(), *value, limit)
    }

    /// Labels stand at powers of ten, and where there are few of them, at their doubles and
    /// fivefolds.
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            self.multiples(&[1, 2, 3, 4, 5, 6, 7, 8, 9])
        } else if self.to - self.from <= 2 {
            self.multiples(&[1, 2, 5])
        } else {
            self.multiples(&[1])
        }
    }

    fn range(&self) -> Range<f64> {
        f64::from(self.from)..f64::from(self.to)
    }
}

/// The label of a time that lies here.
pub(crate) fn time(at: f64) -> String {
    let micros = 10f64.powf(at);
    // A tick at a power of ten may lie a rounding below it.
    let units = [(1e6, "s"), (1e3, "ms")];
    let found = units.into_iter().find(|(unit, _)| micros > unit * 0.999);
    let (unit, name) = found.unwrap_or((1.0, "µs"));
    format!("{} {name}", three_digits(micros / unit))
}

/// The label of a rate that lies here, in kB/s.
pub(crate) fn rate(at: f64) -> String {
    let kilo = 10f64.powf(at);
    let units = [(1e6, "GB/s"), (1e3, "MB/s")];
    let found = units.into_iter().find(|(unit, _)| kilo > unit * 0.999);
    let (unit, name) = found.unwrap_or((1.0, "kB/s"));
    format!("{} {name}", three_digits(kilo / unit))
}

/// A number with three digits, and no zeros at its end.
pub(crate) fn three_digits(number: f64) -> String {
    let digits = (2 - number.log10().floor() as i32).max(0) as usize;
    let text = format!("{number:.digits$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::coord::ranged1d::BoldPoints;

    #[test]
    fn labels_have_units() {
        assert_eq!(["0 B", "8 B", "1 KiB"], [0, 8, 1024].map(bytes));
        assert_eq!(["1.5 KiB", "1 MiB", "16 MiB"], [1536, 1 << 20, 16 << 20].map(bytes));
        assert_eq!(["0.1 µs", "1 µs", "1 ms", "10 s"], [-1.0, 0.0, 3.0, 7.0].map(time));
        assert_eq!("0.2 µs", time(0.2f64.log10()));
        assert_eq!(["10 GB/s", "1 GB/s", "50 MB/s"], [7.0, 6.0, 50e3f64.log10()].map(rate));
    }

    #[test]
    fn axes_hold_what_is_drawn() {
        let times = Decades::of([0.15, 80.0].into_iter().map(height));
        assert_eq!(times.range(), -1.0..2.0);
        assert_eq!(times.key_points(BoldPoints(9)), [-1.0, 0.0, 1.0, 2.0]);
        assert_eq!(times.map(&0.5, (300, 0)), 150);
        let one = Decades::of([height(1.0)].into_iter());
        assert_eq!(one.range(), 0.0..1.0);
        let sizes = Steps::of((3..20).map(|power| 1 << power));
        assert_eq!(sizes.key_points(BoldPoints(9)), [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]);
        assert_eq!(sizes.at(3.0), 8);
    }
}
