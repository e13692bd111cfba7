//! What verbs are for. No other type can have them, so that any of them may get another method.

use spmd_core::Comm;

pub trait Sealed {}

impl Sealed for Comm {}

/// What splits a communicator: no other type tells a number that ranks can agree on.
pub trait Color {}
