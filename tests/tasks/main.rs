//! Tasks inside ranks, in every place.

#[path = "../support/mistakes.rs"]
mod mistakes;
#[path = "../support/mod.rs"]
mod support;

mod arrays;
mod channels;
mod codelets;
mod communicating;
mod commuting;
mod data;
mod edges;
mod endings;
mod failing;
mod graphs;
mod many;
mod objects;
mod placement;
mod programs;
mod recording;
mod reducing;
mod remote;
mod remote_ends;
mod resources;
mod scopes;
mod streams;
