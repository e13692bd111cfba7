//! What is printed: a table as users of OSU's benchmarks and nccl-tests know it, or JSON.

use serde::{Deserialize, Serialize};
use spmd::prelude::*;

use crate::args::{Args, Task};
use crate::bench::Bench;
use crate::card::Card;
use crate::measure::{Measured, Overlap};
use crate::messages::{MANY, WINDOW};

/// One size of one bench: a line of `--json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) collective: String,
    pub(crate) ranks: usize,
    #[serde(rename = "as")]
    pub(crate) mode: String,
    pub(crate) transport: String,
    pub(crate) bytes: usize,
    pub(crate) iterations: u64,
    pub(crate) min_us: f64,
    pub(crate) avg_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    pub(crate) algbw_gbps: f64,
    pub(crate) busbw_gbps: f64,
    pub(crate) wrong: u64,
    pub(crate) memory: String,
    /// In the memory of a device: the name of the first rank's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) card: Option<String>,
    #[serde(rename = "type")]
    pub(crate) element: String,
    /// The operation, of a reduction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) op: Option<String>,
    /// The algorithm that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) algorithm: Option<String>,
    /// Who else was measured, such as an MPI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) library: Option<String>,
    /// Of benches that send many at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages_per_s: Option<f64>,
    #[serde(flatten)]
    pub(crate) overlap: Option<Overlap>,
    /// In the memory of a device: the form that sends from where it receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_place: Option<InPlace>,
    /// On a device that all ranks share: what the call takes at least, at the rate of copies there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bound_us: Option<f64>,
}

/// What is told of the form in place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InPlace {
    pub(crate) avg_us: f64,
    pub(crate) algbw_gbps: f64,
    pub(crate) busbw_gbps: f64,
    pub(crate) wrong: u64,
}

impl Line {
    pub(crate) fn new(
        ctx: &Ctx,
        args: &Args,
        task: &Task,
        measured: &Measured,
        card: Option<&Card>,
    ) -> Line {
        let Task { bench, bytes, .. } = *task;
        let ranks = ctx.size();
        let algbw_of = |measured: &Measured| bench.moved(bytes, ranks) as f64 / measured.avg / 1e3;
        let algbw = algbw_of(measured);
        let in_place = measured.in_place.as_ref().map(|it| InPlace {
            avg_us: it.avg,
            algbw_gbps: algbw_of(it),
            busbw_gbps: algbw_of(it) * bench.factor(ranks),
            wrong: it.wrong,
        });
        Line {
            collective: bench.name(),
            ranks,
            mode: ctx.mode().to_string(),
            transport: ctx.internals().transport().into(),
            bytes,
            iterations: measured.iterations,
            min_us: measured.min,
            avg_us: measured.avg,
            p50_us: measured.p50,
            p99_us: measured.p99,
            max_us: measured.max,
            algbw_gbps: algbw,
            busbw_gbps: algbw * bench.factor(ranks),
            wrong: measured.wrong,
            memory: args.memory.name().into(),
            card: card.map(|it| it.name.clone()),
            element: if bench.moves_bytes() { "u8" } else { args.element.name() }.into(),
            op: bench.reduces().then(|| args.op.name().into()),
            algorithm: args.algorithm.clone(),
            library: None,
            messages_per_s: bench.messages(ranks).map(|all| all as f64 / measured.avg * 1e6),
            overlap: measured.overlap,
            in_place,
            bound_us: card
                .and_then(|it| it.copy_rate)
                .map(|rate| bench.touched(bytes, ranks) as f64 / rate * 1e6),
        }
    }

    /// What stands above the lines of a bench.
    pub(crate) fn print_heading(&self) {
        let Line { collective, ranks, mode, transport, .. } = self;
        let on = self.card.as_ref().map_or_else(String::new, |card| format!(", on {card}"));
        println!("\n# {collective}, {ranks} ranks as {mode}, {transport}{on}");
        print!(
            "{:>10} {:>10} {:>5} {:>4} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6}",
            "bytes",
            "count",
            "type",
            "op",
            "root",
            "avg µs",
            "min µs",
            "p50 µs",
            "p99 µs",
            "max µs",
            "algbw",
            "busbw",
            "#wrong"
        );
        if self.messages_per_s.is_some() {
            print!(" {:>11} {:>9}", "messages/s", "MB/s");
        }
        if self.overlap.is_some() {
            print!(" {:>10} {:>10} {:>6}", "call µs", "compute µs", "hidden");
        }
        if self.in_place.is_some() {
            print!(" {:>11} {:>8} {:>8} {:>6}", "in place µs", "algbw", "busbw", "#wrong");
        }
        if self.bound_us.is_some() {
            print!(" {:>10} {:>6}", "bound µs", "of it");
        }
        println!();
    }

    pub(crate) fn print(&self, args: &Args, bench: Bench) {
        let size = if bench.moves_bytes() { 1 } else { args.element.size() };
        let (op, root) = (self.op.as_deref().unwrap_or("-"), bench.root());
        let Line { bytes, element, avg_us, min_us, p50_us, p99_us, max_us, .. } = self;
        let (count, algbw, busbw, wrong) =
            (bytes / size, self.algbw_gbps, self.busbw_gbps, self.wrong);
        print!(
            "{bytes:>10} {count:>10} {element:>5} {op:>4} {root:>6} {avg_us:>10.2} {min_us:>10.2} \
             {p50_us:>10.2} {p99_us:>10.2} {max_us:>10.2} {algbw:>8.3} {busbw:>8.3} {wrong:>6}"
        );
        if let Some(rate) = self.messages_per_s {
            print!(" {rate:>11.0} {:>9.1}", algbw * 1e3);
        }
        if let Some(Overlap { communication_us, computation_us, hidden }) = self.overlap {
            print!(" {communication_us:>10.2} {computation_us:>10.2} {hidden:>6.2}");
        }
        if let Some(InPlace { avg_us, algbw_gbps, busbw_gbps, wrong }) = &self.in_place {
            print!(" {avg_us:>11.2} {algbw_gbps:>8.3} {busbw_gbps:>8.3} {wrong:>6}");
        }
        if let Some(bound) = self.bound_us {
            print!(" {bound:>10.2} {:>6.2}", bound / avg_us);
        }
        println!();
    }
}

impl Bench {
    fn reduces(self) -> bool {
        use Bench::*;
        matches!(self.call(), Reduce | Allreduce | ReduceScatter | Scan | Exscan)
    }

    /// Roots take turns: each rank is root as often as the others.
    fn root(self) -> &'static str {
        use Bench::*;
        if matches!(self.call(), Broadcast | Reduce | Gather | Scatter) { "all" } else { "-" }
    }

    /// How many messages a call sends where it does not wait for each.
    fn messages(self, ranks: usize) -> Option<usize> {
        use Bench::*;
        match self {
            Bandwidth | Isend => Some(WINDOW),
            Bidirectional => Some(2 * WINDOW),
            MessageRate => Some(WINDOW * ranks / 2),
            Flood | AnySource => Some(MANY),
            _ => None,
        }
    }

    /// The bytes that algbw divides by the time: as in nccl-tests, all that a rank has in the end
    /// (or at first); for messages all that a call sends.
    fn moved(self, bytes: usize, ranks: usize) -> usize {
        if self.has_blocks() { ranks * bytes } else { self.messages(ranks).unwrap_or(1) * bytes }
    }

    /// The bytes of a device's memory that a call on it reads and writes at least, with all ranks
    /// there.
    fn touched(self, bytes: usize, ranks: usize) -> usize {
        use Bench::*;
        let all = self.moved(bytes, ranks);
        match self.call() {
            Broadcast => ranks * bytes,
            Reduce | Allgather | ReduceScatter => (ranks + 1) * all,
            // Each block is read once and written once.
            Gather | Scatter => 2 * all,
            Barrier => 0,
            _ => 2 * ranks * all,
        }
    }

    /// What makes algbw comparable with the hardware's rate (nccl-tests, PERFORMANCE.md).
    fn factor(self, ranks: usize) -> f64 {
        use Bench::*;
        let n = ranks as f64;
        match self.call() {
            Allreduce => 2.0 * (n - 1.0) / n,
            _ if self.has_blocks() => (n - 1.0) / n,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bench::{self, *};

    /// Bytes read and written at least, of 4 ranks of 100 bytes: where ranks have a block for each, the larger buffer
    /// has 400.
    #[test]
    fn what_a_call_touches() {
        let all = [
            (Allreduce, 2 * 4 * 100),
            (Alltoall, 2 * 4 * 400),
            (Reduce, (4 + 1) * 100),
            (ReduceScatter, (4 + 1) * 400),
            (Allgather, (4 + 1) * 400),
            (Broadcast, 4 * 100),
            (Gather, 2 * 400),
            (Barrier, 0),
        ];
        for (bench, bytes) in all {
            assert_eq!(Bench::touched(bench, 100, 4), bytes, "{bench:?}");
        }
    }
}
