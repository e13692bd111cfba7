//! Binding threads to cores.

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

/// Binds the calling thread to these cores; none, or some that it may not use, are ignored, as
/// binding is only about speed.
pub(super) fn bind_to(cores: &[usize]) {
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
