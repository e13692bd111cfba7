//! Carrying out what ranks of other processes ask for.

use std::sync::atomic::{Ordering::Release, fence};

use super::super::joined::Cluster;
use super::super::packet::Packet;
use super::request::{Request, What};
use super::served::Served;
use crate::error::{Error, Result};
use crate::transport::shared::window::words::{self, Word};
use crate::transport::shared::window::{Head, LockKind, Node, Part, Queue, lock_of};
use crate::transport::shared::{FaultScope, World};

/// This process, while it carries something out at a window.
pub(crate) struct Serving<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) world: &'a World,
    pub(crate) served: &'a Served,
}

impl Cluster {
    /// A process asks for something.
    pub(crate) fn carry_out(&self, world: &World, from: usize, request: &Request<'_>) {
        let Some(served) = self.one_sided.get(request.window) else { return };
        if served.homes.get(request.by as usize) == Some(&from) {
            Serving { cluster: self, world, served: &served }.carry_out(from, request);
        }
    }

    /// A process answers.
    pub(crate) fn hear(&self, world: &World, from: usize, window: u64, ticket: u64, data: &[u8]) {
        let served = self.one_sided.get(window);
        if let Some(rank) = served.and_then(|it| it.answers.comes(from, ticket, data)) {
            world.bell(rank).ring();
        }
    }
}

impl Serving<'_> {
    fn carry_out(&self, from: usize, request: &Request<'_>) {
        if request.what == What::Close {
            return self.close(from);
        }
        let (by, target) = (request.by as usize, request.target as usize);
        let Some(part) = self.served.parts.get(target) else { return };
        let Some(head) = self.head(part) else { return };
        match request.what {
            What::Flush => self.answer(by, request.ticket, &[]),
            What::Lock(kind, mode) if self.may_lock(kind, target) => {
                if !self.served.asks(by, (kind, target), request.ticket) {
                    return;
                }
                match lock_of(head, kind).enter(by, mode, self) {
                    Ok(true) => self.grant(by),
                    Ok(false) => {}
                    Err(error) => self.tell(&error),
                }
            }
            What::Unlock(kind) if self.served.leaves(by, (kind, target)) => {
                let left = lock_of(head, kind).leave(by, self);
                left.unwrap_or_else(|error| self.tell(&error));
            }
            What::Lock(..) | What::Unlock(_) => {}
            _ => self.access(part, request),
        }
    }

    /// A process has dropped the window.
    pub(crate) fn close(&self, process: usize) {
        let is_lost = |process| self.cluster.has_lost(process);
        if self.cluster.one_sided.close(self.served, process, is_lost) {
            self.world.serves_less();
        }
    }

    /// Something is wrong with a queue, in which others wait.
    #[cold]
    fn tell(&self, error: &Error) {
        self.world.raise(FaultScope::All, &self.cluster.fault_of(error));
    }

    /// The lock of all parts lies on rank 0's.
    fn may_lock(&self, kind: LockKind, target: usize) -> bool {
        kind != LockKind::Window || target == 0
    }

    /// Reads or writes words of a part that lives here.
    fn access(&self, part: &Part, request: &Request<'_>) {
        let Some(start) = part.elements() else { return };
        let (size, Request { what, pattern, data, .. }) = (self.served.parts.word(), *request);
        let word = size.bytes();
        if !request.fits(self.served.parts.words(part), word) {
            return;
        }
        let block = pattern.block * word;
        let places = pattern.starts();
        let mut places = places.map(|(at, from)| (start.wrapping_add(at * word), from * word));
        let bytes = pattern.blocks * block;
        let mut answer = match what {
            What::Put => Vec::new(),
            // A get writes all of it.
            What::Get => Vec::with_capacity(bytes),
            _ => vec![0; bytes],
        };
        let into = answer.as_mut_ptr();
        // As where a rank of this process writes: who sees this sees what was done before.
        fence(Release);
        // SAFETY: the words of the pattern lie within the part, which stays mapped as long as its
        // window is served, and all accesses to it are by atomics of this size. There are as many
        // data as the pattern, or twice the pattern, has words, and room for as many in `answer`
        // (`Request::fits`), all of which a get has written when it is over.
        unsafe {
            match what {
                What::Put => places.for_each(|(place, from)| {
                    words::write(data.as_ptr().add(from), place, block, size);
                }),
                What::Get => {
                    places.for_each(|(place, from)| {
                        words::read(place, into.add(from), block, size);
                    });
                    answer.set_len(bytes);
                }
                _ => {
                    let change = match word {
                        8 => change::<u64>,
                        4 => change::<u32>,
                        2 => change::<u16>,
                        _ => change::<u8>,
                    };
                    places.try_for_each(|(place, from)| {
                        change(what, (place, block), data, (from, into))
                    });
                }
            }
        }
        if request.ticket != 0 {
            self.answer(request.by as usize, request.ticket, &answer);
        }
    }

    /// The head of a part, if that lives here.
    fn head(&self, part: &Part) -> Option<&Head> {
        // SAFETY: aligned memory that was zeroed, stays mapped as long as the parts, which `self` holds,
        // and is accessed by atomics alone (`Part::head`), of which a head consists.
        part.head().map(|head| unsafe { &*head })
    }

    /// A rank of another process has the lock that it has asked for.
    pub(crate) fn grant(&self, by: usize) {
        let Some(((kind, target), ticket)) = self.served.gets(by) else { return };
        if let Some(head) = self.served.parts.get(target).and_then(|part| self.head(part)) {
            lock_of(head, kind).is_held_by(by);
        }
        self.answer(by, ticket, &[]);
    }

    /// What cannot be told to a process that is gone, nobody waits for.
    fn answer(&self, by: usize, ticket: u64, data: &[u8]) {
        let answer = Packet::Answer { window: self.served.window, ticket, data };
        let _ = self.cluster.send(self.served.homes[by], &answer);
    }
}

impl Queue for Serving<'_> {
    fn node(&self, rank: usize) -> Result<&Node> {
        let part = self.served.parts.get(rank).ok_or_else(|| self.corrupt())?;
        match self.head(part) {
            Some(head) => Ok(&head.node),
            None => self.served.node_elsewhere(rank).ok_or_else(|| self.corrupt()),
        }
    }

    fn ranks(&self) -> usize {
        self.served.homes.len()
    }

    fn wake(&self, rank: usize) {
        match self.served.parts.get(rank).and_then(Part::head) {
            Some(_) => self.world.bell(self.served.members.world(rank)).ring(),
            None => self.grant(rank),
        }
    }

    fn corrupt(&self) -> Error {
        let what = "the queue of a window's lock is not one";
        Error::corrupt(self.served.members.world(0), what)
    }
}

/// Changes the words of a block of so many bytes by those of `data` from a place on; what was there
/// goes to the same place of `before`. `None` if that is not to change words.
///
/// # Safety
/// The block is one of words `W` in a part, as [`Word`] has it; the data reach as far as the block, or
/// twice as far as the pattern does if it is a swap, and `before` is writable as far.
unsafe fn change<W: Word>(
    what: What,
    (block, bytes): (*mut u8, usize),
    data: &[u8],
    (from, before): (usize, *mut u8),
) -> Option<()> {
    for at in (0..bytes).step_by(size_of::<W>()) {
        // SAFETY: this function's contract; the second half of a swap's data follows the first.
        unsafe {
            let given = |from: usize| data.as_ptr().add(from).cast::<W>().read_unaligned();
            let (place, from) = (block.add(at), from + at);
            let was = match what {
                What::Change(native) => words::change(place, native, given(from)),
                What::Swap => {
                    let (old, new) = (given(from), given(data.len() / 2 + from));
                    let (Ok(was) | Err(was)) = W::compare_and_swap(place, old, new);
                    was
                }
                _ => return None,
            };
            before.add(from).cast::<W>().write_unaligned(was);
        }
    }
    Some(())
}
