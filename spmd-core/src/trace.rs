//! What calls and tasks did when, for a picture of it (`SPMD_TRACE`).
//!
//! The file is in the trace event format that `chrome://tracing` and <https://ui.perfetto.dev>
//! show: a row for each rank's own calls and for each worker, a bar for each call and each stretch of a
//! task. It is one JSON list with a line for each event, complete after every write, whoever of the job
//! has written.
//!
//! What happens is told to a [`Trace`], where there is one, as small values (`trace/event.rs`); lines are
//! made of them later, many at a time. A viewer wants the bars of a row to nest, so each who carries
//! something out has a row of its own (`trace/rows.rs`), and what is suspended on a worker is cut into
//! parts (`trace/worker.rs`).

mod bar;
mod clocks;
mod event;
mod file;
mod label;
mod observer;
mod part;
mod row;
mod rows;
mod worker;

pub use bar::Bar;
pub(crate) use clocks::{Ahead, Alignment, Readings};
pub use event::{Moment, TaskEnd, TracedTask};
pub(crate) use file::TraceFile;
pub use label::Label;
pub use observer::Trace;
pub(crate) use part::path_of_part;
pub(crate) use row::RankRow;
pub use worker::TracedWorker;
