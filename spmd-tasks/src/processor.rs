//! Where a task runs, where a value is, and what it takes to have one where the other is.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// What carries out a task: see [`TaskOptions::host_or_gpu`](crate::TaskOptions::host_or_gpu).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// A worker, with memory of the host.
    Host,
    /// A worker that drives this GPU of its process.
    Gpu(u32),
}

/// Where a value is, as far as anybody asks who is not its user.
pub(crate) struct Home {
    bytes: AtomicUsize,
    /// The lowest bit is the host, each other one a GPU.
    places: AtomicU64,
    /// Measures what copies to a GPU take.
    measure: Measure,
}

/// [`Mirror::measure`](spmd_core::Mirror::measure).
type Measure = fn(u32) -> Option<[(usize, Duration); 2]>;

/// GPUs of higher numbers are taken for such as have no value.
const GPUS: u32 = 63;

impl Home {
    pub(crate) fn new(bytes: usize, measure: Measure) -> Home {
        Home { bytes: AtomicUsize::new(bytes), places: AtomicU64::new(1), measure }
    }

    /// Has it measured, if nobody has, what copies to this GPU take.
    pub(crate) fn measures(&self, gpu: u32) {
        // Nobody waits for who does: it is the program's code, which may panic there, or wait for a task.
        if !COPIES.measured.load(Relaxed) && !COPIES.measured.swap(true, Relaxed) {
            let measured = catch_unwind(|| (self.measure)(gpu)).ok().flatten();
            measured.into_iter().flatten().for_each(|(bytes, took)| COPIES.is(bytes, took));
        }
    }

    fn bit(place: Processor) -> u64 {
        match place {
            Processor::Host => 1,
            Processor::Gpu(gpu) if gpu < GPUS => 2 << gpu,
            Processor::Gpu(_) => 0,
        }
    }

    /// It is there, and where it was.
    pub(crate) fn is_also_on(&self, place: Processor) {
        self.places.fetch_or(Home::bit(place), Relaxed);
    }

    /// It is there alone.
    pub(crate) fn is_on(&self, place: Processor) {
        self.places.store(Home::bit(place), Relaxed);
    }

    /// It is on the host, and so long.
    pub(crate) fn has(&self, bytes: usize) {
        self.bytes.store(bytes, Relaxed);
    }

    /// How many copies of how many bytes bring it there: one GPU's come to another one by way of the host.
    pub(crate) fn copies_to(&self, place: Processor) -> (u32, usize) {
        let places = self.places.load(Relaxed);
        let copies = match place {
            it if places & Home::bit(it) != 0 => 0,
            Processor::Gpu(_) if places & 1 == 0 => 2,
            _ => 1,
        };
        (copies, self.bytes.load(Relaxed))
    }
}

/// What copies between the host and a GPU take: measured when that is first asked, assumed where it cannot be,
/// then learnt from each.
pub(crate) static COPIES: Copies = Copies::new();

/// In nanoseconds.
pub(crate) struct Copies {
    way: AtomicU64,
    kilobyte: AtomicU64,
    /// Whether somebody has measured, or does.
    measured: AtomicBool,
}

/// The length of shorter copies is no matter.
const SHORT: usize = 16 << 10;

impl Copies {
    const fn new() -> Copies {
        let (way, kilobyte) = (AtomicU64::new(10_000), AtomicU64::new(100));
        Copies { way, kilobyte, measured: AtomicBool::new(false) }
    }

    /// What a copy of so many bytes takes.
    pub(crate) fn take(&self, bytes: usize) -> u64 {
        let kilobytes = bytes as u64 / 1024;
        let all = kilobytes.saturating_mul(self.kilobyte.load(Relaxed));
        self.way.load(Relaxed).saturating_add(all)
    }

    /// One of so many bytes took so long.
    pub(crate) fn learn(&self, bytes: usize, took: Duration) {
        // A quarter of what is new; who writes at the same time may be lost.
        let (known, new) = self.told(bytes, took);
        known.store(known.load(Relaxed) / 4 * 3 + new / 4, Relaxed);
    }

    /// The same of the first one, whatever was assumed.
    fn is(&self, bytes: usize, took: Duration) {
        let (known, new) = self.told(bytes, took);
        known.store(new, Relaxed);
    }

    /// What is told by that, and what it is.
    fn told(&self, bytes: usize, took: Duration) -> (&AtomicU64, u64) {
        let took = took.as_nanos() as u64;
        if bytes < SHORT {
            return (&self.way, took);
        }
        let rest = took.saturating_sub(self.way.load(Relaxed));
        (&self.kilobyte, rest / (bytes as u64 / 1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_bring_a_value() {
        let home = Home::new(100, |_| None);
        assert_eq!(home.copies_to(Processor::Host), (0, 100));
        assert_eq!(home.copies_to(Processor::Gpu(1)), (1, 100));
        home.is_also_on(Processor::Gpu(1));
        assert_eq!(home.copies_to(Processor::Gpu(1)).0, 0);
        home.is_on(Processor::Gpu(1));
        let to = |place| home.copies_to(place).0;
        assert_eq!([to(Processor::Host), to(Processor::Gpu(1)), to(Processor::Gpu(62))], [1, 0, 2]);
        // One that has no bit.
        home.is_also_on(Processor::Gpu(70));
        assert_eq!(to(Processor::Gpu(70)), 2);
    }

    #[test]
    fn times_are_learnt() {
        let copies = Copies::new();
        copies.is(8, Duration::from_micros(50));
        copies.is(1 << 20, Duration::from_micros(50 + 1024));
        assert_eq!(copies.take(10 << 10), 60_000);
        for _ in 0..50 {
            copies.learn(8, Duration::from_micros(2));
            copies.learn(1 << 20, Duration::from_micros(1026));
        }
        let near = |is: u64, expected: u64| is.abs_diff(expected) < expected / 50;
        assert!(near(copies.take(0), 2000) && near(copies.take(1 << 20), 1_026_000));
    }
}
