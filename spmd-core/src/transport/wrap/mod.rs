//! What can be wrapped around any transport.

mod chaos;
mod trace;

pub(crate) use chaos::Chaos;
pub(crate) use trace::Traced;
