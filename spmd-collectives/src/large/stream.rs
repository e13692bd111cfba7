//! Segments that some ranks show and others take, each when it can.

use spmd_core::Result;

use super::LargeRound;

/// Bytes of the shortest segment that is worth a step of its own.
const LEAST: usize = 16 << 10;

impl LargeRound<'_, '_> {
    /// Shows this rank's segments `0..turns` one after the other to `readers`, who
    /// [`consume`](LargeRound::consume) them, each as soon as its place is free. The first is there.
    pub(crate) fn produce(
        &self,
        turns: usize,
        readers: impl Iterator<Item = usize> + Clone,
        fill: impl Fn(usize),
    ) -> Result<()> {
        let read = |turns: usize| {
            let stage = self.stage_after(turns)?;
            readers.clone().try_for_each(|reader| self.round.wait_for(reader, stage))
        };
        for turn in 1..turns {
            if let Some(before) = turn.checked_sub(self.places) {
                read(before + 1)?;
            }
            if self.staged {
                fill(turn);
            }
            self.round.publish_to_each(self.stage_after(turn)?, readers.clone());
        }
        read(turns)
    }

    /// Takes segments `0..turns` of the ranks `from`, each when all have shown it.
    pub(crate) fn consume(
        &self,
        turns: usize,
        from: impl Iterator<Item = usize> + Clone,
        mut take: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        for turn in 0..turns {
            if turn > 0 {
                let stage = self.stage_after(turn)?;
                from.clone().try_for_each(|peer| self.round.wait_for(peer, stage))?;
            }
            take(turn)?;
            self.round.publish_to_each(self.stage_after(turn + 1)?, from.clone());
        }
        Ok(())
    }
}

/// Elements of a segment where one rank fills it while others read the one before, or two ranks
/// swap places: of the usual bytes, but two segments at least.
pub(crate) fn two_segments(segment: usize, total: usize, size: usize) -> usize {
    (segment.min(total.div_ceil(2).max(LEAST)) / size).max(1)
}
