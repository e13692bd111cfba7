//! Transports: how ranks reach each other.

pub mod shared;
