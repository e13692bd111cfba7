//! Ranks that fail: in one process, as processes, and by the hundred; and those that go on.

mod dynamic;
mod handled;
mod in_process;
#[cfg(target_os = "linux")]
mod job;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod storm;
#[cfg(target_os = "linux")]
#[path = "../support/mod.rs"]
mod support;
#[cfg(target_os = "linux")]
#[path = "../support/survival.rs"]
mod survival;
mod survive;
#[cfg(target_os = "linux")]
mod survivors;
#[path = "../support/use_all.rs"]
mod use_all;
