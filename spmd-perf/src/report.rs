//! What is printed: a table as users of OSU's benchmarks and nccl-tests know it, or JSON.

use serde_json::json;
use spmd::Mode;
use spmd::prelude::*;

use crate::args::Bench;
use crate::elements::{Kind, Operator};
use crate::measure::Measured;
use crate::messages::WINDOW;

/// One size of one bench.
pub(crate) struct Row {
    pub(crate) bench: Bench,
    pub(crate) bytes: usize,
    pub(crate) element: Kind,
    pub(crate) op: Operator,
    pub(crate) measured: Measured,
}

/// Prints on rank 0.
pub(crate) struct Report {
    prints: bool,
    json: bool,
    ranks: usize,
    mode: &'static str,
}

impl Report {
    pub(crate) fn new(ctx: &Ctx, json: bool) -> Report {
        let mode = match ctx.mode() {
            Mode::Threads => "threads",
            Mode::Virtual => "virtual",
            Mode::Processes => "processes",
        };
        Report { prints: ctx.rank() == 0, json, ranks: ctx.size(), mode }
    }

    /// The heading of a bench.
    pub(crate) fn begin(&self, bench: Bench) {
        if !self.prints || self.json {
            return;
        }
        println!("\n# {}, {} ranks as {}, shm", bench.name(), self.ranks, self.mode);
        println!(
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
    }

    pub(crate) fn row(&self, row: &Row) {
        if !self.prints {
            return;
        }
        let Row { bench, bytes, element, op, measured } = row;
        let Measured { iterations, avg, min, p50, p99, max, wrong } = measured;
        let algbw = row.moved(self.ranks) as f64 / avg / 1e3;
        let busbw = algbw * row.factor(self.ranks);
        if self.json {
            let line = json!({
                "collective": bench.name(), "ranks": self.ranks, "as": self.mode,
                "transport": "shm", "bytes": bytes, "iterations": iterations, "min_us": min,
                "avg_us": avg, "p50_us": p50, "p99_us": p99, "max_us": max,
                "algbw_gbps": algbw, "busbw_gbps": busbw, "wrong": wrong,
            });
            println!("{line}");
            return;
        }
        let (kind, count) = match bench.is_message() {
            true => ("u8", *bytes),
            false => (element.name(), bytes / element.size()),
        };
        let op = if row.reduces() { op.name() } else { "-" };
        let root = if row.has_root() { "all" } else { "-" };
        println!(
            "{bytes:>10} {count:>10} {kind:>5} {op:>4} {root:>6} {avg:>10.2} {min:>10.2} \
             {p50:>10.2} {p99:>10.2} {max:>10.2} {algbw:>8.3} {busbw:>8.3} {wrong:>6}"
        );
    }
}

impl Row {
    fn reduces(&self) -> bool {
        use Bench::*;
        matches!(self.bench, Reduce | Allreduce | ReduceScatter | Scan | Exscan)
    }

    /// Roots take turns: each rank is root as often as the others.
    fn has_root(&self) -> bool {
        matches!(self.bench, Bench::Broadcast | Bench::Reduce | Bench::Gather | Bench::Scatter)
    }

    /// The bytes that algbw divides by the time: as in nccl-tests, all that a rank has in the end
    /// (or at first); for messages all of a window.
    fn moved(&self, ranks: usize) -> usize {
        use Bench::*;
        match self.bench {
            Gather | Allgather | Scatter | Alltoall | ReduceScatter => ranks * self.bytes,
            Bandwidth => WINDOW * self.bytes,
            Bidirectional => 2 * WINDOW * self.bytes,
            MessageRate => WINDOW * self.bytes * ranks / 2,
            _ => self.bytes,
        }
    }

    /// What makes algbw comparable with the hardware's rate (nccl-tests, PERFORMANCE.md).
    fn factor(&self, ranks: usize) -> f64 {
        use Bench::*;
        let n = ranks as f64;
        match self.bench {
            Allreduce => 2.0 * (n - 1.0) / n,
            Gather | Allgather | Scatter | Alltoall | ReduceScatter => (n - 1.0) / n,
            _ => 1.0,
        }
    }
}
