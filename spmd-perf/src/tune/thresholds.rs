//! From times to thresholds.

use spmd_core::algorithm::Algorithm;
use spmd_core::tuning::Rule;

/// What the best must be faster by than the default to take its place: less is noise.
const GAIN: f64 = 1.05;

/// The times of one size.
pub(super) struct Row {
    /// The bytes by which the call chooses.
    pub(super) by: usize,
    /// The built-in choice.
    pub(super) default: Algorithm,
    /// µs of each algorithm.
    pub(super) times: Vec<(Algorithm, f64)>,
}

impl Row {
    fn best(&self) -> (Algorithm, f64) {
        let best = self.times.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
        best.unwrap_or((self.default, f64::INFINITY))
    }

    /// The time of the default ÷ that of the best.
    pub(super) fn ratio(&self) -> f64 {
        let default = self.times.iter().find(|(it, _)| *it == self.default);
        default.map_or(1.0, |(_, time)| time / self.best().1)
    }

    fn winner(&self) -> Algorithm {
        if self.ratio() > GAIN { self.best().0 } else { self.default }
    }
}

/// Rules that name the winner of each size; what lies between two sizes goes with the larger one.
pub(super) fn rules(rows: &[Row]) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for row in rows {
        let (up_to, algorithm) = (Some(row.by), row.winner());
        match rules.last_mut() {
            Some(last) if last.algorithm == algorithm => last.up_to = up_to,
            _ => rules.push(Rule { up_to, algorithm }),
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use Algorithm::*;

    #[test]
    fn crossovers_become_thresholds() {
        let row =
            |by, flat, tree| Row { by, default: Flat, times: vec![(Flat, flat), (Tree, tree)] };
        let rows = [
            row(8, 1.0, 2.0),
            // Within the noise the default stays.
            row(16, 1.0, 0.97),
            row(32, 2.0, 1.0),
            row(64, 3.0, 1.0),
            row(128, 3.0, 5.0),
        ];
        let rule = |bytes, algorithm| Rule { up_to: Some(bytes), algorithm };
        assert_eq!(rules(&rows), [rule(16, Flat), rule(64, Tree), rule(128, Flat)]);
        assert_eq!(rows[3].ratio(), 3.0);
        assert!(rules(&[]).is_empty());
    }
}
