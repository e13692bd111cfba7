//! One-sided calls under measurement: of the first rank on the part that the last one has of a window,
//! each of which is flushed.

use spmd::prelude::*;

use crate::bench::Bench;
use crate::measure::{Effort, Measured, REWRITE, Subject, looks, measure as measure_subject};

/// Measures calls of this many bytes, in words of eight where that divides them.
///
/// Errors: there is one rank; ranks share no memory.
pub(crate) fn measure(ctx: &Ctx, bench: Bench, bytes: usize, effort: Effort) -> Result<Measured> {
    if ctx.size() < 2 {
        return Err(format!("{} needs two ranks", bench.name()).into());
    }
    if bench == Bench::FetchAndAdd || bytes.is_multiple_of(8) {
        let count = (bytes / 8).max(1);
        measure_of(ctx, bench, count, |number| number as u64, effort)
    } else {
        measure_of(ctx, bench, bytes, |number| number as u8, effort)
    }
}

fn measure_of<T: Element + PartialEq>(
    ctx: &Ctx,
    bench: Bench,
    count: usize,
    number: fn(usize) -> T,
    effort: Effort,
) -> Result<Measured>
where
    Sum: Operation<T>,
{
    let window = ctx.window::<T>(count)?;
    window.lock_all()?;
    let data = vec![number(0); count];
    let (target, me, calls, prepared) = (ctx.size() - 1, ctx.rank(), 0, 0);
    let mut subject = OneSided { bench, target, me, number, window, data, calls, prepared };
    let measured = measure_subject(ctx, effort, &mut subject)?;
    subject.window.unlock_all()?;
    Ok(measured)
}

struct OneSided<T: Element> {
    bench: Bench,
    target: usize,
    me: usize,
    /// A value for each turn and place.
    number: fn(usize) -> T,
    window: Window<T>,
    /// What the first rank puts, or has got.
    data: Vec<T>,
    /// How often it has added.
    calls: usize,
    /// The turn for which data were made.
    prepared: usize,
}

impl<T: Element + PartialEq> OneSided<T> {
    /// What was prepared for this place.
    fn value(&self, index: usize) -> T {
        (self.number)(self.prepared % 97 + index % 89)
    }
}

impl<T: Element + PartialEq> Subject for OneSided<T>
where
    Sum: Operation<T>,
{
    fn rewrites(&self) -> bool {
        size_of_val(&*self.data) >= REWRITE
    }

    /// Of a get, the target's part; else what the first rank has.
    fn prepare(&mut self, turn: usize) -> Result<()> {
        self.prepared = turn;
        if self.bench == Bench::FetchAndAdd {
            return Ok(());
        }
        for index in 0..self.data.len() {
            self.data[index] = self.value(index);
        }
        if self.bench == Bench::Get && self.me == self.target {
            self.window.write(0, &self.data)?;
        }
        Ok(())
    }

    fn call(&mut self, _: &Ctx, _: usize) -> Result<()> {
        if self.me != 0 {
            return Ok(());
        }
        match self.bench {
            Bench::Put => self.window.put(&self.data, self.target, 0)?,
            Bench::Get => self.window.get(&mut self.data, self.target, 0)?,
            _ => {
                self.data[0] = self.window.fetch_and_op((self.number)(1), self.target, 0, Sum)?;
                self.calls += 1;
            }
        }
        self.window.flush(self.target)
    }

    fn wrong(&mut self, _: usize) -> Result<u64> {
        let all = looks(self.data.len());
        Ok(match self.bench {
            // What was there before the last addition.
            Bench::FetchAndAdd => u64::from(
                self.me == 0 && self.data[0] != (self.number)(self.calls.saturating_sub(1)),
            ),
            Bench::Put if self.me == self.target => {
                // Not the whole part, whose lines would then have to be taken from this rank again.
                let mut wrong = 0;
                for index in all {
                    let there = self.window.read(index..index + 1)?;
                    wrong += u64::from(there != [self.value(index)]);
                }
                wrong
            }
            Bench::Get if self.me == 0 => {
                all.filter(|index| self.data[*index] != self.value(*index)).count() as u64
            }
            _ => 0,
        })
    }
}
