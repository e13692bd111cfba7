//! Placements: how many hosts, how many ranks on each, and what these are.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::args::{Carrier, Mode, SweepArgs};
use super::hosts::Hosts;
use crate::bench::Bench;

/// Most bytes of a buffer with a block for every rank.
const BLOCKS: usize = 128 << 20;

/// One of the places in which everything is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placement {
    pub(crate) transport: Carrier,
    /// Names, where they were given; else it is this machine.
    pub(crate) hosts: Vec<String>,
    pub(crate) ranks_per_host: usize,
    #[serde(rename = "as")]
    pub(crate) mode: Mode,
    pub(crate) ranks_per_process: usize,
}

impl Placement {
    pub(crate) fn host_count(&self) -> usize {
        self.hosts.len().max(1)
    }

    pub(crate) fn ranks(&self) -> usize {
        self.host_count() * self.ranks_per_host
    }

    /// Whether a host has several processes of several ranks each.
    pub(crate) fn is_shared_out(&self) -> bool {
        self.mode != Mode::Processes && self.ranks_per_process < self.ranks_per_host
    }

    /// What ranks are, for people: `threads`, and, if it matters, `threads, 8 a process`.
    pub(crate) fn shape(&self, matters: bool) -> String {
        let (mode, each) = (self.mode.name(), self.ranks_per_process);
        match matters && self.mode != Mode::Processes {
            true => format!("{mode}, {each} a process"),
            false => mode.to_owned(),
        }
    }

    /// A part of a file's name that no other placement of a sweep has: `mpi-2x16-threads8`.
    pub(crate) fn name(&self) -> String {
        let (hosts, ranks) = (self.host_count(), self.ranks_per_host);
        let (transport, mode) = (self.transport.name(), self.mode.name());
        match self.ranks_per_process {
            1 => format!("{transport}-{hosts}x{ranks}-{mode}"),
            each => format!("{transport}-{hosts}x{ranks}-{mode}{each}"),
        }
    }

    /// What `spmdrun` is told.
    pub(crate) fn options(&self) -> Vec<String> {
        let (ranks, mode) = (self.ranks().to_string(), self.mode.name());
        let mut options = vec!["--transport", self.transport.name(), "-n", &ranks, "--as", mode];
        let each = self.ranks_per_process.to_string();
        if self.transport == Carrier::Mpi && self.mode != Mode::Processes {
            options.extend(["--ranks-per-process", &each]);
        }
        let here = |host: &String| format!("{host}:{}", self.ranks_per_host);
        let list = self.hosts.iter().map(here).collect::<Vec<_>>().join(",");
        if !list.is_empty() {
            options.extend(["--host", &list]);
        }
        options.into_iter().map(str::to_owned).collect()
    }

    /// Those of these sizes that a benchmark is measured with here: none, if it cannot be measured.
    pub(crate) fn sizes(&self, bench: Bench, sizes: &[usize]) -> Vec<usize> {
        let ranks = self.ranks();
        let odd = bench == Bench::MessageRate && !ranks.is_multiple_of(2);
        // Collectives cannot be started there.
        if odd || (bench.overlap().is_some() && self.transport == Carrier::Mpi) {
            return Vec::new();
        }
        if bench == Bench::Barrier {
            return vec![0];
        }
        let blocks = if bench.has_blocks() { ranks } else { 1 };
        let fits = |bytes: &usize| *bytes <= bench.most() && bytes.saturating_mul(blocks) <= BLOCKS;
        sizes.iter().copied().filter(fits).collect()
    }
}

/// All placements that were asked for, the small ones first.
///
/// Errors: what was asked for does not go together.
pub(crate) fn placements(args: &SweepArgs, hosts: &Hosts) -> Result<Vec<Placement>, String> {
    let named = !hosts.names.is_empty();
    let transport = args.transport.unwrap_or(if named { Carrier::Mpi } else { Carrier::Shm });
    if named && transport == Carrier::Shm {
        return Err(
            "shared memory joins no hosts; drop --hosts, --hostfile or --transport shm".into()
        );
    }
    if transport == Carrier::Shm && !args.ranks_per_process.is_empty() {
        return Err("--ranks-per-process is for MPI; add --transport mpi, or drop it".into());
    }
    let counts = host_counts(args, hosts)?;
    let each_host = ranks_per_host(args, hosts)?;
    let mut all: Vec<Placement> = Vec::new();
    for mode in modes(args)? {
        for &ranks_per_host in &each_host {
            for ranks_per_process in per_process(args, mode, ranks_per_host, transport) {
                for &count in &counts {
                    let hosts = hosts.names.iter().take(count).cloned().collect();
                    all.push(Placement {
                        transport,
                        hosts,
                        ranks_per_host,
                        mode,
                        ranks_per_process,
                    });
                }
            }
        }
    }
    for each in &args.ranks_per_process {
        if !all.iter().any(|placement| placement.ranks_per_process == *each) {
            return Err(format!(
                "--ranks-per-process {each} divides none of the numbers of ranks on a host \
                 ({each_host:?}); correct one of the two"
            ));
        }
    }
    all.retain(|placement| placement.ranks() > 1);
    if all.is_empty() {
        return Err("one rank alone has nobody to talk to; give more --ranks-per-host".into());
    }
    all_is_measured(args, &all)?;
    all.sort_by_key(|placement| (placement.ranks(), placement.host_count()));
    Ok(all)
}

/// Complains if something that was asked for by name is measured nowhere.
fn all_is_measured(args: &SweepArgs, all: &[Placement]) -> Result<(), String> {
    let unmet = |option: &str, value: &dyn Display| {
        Err(format!(
            "{option} {value} is measured nowhere: one rank alone has nobody to talk to, and one of a \
             host is a process; drop it, or give it more hosts, ranks or --as processes"
        ))
    };
    let absent = |asked: &[usize], of: fn(&Placement) -> usize| {
        asked.iter().copied().find(|value| !all.iter().any(|placement| of(placement) == *value))
    };
    if let Some(count) = absent(&args.ranks_per_host, |placement| placement.ranks_per_host) {
        return unmet("--ranks-per-host", &count);
    }
    if let Some(count) = absent(&args.host_counts, Placement::host_count) {
        return unmet("--host-counts", &count);
    }
    match args.modes.iter().find(|mode| !all.iter().any(|placement| placement.mode == **mode)) {
        Some(mode) => unmet("--as", &mode.name()),
        None => Ok(()),
    }
}

fn host_counts(args: &SweepArgs, hosts: &Hosts) -> Result<Vec<usize>, String> {
    let all = hosts.names.len().max(1);
    match args.host_counts.iter().find(|count| **count > all) {
        Some(count) => Err(format!("--host-counts {count}, and there are {all} hosts; name more")),
        None if args.host_counts.is_empty() => Ok(doubling(all)),
        None => Ok(ordered(&args.host_counts)),
    }
}

fn ranks_per_host(args: &SweepArgs, hosts: &Hosts) -> Result<Vec<usize>, String> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let asked = ordered(&args.ranks_per_host);
    match (hosts.slots, asked.last()) {
        (Some(slots), Some(most)) if *most > slots => Err(format!(
            "--ranks-per-host {most}, and some host has {slots} slots; use fewer, or give it more"
        )),
        (slots, None) => Ok(doubling(slots.unwrap_or_else(cores))),
        _ => Ok(asked),
    }
}

fn modes(args: &SweepArgs) -> Result<Vec<Mode>, String> {
    let hybrid = !args.ranks_per_process.is_empty();
    let mut modes = args.modes.clone();
    modes.dedup();
    match (modes.is_empty(), hybrid) {
        (true, true) => Ok(vec![Mode::Processes, Mode::Threads]),
        (true, false) => Ok(vec![Mode::Processes]),
        (false, true) if modes == [Mode::Processes] => {
            Err("--ranks-per-process is for --as threads or virtual; add one of them".into())
        }
        _ => Ok(modes),
    }
}

/// How many ranks each process holds. Several of them share one where there is a choice: one alone
/// would be a process.
fn per_process(args: &SweepArgs, mode: Mode, ranks: usize, transport: Carrier) -> Vec<usize> {
    if mode == Mode::Processes {
        return vec![1];
    }
    if args.ranks_per_process.is_empty() {
        return if ranks == 1 && transport == Carrier::Mpi { Vec::new() } else { vec![ranks] };
    }
    ordered(&args.ranks_per_process)
        .into_iter()
        .filter(|each| ranks.is_multiple_of(*each))
        .collect()
}

fn ordered(counts: &[usize]) -> Vec<usize> {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// 1, 2, 4 and so on, and the last.
fn doubling(last: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1), |count| Some(count * 2));
    powers.take_while(|count| *count < last).chain([last]).collect()
}

#[cfg(test)]
mod tests;
