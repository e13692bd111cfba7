//! Communicators: a group of ranks and a number.

mod across;
pub(crate) mod beyond;
mod choices;
mod communicator;
mod entry;
mod hub;
mod messages;
mod offer;
mod part;
mod polling;
mod polls;
mod receive;
mod rules;
mod settle;
mod start;
mod survive;
mod tally;

pub use choices::Trial;
pub use communicator::Comm;
pub use entry::Entered;
pub(crate) use entry::IN_OPERATION;
pub use hub::HubCall;
pub use offer::Offer;
pub use part::Part;
