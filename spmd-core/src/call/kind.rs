//! Which calls there are, and in which forms.

/// Which call of the rank API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Kind {
    Barrier = 1,
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
    Gatherv,
    Allgatherv,
    Scatterv,
    Alltoallv,
    ReduceScatterv,
    Split,
    Dup,
    Send,
    Ssend,
    Recv,
    Probe,
    NeighborAllgather,
    NeighborAlltoall,
    NeighborAlltoallv,
    Cartesian,
    GathervVec,
    AllgathervVec,
    ScattervVec,
    BroadcastObject,
    GatherObject,
    AllgatherObject,
    ScatterObject,
    AlltoallObject,
    Agree,
    Shrink,
    End,
    Start,
    Window,
    Fence,
    Lock,
    Unlock,
    Flush,
    Put,
    Get,
    Accumulate,
    GetAccumulate,
    FetchAndOp,
    CompareAndSwap,
    PutNotify,
    WaitNotify,
    Read,
    Write,
    Aggregate,
    Free,
    Fetch,
    ReduceObject,
    AllreduceObject,
    Once,
    ExchangeHalo,
}

impl Kind {
    pub(super) const ALL: [(Kind, &'static str); 60] = [
        (Kind::Barrier, "barrier"),
        (Kind::Broadcast, "broadcast"),
        (Kind::Reduce, "reduce"),
        (Kind::Allreduce, "allreduce"),
        (Kind::Gather, "gather"),
        (Kind::Allgather, "allgather"),
        (Kind::Scatter, "scatter"),
        (Kind::Alltoall, "alltoall"),
        (Kind::ReduceScatter, "reduce_scatter"),
        (Kind::Scan, "scan"),
        (Kind::Exscan, "exscan"),
        (Kind::Gatherv, "gatherv"),
        (Kind::Allgatherv, "allgatherv"),
        (Kind::Scatterv, "scatterv"),
        (Kind::Alltoallv, "alltoallv"),
        (Kind::ReduceScatterv, "reduce_scatterv"),
        (Kind::Split, "split"),
        (Kind::Dup, "dup"),
        (Kind::Send, "send"),
        (Kind::Ssend, "ssend"),
        (Kind::Recv, "recv"),
        (Kind::Probe, "probe"),
        (Kind::NeighborAllgather, "neighbor_allgather"),
        (Kind::NeighborAlltoall, "neighbor_alltoall"),
        (Kind::NeighborAlltoallv, "neighbor_alltoallv"),
        (Kind::Cartesian, "cartesian"),
        (Kind::GathervVec, "gatherv_vec"),
        (Kind::AllgathervVec, "allgatherv_vec"),
        (Kind::ScattervVec, "scatterv_vec"),
        (Kind::BroadcastObject, "broadcast_object"),
        (Kind::GatherObject, "gather_object"),
        (Kind::AllgatherObject, "allgather_object"),
        (Kind::ScatterObject, "scatter_object"),
        (Kind::AlltoallObject, "alltoall_object"),
        (Kind::Agree, "agree"),
        (Kind::Shrink, "shrink"),
        (Kind::End, "end of the block"),
        (Kind::Start, "start of a block"),
        (Kind::Window, "window"),
        (Kind::Fence, "fence"),
        (Kind::Lock, "lock"),
        (Kind::Unlock, "unlock"),
        (Kind::Flush, "flush"),
        (Kind::Put, "put"),
        (Kind::Get, "get"),
        (Kind::Accumulate, "accumulate"),
        (Kind::GetAccumulate, "get_accumulate"),
        (Kind::FetchAndOp, "fetch_and_op"),
        (Kind::CompareAndSwap, "compare_and_swap"),
        (Kind::PutNotify, "put_notify"),
        (Kind::WaitNotify, "wait_notify"),
        (Kind::Read, "read"),
        (Kind::Write, "write"),
        (Kind::Aggregate, "aggregate"),
        (Kind::Free, "free"),
        (Kind::Fetch, "fetch"),
        (Kind::ReduceObject, "reduce_object"),
        (Kind::AllreduceObject, "allreduce_object"),
        (Kind::Once, "once"),
        (Kind::ExchangeHalo, "exchange_halo"),
    ];

    /// The name of the method.
    pub fn name(self) -> &'static str {
        Kind::ALL[self.index()].1
    }

    /// How many there are.
    pub(crate) const COUNT: usize = Kind::ALL.len();

    /// The call with this name.
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().find(|(_, known)| *known == name).map(|entry| entry.0)
    }

    /// Its place among all.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self as usize - 1
    }

    /// Whether it is a call on the part of a window that a rank has.
    pub(super) fn is_on_part(self) -> bool {
        use Kind::*;
        matches!(self, Lock | Unlock | Flush | Read | Write | Accumulate | GetAccumulate)
            || matches!(self, FetchAndOp | CompareAndSwap)
    }

    /// The kind and form in the low bits of a record's word.
    pub(crate) fn with_form(word: u64) -> Option<(Kind, Form)> {
        Some((Kind::from_number(word as u8)?, Form::from_number((word >> 8) as u8)))
    }

    /// The kind with this number, if a correct rank wrote it.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number).checked_sub(1)?).map(|entry| entry.0)
    }
}

/// In which form a call is made. Ranks need not agree on it: it makes the call's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// As its kind is named.
    #[default]
    Plain = 0,
    /// `.._value`.
    Value,
    /// `.._in_place`.
    InPlace,
    /// `.._vec`.
    Vec,
    /// `.._object`.
    Object,
    /// A send and a receive at once.
    Sendrecv,
    /// A probe that does not wait.
    Iprobe,
    /// A split by hosts.
    SplitHost,
    /// `.._start`.
    Start,
    /// A send that goes on.
    Isend,
    /// The same that waits for its receiver.
    Issend,
    /// A receive that goes on.
    Irecv,
    /// `.._init`.
    Init,
    /// A probe that sets its message aside.
    Mprobe,
    /// The same that does not wait.
    Improbe,
    /// `lock_shared`.
    Shared,
    /// `.._all`.
    All,
    /// `.._into`.
    Into,
    /// An alltoall of vectors.
    Exchange,
}

impl Form {
    const ALL: [(Form, &'static str); 19] = [
        (Form::Plain, ""),
        (Form::Value, "_value"),
        (Form::InPlace, "_in_place"),
        (Form::Vec, "_vec"),
        (Form::Object, "_object"),
        (Form::Sendrecv, "sendrecv"),
        (Form::Iprobe, "iprobe"),
        (Form::SplitHost, "split_host"),
        (Form::Start, "_start"),
        (Form::Isend, "isend"),
        (Form::Issend, "issend"),
        (Form::Irecv, "irecv"),
        (Form::Init, "_init"),
        (Form::Mprobe, "mprobe"),
        (Form::Improbe, "improbe"),
        (Form::Shared, "_shared"),
        (Form::All, "_all"),
        (Form::Into, "_into"),
        (Form::Exchange, "exchange"),
    ];

    /// The form with this number; the plain one if no correct rank wrote it.
    fn from_number(number: u8) -> Form {
        Form::ALL.get(usize::from(number)).map_or(Form::Plain, |entry| entry.0)
    }
}

/// The name of the method that makes such calls.
pub(super) fn name(kind: Kind, form: Form) -> String {
    match Form::ALL[form as usize].1 {
        end @ "_into" => format!("{}{end}", kind.name().trim_end_matches("_vec")),
        end if end.is_empty() || end.starts_with('_') => format!("{}{end}", kind.name()),
        name => name.into(),
    }
}
