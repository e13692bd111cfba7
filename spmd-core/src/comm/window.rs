//! What a window is made of: memory that all ranks of a communicator may write, locks in it, and
//! notices, over a communicator of its own. `Window` in `spmd-collectives` is its typed face.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{Ordering::*, compiler_fence, fence};

use super::communicator::Comm;
use super::elsewhere::{Elsewhere, has_neighbors, serve};
use crate::buffer::{Buffer, BufferMut};
use crate::call::Call;
use crate::current;
use crate::element::{DType, Element};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::mode::Mode as Place;
use crate::rank::Status;
use crate::transport::message::SendMode;
use crate::transport::shared::Endpoint;
use crate::transport::shared::heap::Block;
use crate::transport::shared::window::{
    Announced, Head, Key, Part, Parts, Queue, Retired, bytes_of,
};
use crate::wait;

/// The memory, locks and notices of a window.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct RawWindow {
    /// Dropped first: by that the others see that this rank uses their parts no more.
    pub(super) comm: Comm,
    pub(super) parts: Arc<Parts>,
    /// Parts of other processes that are writable here.
    opened: RefCell<Vec<usize>>,
    /// Something was written since the last flush other than by an atomic change.
    written: Cell<bool>,
    /// Where ranks live in several processes.
    pub(super) elsewhere: Option<Elsewhere>,
    /// Dropped last.
    _own: Option<Own>,
}

/// This rank's own part, where it lies in its heap.
struct Own {
    endpoint: Arc<Endpoint>,
    block: Option<Block>,
    context: u64,
    area: usize,
    members: Group,
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut retired = self.endpoint.retired_parts.lock();
        if let Some(block) = self.block.take() {
            let members = self.members.clone();
            retired.push(Retired::new(block, self.context, self.area, members));
        }
        let (rank, world) = (self.endpoint.rank, &self.endpoint.world);
        retired.retain_mut(|part| part.is_used(rank, world));
    }
}

/// What ranks say of their parts.
const LEN: usize = 0;
const OFFSET: usize = 1;
const EXISTS: usize = 2;

impl RawWindow {
    /// Makes the window of `comm`, which its caller has just made, with a part of `len` elements on
    /// this rank. All ranks call it.
    ///
    /// Errors: there is no memory for some rank's part; those of a collective.
    pub fn new(mut comm: Comm, call: &Call<'_>, len: usize, dtype: &DType) -> Result<RawWindow> {
        comm.confine();
        let (endpoint, size) = (comm.endpoint.clone(), dtype.size as usize);
        endpoint.retired_parts.lock().retain_mut(|p| p.is_used(endpoint.rank, &endpoint.world));
        let bytes = bytes_of(len as u64, size);
        let heap = endpoint.windows.as_ref();
        let block = heap.zip(bytes).and_then(|(heap, bytes)| heap.allocate(bytes).ok());
        let apart = heap.is_some();
        // If this fails here, it may have succeeded on others, who write this rank's part then.
        let own = Own {
            block,
            context: comm.scope.context,
            area: comm.area.index,
            members: comm.scope.group.clone(),
            endpoint: endpoint.clone(),
        };
        let block = &own.block;
        let parts = comm.internals().collective(call, |round| {
            round.set_number(LEN, len as u64);
            round.set_number(OFFSET, block.as_ref().map_or(0, Block::offset));
            round.set_number(EXISTS, u64::from(block.is_some()));
            round.arrive(1)?;
            let said = (0..round.size()).map(|rank| {
                let [len, offset, exists] =
                    [LEN, OFFSET, EXISTS].map(|which| round.number_of(rank, which));
                Announced { len, offset, exists: exists != 0 }
            });
            let parts = round.common(|| {
                if !apart {
                    return Arc::new(Parts::here(said, size, false));
                }
                let start = block.as_ref().map_or(std::ptr::null_mut(), Block::pointer);
                Arc::new(Parts::apart(said, size, (comm.me, start)))
            });
            // Who has it by now keeps it until all have.
            round.arrive(2)?;
            Ok(Arc::clone(&parts))
        })?;
        RawWindow::no_memory(call, parts.lacking)?;
        let (opened, written, elsewhere) = Default::default();
        Ok(RawWindow { comm, parts, opened, written, elsewhere, _own: Some(own) })
    }

    /// The same where the ranks of `comm` live in several processes; `lens` are the lengths of all
    /// parts. The ranks must meet before they use it, find whether one of them has no memory, and
    /// [tell](RawWindow::find) each other the [keys](RawWindow::key) of their memory.
    ///
    /// Errors: those of a collective.
    pub fn over_processes(
        mut comm: Comm,
        call: &Call<'_>,
        lens: &[u64],
        dtype: &DType,
    ) -> Result<(RawWindow, Option<usize>)> {
        comm.confine();
        let (here, members) = (comm.scope.here.clone(), comm.scope.group.clone());
        let (parts, elsewhere) = comm.internals().collective(call, |round| {
            let made = round.common(|| {
                let said = lens.iter().enumerate().map(|(rank, len)| {
                    let exists = here.local(members.world(rank)).is_none();
                    Announced { len: *len, offset: 0, exists }
                });
                let shared = has_neighbors(&comm);
                let parts = Arc::new(Parts::here(said, dtype.size as usize, shared));
                (parts.clone(), serve(&comm, parts))
            });
            round.arrive(1)?;
            let (parts, served) = &*made;
            Ok((parts.clone(), Elsewhere::new(&comm, served.clone())))
        })?;
        let (opened, written) = Default::default();
        let (elsewhere, lacking) = (Some(elsewhere), parts.lacking);
        Ok((RawWindow { comm, parts, opened, written, elsewhere, _own: None }, lacking))
    }

    /// An error if there is no memory for the part of a rank.
    pub fn no_memory(call: &Call<'_>, lacking: Option<usize>) -> Result<()> {
        let Some(rank) = lacking else { return Ok(()) };
        Err(Error::unavailable(
            call.to_string(),
            format!("there is no memory for the part of rank {rank}"),
            "make it smaller, or end other windows first".into(),
        ))
    }

    /// The communicator that is the window's own.
    #[inline]
    pub fn comm(&self) -> &Comm {
        &self.comm
    }

    /// How many elements the part of a rank has; `None` if there is no such rank.
    #[inline]
    pub fn len_of(&self, rank: usize) -> Option<usize> {
        self.parts.get(rank).map(|part| part.len)
    }

    /// This rank is about to write to a part by other means than atomic changes of words.
    #[inline]
    pub fn writes(&self) {
        self.written.set(true);
    }

    /// Where the elements of a rank's part are, and how many: memory that stays mapped as long as
    /// this lives, aligned to 128 bytes, and accessed by atomics of the words of its elements alone.
    /// `None` if there is no such rank, or [`RawWindow::open`] has not opened its part.
    #[inline]
    pub fn part(&self, rank: usize) -> Option<(*mut u8, usize)> {
        let part = self.parts.get(rank)?;
        part.elements().map(|start| (start, part.len))
    }

    /// [`RawWindow::part`] of a rank of the window, for the first time. `None` if it can only be
    /// reached by requests.
    ///
    /// Errors: the system refuses to make it writable.
    #[cold]
    pub fn open(&self, rank: usize) -> Result<Option<(*mut u8, usize)>> {
        let part = self.part(rank);
        if part.is_some() {
            return Ok(part);
        }
        match &self.elsewhere {
            Some(elsewhere) => elsewhere.open(rank),
            None => {
                let world = &self.comm.endpoint.world;
                self.parts.open(rank, self.comm.world_rank(rank), world)?;
                self.opened.borrow_mut().push(rank);
            }
        }
        Ok(self.part(rank))
    }

    pub(super) fn head(&self, rank: usize) -> Result<&Head> {
        let head = || self.parts.get(rank).and_then(Part::head);
        if head().is_none() {
            self.open(rank)?;
        }
        // SAFETY: aligned memory that was zeroed, stays mapped as long as the parts, which `self` holds,
        // and is accessed by atomics alone (`Part::head`), of which a head consists.
        head().map(|head| unsafe { &*head }).ok_or_else(|| self.corrupt())
    }

    /// What processes of this host find the memory of this one's parts by.
    pub fn key(&self) -> Key {
        self.parts.key()
    }

    /// Takes note of what each rank has said to be the key of its process.
    pub fn find(&self, keys: impl Fn(usize) -> Key) {
        self.elsewhere.iter().for_each(|elsewhere| elsewhere.find(&keys));
    }

    /// Whether something may have stopped the ranks since it was last looked.
    #[inline]
    pub fn may_be_stopped(&self) -> bool {
        self.comm.endpoint.world.faults_seen() != self.comm.scope.faults_seen.get()
    }

    /// An error if something has stopped the ranks.
    #[cold]
    pub fn check(&self, call: &Call<'_>) -> Result<()> {
        self.comm.waiter(call).map(drop)
    }

    /// Refuses what only the rank that made the window can do, if another one does it: a virtual rank
    /// of the same thread.
    pub(super) fn check_own(&self, call: &Call<'_>) -> Result<()> {
        let own = !self.comm.scope.confined || is_here(&self.comm.endpoint);
        let why = "a window is used by the rank that has made it";
        if own { Ok(()) } else { Err(Error::argument(format!("{call}: {why}"))) }
    }

    /// Orders what this rank has done directly before what it does next. Does, now and then, what other
    /// processes have asked for, and, where ranks share cores, lets others run, so that a loop that
    /// looks again and again ends.
    pub fn flush(&self) {
        // No instruction: on x86 the processor moves nothing but reads before writes, and an atomic
        // change is a full fence (Intel SDM volume 3, section 10.2; AMD64 volume 2, section 7.2).
        match cfg!(target_arch = "x86_64") && !self.written.replace(false) {
            true => {
                fence(AcqRel);
                compiler_fence(SeqCst);
            }
            false => fence(SeqCst),
        }
        if self.elsewhere.as_ref().is_some_and(Elsewhere::is_due) {
            self.comm.endpoint.world.serve();
        }
        let world = &self.comm.endpoint.world;
        if world.mode == Place::Virtual || world.policy.shares_cores() {
            wait::relax();
        }
    }

    /// Sends a notice: it comes after what this rank has written before.
    ///
    /// Errors: as `Comm::send`.
    pub fn notify(&self, call: &Call<'_>, dest: usize, tag: u32) -> Result<()> {
        self.check_own(call)?;
        fence(Release);
        self.comm.carried(call, || {
            let waiter = self.comm.waiter(call)?;
            self.comm.check_rank(call, "target", dest)?;
            let nothing = [0u8; 0];
            let (view, mode) = (nothing.erased(), SendMode::Standard);
            let pending = self.comm.post(&view, &u8::DTYPE, dest, tag, mode, &waiter)?;
            self.comm.complete(pending, &waiter)
        })
    }

    /// Waits for a notice.
    ///
    /// Errors: as `Comm::recv`.
    pub fn wait_notice(
        &self,
        call: &Call<'_>,
        source: Option<usize>,
        tag: Option<u32>,
    ) -> Result<Status> {
        self.check_own(call)?;
        let receive = || self.comm.receive(call, &mut [0u8; 0].erased_mut(), source, tag);
        self.comm.carried(call, receive).inspect(|_| fence(Acquire))
    }

    /// A meeting of all ranks, of which the one that has made the window is this.
    ///
    /// Errors: another one calls it; those of the collective.
    pub fn meet<'a>(&'a self, call: &'a Call<'a>) -> Result<()> {
        self.check_own(call)?;
        if self.elsewhere.is_none() {
            return self.comm.internals().collective(call, |round| round.arrive(1));
        }
        // What ranks of several processes have written directly is ordered by nobody else: the steps are
        // a library's.
        fence(Release);
        // SAFETY: no memory is named.
        unsafe { self.comm.internals().collective_on_cluster(call, (), |leader| leader.meet())? };
        fence(Acquire);
        Ok(())
    }
}

impl Drop for RawWindow {
    fn drop(&mut self) {
        let world = &self.comm.endpoint.world;
        self.opened.take().into_iter().for_each(|rank| self.parts.close(rank, world));
    }
}

impl Comm {
    /// Takes note that nobody but the agent of the rank that runs here will use it, if that is so: it
    /// stays on this thread.
    fn confine(&mut self) {
        if is_here(&self.endpoint) {
            self.scope.confined = true;
            self.endpoint.closes_comm();
        }
    }
}

/// Whether this runs on the rank's own agent.
fn is_here(endpoint: &Arc<Endpoint>) -> bool {
    current::with(|rank| rank.is_some_and(|it| it.is_of(&**endpoint)))
}
