//! What a rank brings to a call, for those who start calls by themselves. It may change with every
//! version.

pub use crate::allgather::args as allgather;
pub use crate::allreduce::args as allreduce;
pub use crate::alltoall::args as alltoall;
pub use crate::barrier::args as barrier;
pub use crate::broadcast::args as broadcast;
