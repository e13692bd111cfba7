//! spmd collectives
