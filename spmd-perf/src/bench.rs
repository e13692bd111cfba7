//! What can be measured: collectives and messages, and both beside a computation.

use clap::ValueEnum;

/// A collective, messages in some pattern, or a collective that goes on beside a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Bench {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    Gather,
    Allgather,
    Scatter,
    Alltoall,
    ReduceScatter,
    Scan,
    Exscan,
    /// Half of a round trip between the first and the last rank
    Latency,
    /// Windows of 64 messages from the first to the last rank
    Bandwidth,
    /// The same in both directions at once
    Bidirectional,
    /// Windows of 64 messages from each rank of the lower half to one of the upper half
    #[value(name = "message-rate")]
    MessageRate,
    /// 1,000 messages from the first rank to the last, which is in a barrier meanwhile and receives
    /// them afterwards
    Flood,
    /// 1,000 messages from each rank to the others in turn, which take what comes from any rank
    /// after each message that they send
    #[value(name = "any-source")]
    AnySource,
    /// Windows of 64 messages from the first to the last rank as requests: `isend`s, and `irecv`s
    /// that are posted before the last window is acknowledged
    Isend,
    /// A started allreduce and as long a computation, which hides what it can of it
    #[value(name = "overlap-allreduce")]
    OverlapAllreduce,
    /// The same, with a test now and then during the computation
    #[value(name = "overlap-allreduce-test")]
    OverlapAllreduceTest,
    /// A started alltoall and as long a computation
    #[value(name = "overlap-alltoall")]
    OverlapAlltoall,
    /// The same, with a test now and then
    #[value(name = "overlap-alltoall-test")]
    OverlapAlltoallTest,
    /// A started broadcast and as long a computation
    #[value(name = "overlap-broadcast")]
    OverlapBroadcast,
    /// The same, with a test now and then
    #[value(name = "overlap-broadcast-test")]
    OverlapBroadcastTest,
    /// An allreduce that is made once: its start and its end
    #[value(name = "persistent-allreduce")]
    PersistentAllreduce,
    /// A put of the first rank into the part of a window that the last one has
    Put,
    /// A get from there
    Get,
    /// A fetch-and-add of eight bytes there
    #[value(name = "fetch-and-add")]
    FetchAndAdd,
}

impl Bench {
    /// As on the command line; that of a collective is the name of its method.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no bench is hidden");
        value.get_name().to_owned()
    }

    /// Whether it moves bytes, in messages or one-sided calls, not the elements of a collective.
    pub(crate) fn moves_bytes(self) -> bool {
        self.is_message() || self.is_one_sided()
    }

    /// Whether it measures one-sided calls.
    pub(crate) fn is_one_sided(self) -> bool {
        matches!(self, Bench::Put | Bench::Get | Bench::FetchAndAdd)
    }

    /// Whether it measures messages.
    pub(crate) fn is_message(self) -> bool {
        matches!(
            self,
            Bench::Latency
                | Bench::Bandwidth
                | Bench::Bidirectional
                | Bench::MessageRate
                | Bench::Flood
                | Bench::AnySource
                | Bench::Isend
        )
    }

    /// Whether it measures calls of a collective, and nothing else.
    pub(crate) fn is_plain(self) -> bool {
        let other = self.is_one_sided() || self.is_message() || self.overlap().is_some();
        !other && self != Bench::PersistentAllreduce
    }

    /// The collective that it starts beside a computation, and whether this tests it now and then.
    pub(crate) fn overlap(self) -> Option<(Bench, bool)> {
        use Bench::*;
        match self {
            OverlapAllreduce => Some((Allreduce, false)),
            OverlapAllreduceTest => Some((Allreduce, true)),
            OverlapAlltoall => Some((Alltoall, false)),
            OverlapAlltoallTest => Some((Alltoall, true)),
            OverlapBroadcast => Some((Broadcast, false)),
            OverlapBroadcastTest => Some((Broadcast, true)),
            _ => None,
        }
    }

    /// The call that is measured: of an overlap, what is started; of a persistent one, what it is.
    pub(crate) fn call(self) -> Bench {
        match self {
            Bench::PersistentAllreduce => Bench::Allreduce,
            _ => self.overlap().map_or(self, |(collective, _)| collective),
        }
    }

    /// Whether ranks send or get a block for each rank.
    pub(crate) fn has_blocks(self) -> bool {
        use Bench::*;
        matches!(self.call(), Gather | Allgather | Scatter | Alltoall | ReduceScatter)
    }

    /// Whether it has a form that sends from where it receives, beside the one that does not.
    pub(crate) fn has_in_place(self) -> bool {
        use Bench::*;
        matches!(self, Reduce | Allreduce | Allgather | Alltoall | ReduceScatter | Scan)
    }

    /// The longest message. Those that are sent before anybody receives are small ones: a large one
    /// waits for its receiver. Receives that are posted have a buffer each.
    pub(crate) fn most(self) -> usize {
        match self {
            Bench::Flood | Bench::AnySource => 8 << 10,
            Bench::Isend => 1 << 20,
            Bench::FetchAndAdd => 8,
            _ => usize::MAX,
        }
    }

    /// The bench of a collective, if there is one.
    pub(crate) fn of(kind: spmd_core::internal::Kind) -> Option<Bench> {
        Bench::value_variants().iter().copied().find(|bench| bench.name() == kind.name())
    }
}
