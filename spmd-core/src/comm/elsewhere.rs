//! Access to parts of a window that lie in other processes, by requests.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use super::communicator::Comm;
use super::window::{LockOf, RawWindow};
use crate::call::Call;
use crate::error::Result;
use crate::op::Native;
use crate::transport::cluster::Cluster;
use crate::transport::cluster::one_sided::fitting;
use crate::transport::cluster::one_sided::{MOST, Pattern, Request, Served, Serving, Ticket, What};
use crate::transport::cluster::packet::Packet;
use crate::transport::shared::layout::Agent;
use crate::transport::shared::window::{Mode, Node, Parts};

/// What one rank may have sent to parts of one process, in bytes with [`EACH`] for every request,
/// that it does not know to be carried out: it waits there or here in queues.
const UNDER_WAY: usize = 1 << 20;
const EACH: usize = 64;

/// How many requests of one call are under way that are answered.
const ASKED: usize = 16;

/// What a rank needs for parts elsewhere.
pub(super) struct Elsewhere {
    cluster: Arc<Cluster>,
    served: Arc<Served>,
    /// To each process, what it has sent and does not know to be carried out.
    under_way: RefCell<BTreeMap<usize, usize>>,
}

/// Has this process serve its parts of the window that `comm` is of.
pub(super) fn serve(comm: &Comm, parts: Arc<Parts>) -> Arc<Served> {
    let (scope, world) = (&comm.scope, &comm.endpoint.world);
    let cluster = comm.cluster();
    let homes = scope.group.iter().map(|rank| cluster.process_of(rank)).collect();
    let window = (scope.context, scope.group.clone());
    let served = Arc::new(Served::new(window, parts, homes, scope.here.len()));
    cluster.one_sided.open(&served);
    let weak: Weak<Cluster> = Arc::downgrade(cluster);
    world.serve_by(weak);
    served
}

impl Comm {
    fn cluster(&self) -> &Arc<Cluster> {
        self.beyond.cluster.as_ref().expect("its ranks live in several processes")
    }
}

impl Elsewhere {
    pub(super) fn new(comm: &Comm, served: Arc<Served>) -> Elsewhere {
        Elsewhere { cluster: comm.cluster().clone(), served, under_way: RefCell::default() }
    }

    /// The place in queues here of a rank that lives elsewhere.
    pub(super) fn node(&self, rank: usize) -> Option<&Node> {
        self.served.node_elsewhere(rank)
    }

    pub(super) fn serving<'a>(&'a self, comm: &'a Comm) -> Serving<'a> {
        Serving { cluster: &self.cluster, world: &comm.endpoint.world, served: &self.served }
    }

    fn send(&self, me: usize, target: usize, ticket: u64, asked: Asked<'_>) -> Result<()> {
        let Asked { what, pattern, data } = asked;
        let (window, by, target_rank) = (self.served.window, me as u32, target as u32);
        let request = Request { window, by, target: target_rank, ticket, what, pattern, data };
        self.cluster.send(self.served.homes[target], &Packet::Request(request))
    }
}

impl Drop for Elsewhere {
    /// The last rank of this process tells the others that they may forget the window.
    fn drop(&mut self) {
        if !self.served.is_left() {
            return;
        }
        let own = self.cluster.fabric.process();
        for process in self.served.processes().into_iter().filter(|it| *it != own) {
            let rank = |home: usize| self.served.homes.iter().position(|it| *it == home);
            if let (Some(me), Some(target)) = (rank(own), rank(process)) {
                let nothing = Asked { what: What::Close, pattern: Pattern::one(0, 0), data: &[] };
                // One that cannot be told is gone.
                let _ = self.send(me, target, 0, nothing);
            }
        }
        let is_lost = |process| self.cluster.has_lost(process);
        self.cluster.one_sided.close(&self.served, own, is_lost);
    }
}

/// What a request says besides who asks whom.
#[derive(Clone, Copy)]
struct Asked<'a> {
    what: What,
    pattern: Pattern,
    data: &'a [u8],
}

/// An answer that is awaited.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Answer<'a>(Ticket<'a>, usize);

impl RawWindow {
    /// Whether the part of a rank lies in another process, which is asked for all that is done to it.
    #[inline]
    pub fn is_elsewhere(&self, rank: usize) -> bool {
        self.elsewhere.is_some() && self.parts.get(rank).is_some_and(|part| part.start().is_none())
    }

    /// Writes the elements of `data` to a part elsewhere, which lie in it.
    ///
    /// Errors: the ranks have been stopped, if it has to wait until others are written.
    pub fn put_elsewhere(
        &self,
        call: &Call<'_>,
        target: usize,
        pattern: Pattern,
        data: &[u8],
    ) -> Result<()> {
        self.tell(call, target, What::Put, pattern, data)
    }

    /// Changes elements of one word each, which lie in a part elsewhere.
    ///
    /// Errors: as [`RawWindow::put_elsewhere`].
    pub fn change_elsewhere(
        &self,
        call: &Call<'_>,
        target: usize,
        (pattern, how): (Pattern, Native),
        data: &[u8],
    ) -> Result<()> {
        self.tell(call, target, What::Change(how), pattern, data)
    }

    /// The same; gives what was there to `each`, piece by piece, with where a piece starts in bytes.
    ///
    /// Errors: the ranks have been stopped; those of `each`.
    pub fn exchange_elsewhere(
        &self,
        call: &Call<'_>,
        target: usize,
        (pattern, how): (Pattern, Native),
        data: &[u8],
        each: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.ask_for_all(call, target, (What::Change(how), pattern), data, each)
    }

    /// Reads elements of a part elsewhere, as [`RawWindow::exchange_elsewhere`].
    ///
    /// Errors: as there.
    pub fn get_elsewhere(
        &self,
        call: &Call<'_>,
        target: usize,
        pattern: Pattern,
        each: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.ask_for_all(call, target, (What::Get, pattern), &[], each)
    }

    /// Writes `new` where `old` is, elements of one word each, in a part elsewhere; gives what was
    /// there as [`RawWindow::exchange_elsewhere`].
    ///
    /// Errors: as there.
    pub fn swap_elsewhere(
        &self,
        call: &Call<'_>,
        target: usize,
        pattern: Pattern,
        (old, new): (&[u8], &[u8]),
        each: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let both = [old, new].concat();
        self.ask_for_all(call, target, (What::Swap, pattern), &both, each)
    }

    /// Begins to read one element of a part elsewhere.
    ///
    /// Errors: the ranks have been stopped.
    pub fn ask_elsewhere(
        &self,
        call: &Call<'_>,
        target: usize,
        element: usize,
    ) -> Result<Answer<'_>> {
        let pattern = Pattern::one(element, 1).in_words(self.parts.words_each());
        self.ask(call, target, Asked { what: What::Get, pattern, data: &[] })
    }

    /// Waits for an answer.
    ///
    /// Errors: the ranks have been stopped.
    pub fn answered(&self, call: &Call<'_>, answer: Answer<'_>) -> Result<Vec<u8>> {
        self.comm.carried(call, || self.await_answer(call, &answer, Agent::DATA))
    }

    /// Whether this rank may have to wait for something that it has done to parts elsewhere.
    #[inline]
    pub fn has_sent(&self) -> bool {
        self.elsewhere.as_ref().is_some_and(|it| !it.under_way.borrow().is_empty())
    }

    /// Waits until what this rank has done to the part of a rank, or to those of all, is done where
    /// that lies elsewhere.
    ///
    /// Errors: the ranks have been stopped.
    pub fn complete(&self, call: &Call<'_>, target: Option<usize>) -> Result<()> {
        let Some(elsewhere) = &self.elsewhere else { return Ok(()) };
        let homes = &elsewhere.served.homes;
        let under_way: Vec<usize> = elsewhere.under_way.borrow().keys().copied().collect();
        let asked = under_way
            .into_iter()
            .filter(|home| target.is_none_or(|target| homes.get(target) == Some(home)));
        // All are asked before the first is awaited.
        let targets = asked.filter_map(|home| homes.iter().position(|it| *it == home));
        let nothing = Asked { what: What::Flush, pattern: Pattern::one(0, 0), data: &[] };
        let answers = targets.map(|target| self.ask(call, target, nothing));
        let answers = answers.collect::<Result<Vec<_>>>()?;
        for answer in answers {
            let home = homes[answer.1];
            self.answered(call, answer)?;
            elsewhere.under_way.borrow_mut().remove(&home);
        }
        Ok(())
    }

    /// Sends requests that are not answered.
    fn tell(
        &self,
        call: &Call<'_>,
        target: usize,
        what: What,
        pattern: Pattern,
        data: &[u8],
    ) -> Result<()> {
        let Some(elsewhere) = &self.elsewhere else { return Ok(()) };
        let word = self.parts.word().bytes();
        let home = elsewhere.served.homes[target];
        for (pattern, from) in pattern.in_words(self.parts.words_each()).cut(fitting(what, word)) {
            let bytes = pattern.blocks * pattern.block * word;
            let data = &data[from * word..from * word + bytes];
            elsewhere.send(self.comm.me, target, 0, Asked { what, pattern, data })?;
            let sent = {
                let mut all = elsewhere.under_way.borrow_mut();
                let sent = all.entry(home).or_default();
                *sent += bytes + EACH;
                *sent
            };
            if sent + MOST + EACH > UNDER_WAY {
                self.complete(call, Some(target))?;
            }
        }
        Ok(())
    }

    /// Sends requests that are answered, and gives the answers to `each`.
    fn ask_for_all(
        &self,
        call: &Call<'_>,
        target: usize,
        (what, pattern): (What, Pattern),
        data: &[u8],
        mut each: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let word = self.parts.word().bytes();
        let mut awaited = VecDeque::with_capacity(ASKED);
        let mut next = |awaited: &mut VecDeque<(Answer<'_>, usize)>| match awaited.pop_front() {
            Some((answer, from)) => each(from, &self.answered(call, answer)?),
            None => Ok(()),
        };
        for (pattern, from) in pattern.in_words(self.parts.words_each()).cut(fitting(what, word)) {
            if awaited.len() == ASKED {
                next(&mut awaited)?;
            }
            let (from, bytes) = (from * word, pattern.blocks * pattern.block * word);
            let piece = |data: &[u8]| data[from..from + bytes].to_vec();
            let data = match what {
                What::Get => Vec::new(),
                What::Swap => {
                    let (old, new) = data.split_at(data.len() / 2);
                    [piece(old), piece(new)].concat()
                }
                _ => piece(data),
            };
            let answer = self.ask(call, target, Asked { what, pattern, data: &data })?;
            awaited.push_back((answer, from));
        }
        while !awaited.is_empty() {
            next(&mut awaited)?;
        }
        Ok(())
    }

    /// Sends a request that is answered.
    fn ask(&self, call: &Call<'_>, target: usize, asked: Asked<'_>) -> Result<Answer<'_>> {
        self.comm.check_stopped(call)?;
        let elsewhere = self.elsewhere.as_ref().expect("a window with parts elsewhere");
        let words = match asked.what {
            What::Flush | What::Lock(..) => 0,
            _ => asked.pattern.blocks * asked.pattern.block,
        };
        let (bytes, home) = (words * self.parts.word().bytes(), elsewhere.served.homes[target]);
        let ticket = elsewhere.served.answers.expect(self.comm.endpoint.rank, home, bytes);
        elsewhere.send(self.comm.me, target, ticket.number, asked)?;
        Ok(Answer(ticket, target))
    }

    /// The target answers while any of its process's ranks is in a call; for a lock this waits, too,
    /// for whoever has it, whom this process does not know.
    fn await_answer(&self, call: &Call<'_>, answer: &Answer<'_>, by: u32) -> Result<Vec<u8>> {
        let (cluster, world) = (self.comm.cluster(), &self.comm.endpoint.world);
        let waiter = self.comm.waiter(call)?;
        waiter.ended_by(by);
        let on = (by == Agent::DATA).then(|| self.comm.world_rank(answer.1));
        let come = || match answer.0.take() {
            Some(data) => Some(Ok(data)),
            None => match cluster.take_packet(world) {
                Ok(_) => answer.0.take().map(Ok),
                Err(error) => Some(Err(error)),
            },
        };
        waiter.until_by(on, come)?
    }

    /// [`RawWindow::lock`] of one that lies elsewhere.
    pub(super) fn lock_elsewhere(&self, call: &Call<'_>, which: LockOf, mode: Mode) -> Result<()> {
        let (target, kind) = which.place();
        let (what, data) = (What::Lock(kind, mode), &[][..]);
        self.comm.carried(call, || {
            let asked = Asked { what, pattern: Pattern::one(0, 0), data };
            let answer = self.ask(call, target, asked)?;
            let granted = self.await_answer(call, &answer, Agent::LOCK);
            granted.map(drop).inspect_err(|error| {
                if let Ok(waiter) = self.comm.waiter(call) {
                    waiter.give_up(error);
                }
            })
        })
    }

    /// [`RawWindow::unlock`] of one that lies elsewhere: what this rank has sent there before is done
    /// before.
    pub(super) fn unlock_elsewhere(&self, which: LockOf) -> Result<()> {
        let (target, kind) = which.place();
        let Some(elsewhere) = &self.elsewhere else { return Ok(()) };
        let asked = Asked { what: What::Unlock(kind), pattern: Pattern::one(0, 0), data: &[] };
        elsewhere.send(self.comm.me, target, 0, asked)
    }
}
