//! What joins the processes of a world that share no memory: a library such as MPI (`spmd-mpi`).
//!
//! A process has one [`Fabric`] for its life. Over it go packets, from which messages between ranks
//! are made, payloads, which go straight from buffer to buffer, and the collectives of its library
//! among processes. Ranks are not its business: those of one process use it together.

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;

use crate::element::DType;
use crate::error::Result;
use crate::fault;
use crate::op::ErasedOp;
use crate::wait;

/// Most bytes of a packet.
pub const MAX_PACKET: usize = 64 << 10;

/// A process's way to the others of its world. Any thread may call these functions, at any time;
/// none of them waits for another process, but where it says so.
pub trait Fabric: Send + Sync {
    /// This process, from 0.
    fn process(&self) -> usize;

    /// How many there are.
    fn processes(&self) -> usize;

    /// The first process on the host of each process.
    fn hosts(&self) -> &[u32];

    /// What it is, for people: library, version, file.
    fn name(&self) -> &str;

    /// All processes.
    fn world(&self) -> Arc<dyn ProcessGroup>;

    /// Sends a packet of at most [`MAX_PACKET`] bytes, which are copied: two pieces as one. Packets to
    /// one process arrive in the order in which they were sent.
    fn send(&self, to: usize, packet: [&[u8]; 2]) -> Result<()>;

    /// Lets go all packets that wait for earlier ones, before a step in which this process looks
    /// after none.
    fn flush(&self) -> Result<()>;

    /// Calls `take` with the next packet and the process that sent it, if one has come, and says
    /// whether; otherwise sees to what is under way.
    fn receive(&self, take: &mut dyn FnMut(usize, &[u8])) -> Result<bool>;

    /// Begins to send a payload, which is complete once its receiver has begun to take it.
    ///
    /// # Safety
    /// The data stay alive and unwritten until the result is complete or has been dropped.
    unsafe fn issend(
        &self,
        to: usize,
        key: u32,
        data: *const u8,
        bytes: usize,
    ) -> Result<Box<dyn FabricRequest>>;

    /// Begins to receive the payload of exactly `bytes` that is given with this key.
    ///
    /// # Safety
    /// The memory stays alive, and nobody reads or writes it, until the result is complete or has
    /// been dropped.
    unsafe fn irecv(
        &self,
        from: usize,
        key: u32,
        into: *mut u8,
        bytes: usize,
    ) -> Result<Box<dyn FabricRequest>>;

    /// Whether the others may go on when a process fails: then what concerns processes that live
    /// goes on, what concerns failed ones comes to nothing without an error, but for
    /// [`ProcessGroup`], of which an error says so. What [`Fabric::issend`] has begun may then be
    /// dropped at any time.
    fn survives(&self) -> bool;

    /// Ends all processes of the world, this one with this status.
    fn abort(&self, status: i32) -> !;

    /// Ends this process alone.
    fn end(&self, end: End) -> ! {
        end.carry_out()
    }

    /// What is known of this process, if it is not one of the system's: a fabric may have several
    /// in one of those.
    fn simulated(&self) -> Option<Simulated> {
        None
    }

    /// Whether [`ProcessGroup::run`] takes memory of a device, by its address, as it takes that of the host.
    /// What is begun ([`ProcessGroup::start`]) does not, in any library.
    fn takes_devices(&self) -> bool {
        false
    }

    /// Whether this process is there: one that is simulated may go on as a thread when it has
    /// ended.
    fn lives(&self) -> bool {
        true
    }

    /// The failure detector has this connection to that of another process, which ends with either
    /// of them.
    fn connected(&self, _to: usize, _connection: &TcpStream) {}

    /// Says something to whoever has started the world, in one piece.
    fn print(&self, text: fmt::Arguments<'_>) {
        fault::print(text);
    }
}

/// Lets others run, in a loop of a [`Fabric`] that polls something: other threads, and the ranks of
/// this worker if a virtual rank is here.
pub fn relax() {
    wait::relax();
}

/// How a process ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With status 1, without a word to the library that joins it to others, which another thread
    /// may be in: its launcher ends what is left, unless processes go on when others fail.
    Exit,
    /// As if it were killed, so that a launcher takes it for a failure of this process alone: it
    /// takes an exit with another status than 0 for the end of the job.
    Kill,
}

impl End {
    /// Ends this process of the system's.
    fn carry_out(self) -> ! {
        #[cfg(unix)]
        // SAFETY: both end the process and do nothing else.
        unsafe {
            match self {
                End::Exit => libc::_exit(1),
                End::Kill => libc::kill(libc::getpid(), libc::SIGKILL),
            };
        }
        std::process::abort()
    }
}

/// A process that is simulated in another one, and what the library cannot count there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulated {
    /// Whether it may have threads that run no rank, and hold communicators.
    pub other_threads: bool,
}

/// Something under way. To drop it before it is complete ends the process, unless it could be
/// taken back: what is under way uses memory of the caller's.
pub trait FabricRequest {
    /// Whether it is complete now.
    fn test(&mut self) -> Result<bool>;
}

/// A set of processes that is being made.
pub trait FabricDuplicate: Send {
    /// The set, once all of its processes have begun to make it; no more calls then.
    fn test(&mut self) -> Result<Option<Arc<dyn ProcessGroup>>>;
}

/// Some processes of a world, which make collective steps together.
pub trait ProcessGroup: Send + Sync {
    /// This process among them, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// These of the processes, in this order; those make it together and wait for each other.
    /// `key` is the same on all of them, and on no two sets that are made at a time.
    fn subset(&self, members: &[usize], key: u32) -> Result<Arc<dyn ProcessGroup>>;

    /// Begins to make the set of the same processes once more, for steps that go on beside those of
    /// this one, which stays until then. All of them call it, in the same order among their steps.
    fn duplicate(&self) -> Result<Box<dyn FabricDuplicate>>;

    /// Whether [`NativeCollective`]s can fold elements of this type with this operation.
    fn folds(&self, dtype: &DType, op: &ErasedOp<'_>) -> bool;

    /// Makes a step together with the others, and waits for them.
    ///
    /// # Safety
    /// All memory that the step names is valid for what it says of it, and nobody else writes
    /// what is readable, or touches what is writable, until the step is complete.
    unsafe fn run(&self, step: NativeCollective<'_>) -> Result<()>;

    /// Begins a step.
    ///
    /// # Safety
    /// As [`ProcessGroup::run`], until the result is complete.
    unsafe fn start<'a>(
        &'a self,
        step: NativeCollective<'a>,
    ) -> Result<Box<dyn FabricRequest + 'a>>;

    /// [`ProcessGroup::start`] in a set that makes few different steps, again and again, one after
    /// the other: what does not change from one to the next can be settled once.
    ///
    /// # Safety
    /// As [`ProcessGroup::start`].
    unsafe fn start_again<'a>(
        &'a self,
        step: NativeCollective<'a>,
    ) -> Result<Box<dyn FabricRequest + 'a>> {
        // SAFETY: this function's contract.
        unsafe { self.start(step) }
    }

    /// The library's own handle.
    fn handle(&self) -> usize;

    /// Ends the steps that are under way with an error, on all of them, and lets no more begin. For
    /// this and what follows, [`Fabric::survives`].
    fn revoke(&self);

    /// The set of these processes, in this order, if there are any: all make it together, those
    /// that are in none with no members. [`ProcessGroup::revoke`] ends it.
    fn part(&self, members: &[usize]) -> Result<Option<Arc<dyn ProcessGroup>>>;

    /// Those that live, in the same order, and their numbers here. They call it together, and wait
    /// for each other; all of them get the same. Other threads may use the fabric meanwhile.
    fn shrink(&self) -> Result<(Arc<dyn ProcessGroup>, Vec<usize>)>;

    /// Whether all that live say `yes`. They call it together, as [`ProcessGroup::shrink`].
    fn agree(&self, yes: bool) -> Result<bool>;
}

/// Blocks of memory, one for each process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessBlocks<'a> {
    /// Where all of them are.
    pub memory: *mut u8,
    /// Which of it is whose.
    pub layout: BlockLayout<'a>,
}

/// Where blocks lie, in bytes. All processes that make a step together know that they are equal, or
/// none does: libraries have a faster function for that.
#[derive(Clone, Copy, Debug)]
pub enum BlockLayout<'a> {
    /// All have this length, and lie one after the other in the order of the processes.
    Equal(usize),
    /// The length of each, and where it starts.
    Listed {
        /// Bytes.
        bytes: &'a [usize],
        /// From the start of the memory.
        displacements: &'a [usize],
    },
}

impl ProcessBlocks<'_> {
    /// Those of another process, which are equal or not.
    pub fn elsewhere(equal: bool) -> Self {
        let listed = BlockLayout::Listed { bytes: &[], displacements: &[] };
        let layout = if equal { BlockLayout::Equal(0) } else { listed };
        ProcessBlocks { memory: std::ptr::null_mut(), layout }
    }
}

impl BlockLayout<'_> {
    /// Where the block of a process starts.
    #[inline]
    pub fn start(&self, process: usize) -> usize {
        match self {
            BlockLayout::Equal(bytes) => process * bytes,
            BlockLayout::Listed { displacements, .. } => displacements[process],
        }
    }
}

/// Elements to fold.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Fold<'a> {
    /// What is folded, readable: `count` elements, or one for each of `counts`.
    pub send: *const u8,
    /// Where the result goes, writable. It may be `send`; of a reduce, on the root.
    pub recv: *mut u8,
    /// Elements.
    pub count: usize,
    /// Their type, for which [`ProcessGroup::folds`] holds.
    pub dtype: &'a DType,
    /// The operation, for which it holds.
    pub op: &'a ErasedOp<'a>,
}

/// A collective step among processes. Memory is of bytes, where no element type is named.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub enum NativeCollective<'a> {
    /// All wait for all.
    Barrier,
    /// The root's bytes to all.
    Broadcast {
        /// Whose.
        root: usize,
        /// Readable on the root, writable elsewhere.
        memory: *mut u8,
        /// The same on all.
        bytes: usize,
    },
    /// Everybody's bytes to the root. The others know no more of `recv` than whether its blocks are
    /// equal.
    Gather {
        /// To whom.
        root: usize,
        /// Readable.
        send: (*const u8, usize),
        /// Writable.
        recv: ProcessBlocks<'a>,
    },
    /// Everybody's bytes to all.
    Allgather {
        /// Readable. It may be this process's block of `recv`.
        send: (*const u8, usize),
        /// Writable.
        recv: ProcessBlocks<'a>,
    },
    /// A block for each from the root. The others know no more of `send` than whether its blocks
    /// are equal.
    Scatter {
        /// Whose.
        root: usize,
        /// Readable.
        send: ProcessBlocks<'a>,
        /// Writable.
        recv: (*mut u8, usize),
    },
    /// A block from each for each.
    Alltoall {
        /// Readable.
        send: ProcessBlocks<'a>,
        /// Writable.
        recv: ProcessBlocks<'a>,
    },
    /// The fold of everybody's elements to the root, which alone has `recv`.
    Reduce {
        /// To whom.
        root: usize,
        /// What.
        fold: Fold<'a>,
    },
    /// The fold of everybody's elements to all.
    Allreduce(Fold<'a>),
    /// Of the fold, so many elements to each; `count` is their sum.
    ReduceScatter {
        /// What.
        fold: Fold<'a>,
        /// Elements for each.
        counts: &'a [usize],
    },
    /// The fold of what the processes up to this one have.
    Scan(Fold<'a>),
    /// The same without this one; the first gets nothing.
    Exscan(Fold<'a>),
}
