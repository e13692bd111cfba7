//! Ranks that fail: in one process, as processes, and by the hundred; and those that go on.

mod in_process;
#[cfg(target_os = "linux")]
mod job;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod random;
#[cfg(target_os = "linux")]
mod storm;
#[cfg(target_os = "linux")]
#[path = "../support/mod.rs"]
mod support;
mod survive;
#[cfg(target_os = "linux")]
mod survivors;
