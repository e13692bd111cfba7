//! Cores: which a process may use, and binding threads to them.

/// To which cores the ranks of a block are bound.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::Bind;
///
/// // Rank 0 on the first core that this process may use, rank 1 on the second.
/// Spmd::new(2).bind(Bind::Cores).run(|_ctx| Ok(()))?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bind {
    /// To none: the system decides.
    #[default]
    None,
    /// Rank i to the i-th of the cores that this process may use, over again where there are
    /// more ranks.
    Cores,
    /// Rank i to the i-th of these cores, over again where there are more ranks.
    List(Vec<usize>),
    /// Rank i to the i-th of these sets of cores, over again where there are more ranks.
    Sets(Vec<Vec<usize>>),
}

/// Cores that this process may use.
#[cfg(target_os = "linux")]
pub(crate) fn allowed_cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn allowed_cores() -> Vec<usize> {
    Vec::new()
}

/// Cores that the first thread of this process may use.
#[cfg(target_os = "linux")]
pub(crate) fn cores_of_process() -> Vec<usize> {
    let first = Some(rustix::process::getpid());
    let set = rustix::thread::sched_getaffinity(first).unwrap_or_default();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn cores_of_process() -> Vec<usize> {
    Vec::new()
}

/// Binds the calling thread to these cores; none, or some that it may not use, are ignored, as
/// binding is only about speed.
pub(crate) fn bind_to(cores: &[usize]) {
    #[cfg(target_os = "linux")]
    if !cores.is_empty() {
        let mut set = rustix::thread::CpuSet::new();
        let known = cores.iter().filter(|core| **core < rustix::thread::CpuSet::MAX_CPU);
        known.for_each(|core| set.set(*core));
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = cores;
}
