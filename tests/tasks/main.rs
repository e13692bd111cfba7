//! Tasks inside ranks, in every place.

#[path = "../support/mod.rs"]
mod support;

mod communicating;
mod data;
mod edges;
mod endings;
mod failing;
mod graphs;
mod remote;
mod resources;
mod scopes;
