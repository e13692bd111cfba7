//! What is compared, how often it is called, and what is asked of us.

/// Ranks and cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Two ranks, a core for each.
    Two,
    /// 16 ranks on two cores.
    Sixteen,
}

impl Group {
    pub(super) const ALL: [Group; 2] = [Group::Two, Group::Sixteen];

    pub(super) fn name(self) -> &'static str {
        match self {
            Group::Two => "two",
            Group::Sixteen => "sixteen",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Group::Two => "two ranks on two cores",
            Group::Sixteen => "16 ranks on two cores",
        }
    }

    pub(super) fn ranks(self) -> &'static str {
        match self {
            Group::Two => "2",
            Group::Sixteen => "16",
        }
    }
}

/// What our ranks run as, and what their data lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Processes,
    /// Processes whose buffers are of `alloc_shared`.
    Shared,
    /// Processes with plain `Vec`s under `SharedAlloc`.
    SharedAlloc,
    Threads,
    Virtual,
}

impl Side {
    pub(super) const ALL: [Side; 5] =
        [Side::Processes, Side::Shared, Side::SharedAlloc, Side::Threads, Side::Virtual];

    /// As `--as` takes it.
    pub(super) fn mode(self) -> &'static str {
        match self {
            Side::Processes | Side::Shared | Side::SharedAlloc => "processes",
            Side::Threads => "threads",
            Side::Virtual => "virtual",
        }
    }

    /// As `--memory` takes it.
    pub(super) fn memory(self) -> &'static str {
        match self {
            Side::Shared => "shared",
            Side::SharedAlloc => "shared-alloc",
            _ => "vec",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Side::Shared => "processes, alloc_shared",
            Side::SharedAlloc => "processes, SharedAlloc",
            other => other.mode(),
        }
    }
}

/// One thing that all do.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) group: Group,
    /// As spmd-perf and `peer` name it; `START` is none of theirs.
    pub(super) bench: &'static str,
    pub(super) bytes: usize,
    pub(super) iterations: usize,
    /// Our time ÷ that of the best peer, at most.
    pub(super) targets: Vec<(Side, f64)>,
}

/// Start and end of a program that does nothing in between.
pub(super) const START: &str = "start";

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const COLLECTIVES: [&str; 5] = ["allreduce", "broadcast", "reduce", "allgather", "alltoall"];
const OVERLAPS: [&str; 6] = [
    "overlap-allreduce",
    "overlap-allreduce-test",
    "overlap-alltoall",
    "overlap-alltoall-test",
    "overlap-broadcast",
    "overlap-broadcast-test",
];
/// Messages in a window of spmd-perf.
const WINDOW: usize = 64;

impl Row {
    pub(super) fn is_start(&self) -> bool {
        self.bench == START
    }

    /// As the command lines of spmd-perf (`--row`) and `peer` take it.
    pub(super) fn spec(&self) -> String {
        format!("{}:{}:{}", self.bench, self.bytes, self.iterations)
    }

    pub(super) fn title(&self) -> String {
        let size = match self.bytes {
            0 => String::new(),
            bytes if bytes >= MIB => format!(" of {} MiB", bytes / MIB),
            bytes if bytes >= KIB => format!(" of {} KiB", bytes / KIB),
            bytes => format!(" of {bytes} B"),
        };
        match self.bench {
            START => "start and end of an empty program".into(),
            "latency" => format!("one-way latency{size}"),
            "isend" => format!("{WINDOW} isends{size}"),
            bench => match bench.strip_prefix("overlap-") {
                Some(call) => match call.strip_suffix("-test") {
                    Some(call) => format!("{call}{size} beside computation that tests it"),
                    None => format!("{call}{size} beside computation"),
                },
                None => format!("{bench}{size}"),
            },
        }
    }

    /// What users look at, of a call that takes so many µs, where that is a rate.
    pub(super) fn rate(&self, micros: f64) -> Option<String> {
        match self.bench {
            "isend" if self.bytes < KIB => Some(format!("{:.2} million/s", WINDOW as f64 / micros)),
            "isend" | "bandwidth" => {
                Some(format!("{:.1} GB/s", (WINDOW * self.bytes) as f64 / micros / 1e3))
            }
            _ => None,
        }
    }

    pub(super) fn target(&self, side: Side) -> Option<f64> {
        self.targets.iter().find(|(of, _)| *of == side).map(|(_, target)| *target)
    }
}

/// All rows. The numbers of calls are such that a round takes about a minute, and that even the
/// slowest peer ends.
pub(super) fn all() -> Vec<Row> {
    let mut rows = two();
    rows.extend(sixteen());
    rows
}

fn two() -> Vec<Row> {
    let row = |bench, bytes, iterations, processes, threads| Row {
        group: Group::Two,
        bench,
        bytes,
        iterations,
        targets: vec![(Side::Processes, processes), (Side::Threads, threads)],
    };
    let mut rows =
        vec![row("latency", 8, 20_000, 0.55, 0.50), row("barrier", 0, 20_000, 0.40, 0.35)];
    let sizes = [
        (8, 20_000, 0.40, 0.35),
        (KIB, 10_000, 0.50, 0.40),
        (64 * KIB, 1000, 0.75, 0.40),
        (MIB, 200, 0.80, 0.55),
        (16 * MIB, 15, 0.80, 0.55),
    ];
    for (bytes, iterations, processes, threads) in sizes {
        for bench in COLLECTIVES {
            let threads = if bytes >= MIB && bench == "allreduce" { 0.40 } else { threads };
            let mut row = row(bench, bytes, iterations, processes, threads);
            if bytes == MIB {
                row.targets.extend([(Side::Shared, 0.45), (Side::SharedAlloc, 0.45)]);
            }
            rows.push(row);
        }
    }
    rows.push(row("bandwidth", 64 * KIB, 200, 0.80, 0.60));
    rows.push(row("bandwidth", MIB, 20, 0.80, 0.60));
    // A thousand messages each. Larger ones are no test: an MPI waits for their receiver, for ever.
    let many = [("flood", 64), ("flood", 2 * KIB), ("any-source", 16), ("any-source", 2 * KIB)];
    rows.extend(many.map(|(bench, bytes)| row(bench, bytes, 400, 1.00, 1.00)));
    rows.push(row("isend", 8, 2000, 0.67, 0.67));
    rows.push(row("isend", 64 * KIB, 200, 1.00, 0.80));
    rows.push(row("isend", MIB, 20, 1.00, 0.80));
    // With as long a computation as the call takes: who is faster has less to compute.
    for bench in OVERLAPS {
        rows.push(row(bench, MIB, 100, 1.00, 1.00));
    }
    for bench in &OVERLAPS[..2] {
        rows.push(row(bench, 16 * MIB, 10, 1.00, 1.00));
    }
    let persistent = [(8, 20_000), (64 * KIB, 1000), (MIB, 200)];
    rows.extend(
        persistent.map(|(bytes, turns)| row("persistent-allreduce", bytes, turns, 0.75, 0.40)),
    );
    rows.push(row("put", 8, 20_000, 0.50, 0.50));
    rows.push(row("get", 8, 20_000, 0.50, 0.50));
    rows.push(row("fetch-and-add", 8, 20_000, 0.50, 0.50));
    rows.push(row("put", MIB, 200, 0.80, 0.80));
    rows.push(row("get", MIB, 200, 0.80, 0.80));
    rows
}

fn sixteen() -> Vec<Row> {
    let row = |bench, bytes, iterations, processes, virtuals| Row {
        group: Group::Sixteen,
        bench,
        bytes,
        iterations,
        targets: vec![(Side::Processes, processes), (Side::Virtual, virtuals)],
    };
    vec![
        row("barrier", 0, 400, 0.60, 0.02),
        row("allreduce", 8, 400, 0.60, 0.02),
        row("broadcast", 8, 400, 0.60, 0.02),
        row("allreduce", 64 * KIB, 20, 0.70, 0.30),
        row("allgather", 64 * KIB, 20, 0.70, 0.30),
        row("alltoall", 64 * KIB, 20, 0.70, 0.30),
        row("allreduce", MIB, 10, 0.70, 0.40),
        row(START, 0, 3, 0.30, 0.05),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_apart_by_what_they_print() {
        let rows = all();
        let key = |row: &Row| (row.group.name(), row.bench, row.bytes);
        for row in &rows {
            assert_eq!(rows.iter().filter(|other| key(other) == key(row)).count(), 1, "{row:?}");
        }
        assert_eq!(rows[2].spec(), "allreduce:8:20000");
        assert_eq!(rows[2].title(), "allreduce of 8 B");
    }
}
