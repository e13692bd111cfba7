//! Wrong programs: each draws one error that names the ranks and source lines, on every rank that
//! would have waited. And correct ones that come close, which draw none.

mod arguments;
mod collectives;
mod correct;
mod expect;
mod leaving;
mod messages;
#[cfg(target_os = "linux")]
mod processes;
mod rooted;
mod waiting;
mod windows;

#[cfg(target_os = "linux")]
#[path = "../support/mod.rs"]
mod support;
