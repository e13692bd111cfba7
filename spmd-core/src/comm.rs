//! Communicators: a group of ranks and a number.

pub(crate) mod beyond;
mod choices;
mod cluster;
mod cluster_agreement;
mod combining;
mod communicator;
mod context_offer;
mod entry;
mod going;
mod internals;
mod message_requests;
mod messages;
mod outstanding;
mod part;
mod polling;
mod polls;
mod receive;
mod receiving;
mod request;
mod request_scope;
mod rules;
mod send_order;
mod sending;
mod start;
mod survive;
mod tally;

pub use choices::Trial;
pub use combining::CombiningCall;
pub use communicator::Comm;
pub use context_offer::ContextOffer;
pub use entry::CallGuard;
pub(crate) use entry::IN_OPERATION;
pub use internals::Internals;
pub use part::Part;
pub use request::{Request, wait_all, wait_any, wait_some};
pub use request_scope::{RequestScope, Starts};
