//! The one place that waits.

mod coroutine;
pub mod fleet;
#[cfg(target_os = "linux")]
mod overflow;
mod ready;
mod stack;
mod worker;
