//! Communicators: a group of ranks and a number, and point-to-point messages within it.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::buffer::{Buffer, BufferMut, View};
use crate::call::{Call, Kind};
use crate::element::{DType, Element};
use crate::error::{Error, Result};
use crate::group::{Group, Scope};
use crate::rank::{Source, Status, TagOrAny};
use crate::transport::shared::agents::{Noted, Waiter};
use crate::transport::shared::board::{Board, FLAT, Round};
use crate::transport::shared::contexts::Turn;
use crate::transport::shared::inbox::{Arrived, Envelope, Wanted};
use crate::transport::shared::post::{Manner, Pending};
use crate::transport::shared::{Endpoint, Mode};

/// A communicator: ranks that call collectives together and exchange messages that no other
/// communicator sees.
///
/// It can be moved to another thread, not shared: calls start from one thread at a time, and
/// collectives in the same order on all its ranks. It frees itself when dropped.
pub struct Comm {
    endpoint: Arc<Endpoint>,
    scope: Scope,
    me: usize,
    board: Board,
    notes: [Cell<(usize, u32, u32, Noted)>; 16],
    /// The block's own communicator, not one made by the program.
    primary: bool,
}

/// Live communicators of this process besides the blocks' own.
static EXTRA_COMMS: AtomicUsize = AtomicUsize::new(0);

/// How many communicators besides the blocks' own are alive in this process.
pub(crate) fn extra_comms() -> usize {
    EXTRA_COMMS.load(Relaxed)
}

impl Comm {
    pub(crate) fn world(endpoint: Arc<Endpoint>, block: u32) -> Comm {
        let group = Group::World(endpoint.world.size());
        let scope = Scope { context: u64::from(block), block, group };
        let (me, board) = (endpoint.rank, Board::new((block % 2) as usize));
        Comm { endpoint, scope, me, board, notes: Default::default(), primary: true }
    }

    /// Whether this is a communicator of this end.
    pub(crate) fn is_of(&self, endpoint: &Endpoint) -> bool {
        std::ptr::eq(&raw const *self.endpoint, endpoint)
    }

    /// This rank in this communicator, from 0.
    #[inline]
    pub fn rank(&self) -> usize {
        self.me
    }

    /// How many ranks this communicator has.
    #[inline]
    pub fn size(&self) -> usize {
        self.scope.group.len()
    }

    /// The rank in the world of a rank of this communicator.
    pub fn world_rank(&self, rank: usize) -> usize {
        self.scope.group.world(rank)
    }

    /// Numbers of a call's texts; a call met again costs one comparison.
    #[inline]
    fn note(&self, call: &Call<'_>) -> Noted {
        let site = std::ptr::from_ref(call.site) as usize;
        let dtype = call.dtype.map_or(0, |dtype| dtype.id);
        let op = call.op.map_or(0, |op| op.id());
        let place = &self.notes[(site >> 3) % self.notes.len()];
        let known = place.get();
        if (known.0, known.1, known.2) == (site, dtype, op) {
            return known.3;
        }
        let noted = Noted {
            dtype: call.dtype.map_or(0, |dtype| self.endpoint.text_of(&dtype.to_string())),
            op: call.op.map_or(0, |op| self.endpoint.text(op.name())),
            file: self.endpoint.text(call.site.file()),
        };
        place.set((site, dtype, op, noted));
        noted
    }

    fn refuse_reentry(&self, call: &Call<'_>) -> Result<()> {
        if crate::wait::is_in_operation() {
            return Err(Error::Reentrant { call: call.to_string() });
        }
        Ok(())
    }

    /// Runs a collective on the shared arena: what algorithms of `spmd-collectives` are made of.
    ///
    /// All ranks of the communicator call it, in the same order, with calls of equal
    /// fingerprints. Errors: what `body` gives, or the fault that stops the communicator.
    #[inline]
    pub fn collective<'a, R>(
        &'a self,
        call: &'a Call<'a>,
        body: impl FnOnce(&Round<'a>) -> Result<R>,
    ) -> Result<R> {
        self.refuse_reentry(call)?;
        let noted = self.note(call);
        Round::run(&self.endpoint, &self.scope, &self.board, self.me, call, noted, body)
    }

    /// The algorithm that is forced for this kind of call, if one is.
    #[inline]
    pub fn forced(&self, kind: Kind) -> Option<&str> {
        let forced = &self.endpoint.world.tuning.forced;
        if forced.is_empty() {
            return None;
        }
        forced.iter().find(|(name, _)| name == kind.name()).map(|(_, algorithm)| algorithm.as_str())
    }

    /// Up to how many ranks a small collective is best done flat, everybody reading everybody:
    /// ranks that share a core only add up the work.
    pub fn flat_limit(&self) -> usize {
        if self.endpoint.world.mode == Mode::Virtual { 4 } else { FLAT }
    }

    /// Bytes of a segment, where large data go through staging areas.
    pub fn segment(&self) -> usize {
        self.endpoint.world.tuning.segment
    }

    fn check_rank(&self, call: &Call<'_>, what: &'static str, given: usize) -> Result<()> {
        let size = self.size();
        if given < size {
            return Ok(());
        }
        Err(Error::RankOutOfRange { call: call.to_string(), what, given, size })
    }

    /// Refuses a root that is not a rank of this communicator.
    pub fn check_root(&self, call: &Call<'_>) -> Result<()> {
        call.root.map_or(Ok(()), |root| self.check_rank(call, "root", root))
    }
}

/// Messages between two ranks (MPI 5.0 chapter 3). Messages from one rank to another with
/// matching tags are received in the order in which they were sent.
impl Comm {
    /// Sends `buf` to `dest`. A small message is gone when this returns; a large one has been
    /// received, or is being received, by then: two ranks that send each other large messages
    /// before they receive wait for each other (use [`Comm::sendrecv`]).
    ///
    /// Errors: `dest` out of range; the receiver has failed or left.
    #[track_caller]
    pub fn send<B: Buffer + ?Sized>(&self, buf: &B, dest: usize, tag: u32) -> Result<()> {
        self.send_call(Kind::Send, Manner::Standard, buf.view(), dest, tag, Location::caller())
    }

    /// Sends `buf` to `dest` and returns when the receiver has taken it, however small it is.
    ///
    /// Errors: as [`Comm::send`].
    #[track_caller]
    pub fn ssend<B: Buffer + ?Sized>(&self, buf: &B, dest: usize, tag: u32) -> Result<()> {
        self.send_call(Kind::Ssend, Manner::Synchronous, buf.view(), dest, tag, Location::caller())
    }

    fn send_call(
        &self,
        kind: Kind,
        manner: Manner,
        view: View<'_>,
        dest: usize,
        tag: u32,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let call = message_call(kind, view.dtype(), view.len(), Some(dest), Some(tag), site);
        let waiter = self.waiter(&call)?;
        self.check_rank(&call, "destination", dest)?;
        let pending = self.post(&view, dest, tag, manner, &waiter)?;
        self.complete(pending, &waiter)
    }

    fn waiter<'a>(&'a self, call: &'a Call<'a>) -> Result<Waiter<'a>> {
        self.refuse_reentry(call)?;
        let waiter = Waiter::new(&self.endpoint, &self.scope, call, self.note(call));
        match waiter.stopped() {
            Some(error) => Err(error),
            None => Ok(waiter),
        }
    }

    fn post<'a>(
        &'a self,
        view: &View<'_>,
        dest: usize,
        tag: u32,
        manner: Manner,
        waiter: &Waiter<'_>,
    ) -> Result<Pending<'a>> {
        let dtype = view.dtype();
        let envelope = Envelope {
            context: self.scope.context,
            source: self.endpoint.rank as u32,
            tag,
            count: view.len() as u64,
            bytes: view.bytes(),
            dtype: dtype.id,
            dtype_text: waiter.noted.dtype,
            file: waiter.noted.file,
            line: waiter.call.site.line(),
        };
        let to = self.scope.group.world(dest);
        // SAFETY: callers complete what this gives before they return, or drop it, which takes
        // the buffer back; they hold the buffer's borrow all that time.
        unsafe { self.endpoint.post(to, envelope, view, manner, waiter) }
    }

    /// An error here gives the buffer back before it is returned: dropping `pending` does.
    fn complete(&self, pending: Pending<'_>, waiter: &Waiter<'_>) -> Result<()> {
        let result = pending.complete(waiter);
        if let Err(Error::Timeout { .. }) = &result {
            waiter.give_up(result.as_ref().unwrap_err());
        }
        result
    }

    /// Receives a message into `buf`, which may be longer than it: the first [`Status::len`]
    /// elements are overwritten. `source` is a rank or [`crate::ANY`], `tag` a number or
    /// [`crate::ANY`].
    ///
    /// Errors: `source` out of range; the message is longer than `buf` or of another element
    /// type (it is consumed, `buf` stays as it was); a rank that it could come from has failed,
    /// or all have left.
    #[track_caller]
    pub fn recv<B: BufferMut + ?Sized>(
        &self,
        buf: &mut B,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Status> {
        let (source, tag) = (source.source(), tag.tag());
        let mut view = buf.view_mut();
        let (dtype, len) = (view.dtype(), view.len());
        let call = message_call(Kind::Recv, dtype, len, source, tag, Location::caller());
        let waiter = self.waiter(&call)?;
        let arrived = self.await_message(&call, source, tag, &waiter)?;
        let status = self.status(&arrived.envelope);
        self.check_message(&arrived, dtype, Some(len), &call, &waiter).inspect_err(|_| {
            self.endpoint.refuse(&arrived);
        })?;
        match view.contiguous_mut().filter(|_| !self.endpoint.must_check(dtype)) {
            // SAFETY: the buffer has room for the message, which is not longer, and whose bytes
            // are values of its element type: the types are the same, and all bytes are values.
            Some(ptr) => unsafe { self.endpoint.fetch(arrived, ptr, &waiter)? },
            None => {
                let bytes = self.fetch_bytes(arrived, dtype, &call, &waiter)?;
                // SAFETY: `bytes` holds `status.len` values of the buffer's element type.
                unsafe { view.unpack_range(0, status.len, bytes.as_ptr()) };
            }
        }
        Ok(status)
    }

    /// Receives a message of any length.
    ///
    /// Errors: as [`Comm::recv`], but for the length.
    #[track_caller]
    pub fn recv_vec<T: Element>(
        &self,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<(Vec<T>, Status)> {
        let (source, tag) = (source.source(), tag.tag());
        let dtype = T::DTYPE;
        let call = message_call(Kind::Recv, dtype, Call::UNEQUAL, source, tag, Location::caller());
        let waiter = self.waiter(&call)?;
        let arrived = self.await_message(&call, source, tag, &waiter)?;
        let status = self.status(&arrived.envelope);
        self.check_message(&arrived, dtype, None, &call, &waiter).inspect_err(|_| {
            self.endpoint.refuse(&arrived);
        })?;
        let mut values = self.room_for::<T>(&arrived, status.len, &call)?;
        if self.endpoint.must_check(dtype) {
            let bytes = self.fetch_bytes(arrived, dtype, &call, &waiter)?;
            // SAFETY: the vector has room for the message, whose bytes were checked to be values.
            unsafe {
                let into = values.as_mut_ptr().cast();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len());
                values.set_len(status.len);
            }
        } else {
            // SAFETY: the vector has room for the message, all bytes of which are values.
            unsafe {
                self.endpoint.fetch(arrived, values.as_mut_ptr().cast(), &waiter)?;
                values.set_len(status.len);
            }
        }
        Ok((values, status))
    }

    /// Sends `send` to `dest` and receives into `recv` from `source`, at once: a ring of ranks in
    /// which each sends to the next does not block, whatever the sizes.
    ///
    /// Errors: as [`Comm::send`] and [`Comm::recv`].
    #[track_caller]
    pub fn sendrecv<S: Buffer + ?Sized, R: BufferMut + ?Sized>(
        &self,
        send: &S,
        dest: usize,
        send_tag: u32,
        recv: &mut R,
        source: impl Source,
        recv_tag: impl TagOrAny,
    ) -> Result<Status> {
        let view = send.view();
        let site = Location::caller();
        let call =
            message_call(Kind::Send, view.dtype(), view.len(), Some(dest), Some(send_tag), site);
        let waiter = self.waiter(&call)?;
        self.check_rank(&call, "destination", dest)?;
        let pending = self.post(&view, dest, send_tag, Manner::Detached, &waiter)?;
        let received = self.recv(recv, source, recv_tag);
        let status = received?;
        self.complete(pending, &waiter)?;
        Ok(status)
    }

    /// Waits for a message that fits and tells what it is, without receiving it.
    ///
    /// Errors: as [`Comm::recv`], but for length and type.
    #[track_caller]
    pub fn probe(&self, source: impl Source, tag: impl TagOrAny) -> Result<Status> {
        let (source, tag) = (source.source(), tag.tag());
        let mut call = Call::new(Kind::Probe, Location::caller());
        (call.root, call.tag) = (source, tag);
        let waiter = self.waiter(&call)?;
        let wanted = self.wanted(&call, source, tag)?;
        let on = wanted.source;
        let envelope = waiter.until_by(on, || self.endpoint.peek(&wanted).transpose())??;
        Ok(self.status(&envelope))
    }

    /// Tells what the next message that fits is, if one has come; does not wait.
    ///
    /// Errors: as [`Comm::probe`].
    #[track_caller]
    pub fn iprobe(&self, source: impl Source, tag: impl TagOrAny) -> Result<Option<Status>> {
        let (source, tag) = (source.source(), tag.tag());
        let mut call = Call::new(Kind::Probe, Location::caller());
        (call.root, call.tag) = (source, tag);
        self.waiter(&call)?;
        let wanted = self.wanted(&call, source, tag)?;
        let found = self.endpoint.peek(&wanted)?;
        if found.is_none() {
            crate::wait::relax();
        }
        Ok(found.map(|envelope| self.status(&envelope)))
    }

    fn wanted(&self, call: &Call<'_>, source: Option<usize>, tag: Option<u32>) -> Result<Wanted> {
        if let Some(source) = source {
            self.check_rank(call, "source", source)?;
        }
        let source = source.map(|source| self.scope.group.world(source));
        Ok(Wanted { context: self.scope.context, source, tag })
    }

    fn await_message(
        &self,
        call: &Call<'_>,
        source: Option<usize>,
        tag: Option<u32>,
        waiter: &Waiter<'_>,
    ) -> Result<Arrived> {
        let wanted = self.wanted(call, source, tag)?;
        waiter.until_by(wanted.source, || self.endpoint.take(&wanted).transpose())?
    }

    fn status(&self, envelope: &Envelope) -> Status {
        let source = self.scope.group.local(envelope.source as usize).unwrap_or(usize::MAX);
        Status { source, tag: envelope.tag, len: envelope.count as usize }
    }

    /// Whether the message can go into a buffer of this type and length.
    fn check_message(
        &self,
        arrived: &Arrived,
        dtype: DType,
        capacity: Option<usize>,
        call: &Call<'_>,
        waiter: &Waiter<'_>,
    ) -> Result<()> {
        let envelope = &arrived.envelope;
        let world = envelope.source as usize;
        let (from, tag, len) =
            (self.status(envelope).source, envelope.tag, envelope.count as usize);
        let table = self.endpoint.world.memory.text(world);
        let sent_at = || format!("{}:{}", table.get(envelope.file), envelope.line);
        if envelope.dtype != dtype.id {
            return Err(Error::ElementType {
                call: call.to_string(),
                from,
                tag,
                sent: table.get(envelope.dtype_text),
                expected: dtype.to_string(),
                sent_at: sent_at(),
            });
        }
        if len.checked_mul(dtype.size as usize) != Some(envelope.bytes) {
            let error =
                Error::Corrupt { rank: world, what: "a message's length is not its data's" };
            return Err(waiter.stopped().unwrap_or(error));
        }
        match capacity {
            Some(capacity) if len > capacity => Err(Error::Truncated {
                call: call.to_string(),
                from,
                tag,
                len,
                capacity,
                sent_at: sent_at(),
            }),
            _ => Ok(()),
        }
    }

    /// A vector with room for a message of `count` elements. How many may be what another process
    /// says, so that too many are an error; the message is consumed then.
    fn room_for<T>(&self, message: &Arrived, count: usize, call: &Call<'_>) -> Result<Vec<T>> {
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|error| {
            self.endpoint.refuse(message);
            Error::Unavailable {
                what: format!("memory for a message of {count} elements"),
                reason: format!("{call}: {error}"),
                remedy: "send less at once".into(),
            }
        })?;
        Ok(values)
    }

    /// The data of a message, checked to be values of its type.
    fn fetch_bytes(
        &self,
        arrived: Arrived,
        dtype: DType,
        call: &Call<'_>,
        waiter: &Waiter<'_>,
    ) -> Result<Vec<u8>> {
        let Envelope { source, count, bytes: len, .. } = arrived.envelope;
        let mut bytes = self.room_for::<u8>(&arrived, len, call)?;
        // SAFETY: the vector has room for the message, all of which `fetch` writes.
        unsafe {
            self.endpoint.fetch(arrived, bytes.as_mut_ptr(), waiter)?;
            bytes.set_len(len);
        }
        // SAFETY: `bytes` holds `count` elements' worth of bytes, as `check_message` has seen.
        if unsafe { !dtype.all_valid(bytes.as_ptr(), count as usize) } {
            let what = "a message holds bytes that are no values of its type";
            return Err(Error::Corrupt { rank: source as usize, what });
        }
        Ok(bytes)
    }
}

fn message_call(
    kind: Kind,
    dtype: DType,
    count: usize,
    peer: Option<usize>,
    tag: Option<u32>,
    site: &'static Location<'static>,
) -> Call<'static> {
    let mut call = Call::new(kind, site).data(dtype, count);
    (call.root, call.tag) = (peer, tag);
    call
}

/// What making new communicators needs, for `split` and `dup` in `spmd-collectives`.
impl Comm {
    /// Takes a place among the agents of this rank that make communicators now. All ranks of this
    /// one agree on what they offer, and try again while one of them has no [`Turn::offer`].
    pub fn turn(&self) -> Turn<'_> {
        Turn::new(&self.endpoint, self.scope.context)
    }

    /// Makes the communicator of `members` (ranks of this one, in their new order), of which
    /// this rank is number `me`. `board` and `context` are what all members agreed on; `next`
    /// the least number for later ones. Members must meet once more before they use it.
    pub fn child(
        &self,
        members: &[usize],
        me: usize,
        board: usize,
        context: u64,
        next: u64,
    ) -> Comm {
        self.endpoint.take_board(board);
        self.endpoint.skip_contexts(next);
        let identity = members.len() == self.size() && members.iter().copied().eq(0..self.size());
        let group = if identity {
            self.scope.group.clone()
        } else {
            Group::Some(members.iter().map(|rank| self.scope.group.world(*rank) as u32).collect())
        };
        let scope = Scope { context, block: self.scope.block, group };
        self.endpoint.extra_comms.fetch_add(1, Relaxed);
        EXTRA_COMMS.fetch_add(1, Relaxed);
        Comm {
            endpoint: self.endpoint.clone(),
            scope,
            me,
            board: Board::new(board),
            notes: Default::default(),
            primary: false,
        }
    }

    /// Takes note of the least number for later communicators, on a rank that gets none now.
    pub fn skip_contexts(&self, next: u64) {
        self.endpoint.skip_contexts(next);
    }

    /// Which host the ranks of the world are on, as a color for `split`: one host, so far.
    pub fn host_color(&self) -> u32 {
        0
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if !self.primary {
            self.endpoint.extra_comms.fetch_sub(1, Relaxed);
            EXTRA_COMMS.fetch_sub(1, Relaxed);
            self.endpoint.retire_board(&self.board, &self.scope);
        }
    }
}
