//! What the tests of collectives share: element values that depend on rank and position, the
//! canonical fold in plain code, and every placement.
#![allow(dead_code)]

use spmd_core::internal::canonical_split;
use spmd_core::{Ctx, Element, Operation, Result, Spmd};

/// Element types with a value for each rank and position.
pub trait Sample: Element + PartialEq + std::fmt::Debug {
    fn of(rank: usize, index: usize) -> Self;
}

fn mixed(rank: usize, index: usize) -> u64 {
    ((rank as u64) << 32 ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

impl Sample for f64 {
    fn of(rank: usize, index: usize) -> f64 {
        mixed(rank, index) as f64 / 3e9
    }
}

impl Sample for f32 {
    fn of(rank: usize, index: usize) -> f32 {
        mixed(rank, index) as f32 / 3e9 - 700.0
    }
}

impl Sample for i32 {
    fn of(rank: usize, index: usize) -> i32 {
        mixed(rank, index) as i32
    }
}

impl Sample for u8 {
    fn of(rank: usize, index: usize) -> u8 {
        mixed(rank, index) as u8
    }
}

impl Sample for bool {
    fn of(rank: usize, index: usize) -> bool {
        mixed(rank, index) & 4 != 0
    }
}

impl Sample for [f32; 3] {
    fn of(rank: usize, index: usize) -> [f32; 3] {
        [0, 1, 2].map(|lane| f32::of(rank, 3 * index + lane))
    }
}

/// A rank's buffer of `count` elements.
pub fn buffer<T: Sample>(rank: usize, count: usize) -> Vec<T> {
    (0..count).map(|index| T::of(rank, index)).collect()
}

/// Element `index` of the canonical fold over ranks `lo..hi`.
pub fn folded<T: Sample, O: Operation<T>>(op: &O, lo: usize, hi: usize, index: usize) -> T {
    if hi - lo == 1 {
        return T::of(lo, index);
    }
    let middle = lo + canonical_split(hi - lo);
    op.combine(folded(op, lo, middle, index), folded(op, middle, hi, index))
}

/// These numbers of ranks, or, with a sanitizer, which takes ten times as long, those up to eight.
pub fn some(ranks: &[usize]) -> impl Iterator<Item = usize> {
    ranks.iter().copied().filter(|ranks| !cfg!(sanitizer) || *ranks <= 8)
}

/// What each placement runs on: threads up to 20 ranks, virtual ranks up to 33.
pub fn everywhere(
    setup: impl Fn(Spmd) -> Spmd,
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    for n in some(&[1, 2, 3, 4, 7, 8, 16, 20]) {
        setup(Spmd::new(n).threads()).run(&body)?;
        setup(Spmd::new(n).virtual_ranks()).run(&body)?;
    }
    some(&[33]).try_for_each(|n| setup(Spmd::new(n).virtual_ranks()).run(&body).map(drop))
}

/// Runs `body` on `n` processes: the test with this name starts itself again as each of them.
#[cfg(target_os = "linux")]
pub fn processes(
    test: &str,
    n: usize,
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    if std::env::var_os("SPMD_ARENA_FD").is_some() {
        spmd_core::run(body)?;
        return Ok(());
    }
    let job = spmd_core::boot::Job::create(n)?;
    let program = std::env::current_exe()?;
    let mut ranks = Vec::new();
    for rank in 0..n {
        let mut command = std::process::Command::new(&program);
        command.args(["--exact", test, "--nocapture"]).envs(job.environment(rank));
        command.envs(settings.iter().copied()).stdout(std::process::Stdio::null());
        ranks.push(command.spawn()?);
    }
    let mut failed = false;
    for (rank, child) in ranks.iter_mut().enumerate() {
        let status = child.wait()?;
        job.died(rank, status);
        failed |= !status.success();
    }
    assert!(!failed, "{:?}", job.first_cause());
    Ok(())
}
