//! Access to parts of a window that lie in other processes and are not mapped here, by requests.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering::Acquire, fence};

use super::elsewhere::Asked;
use super::window::RawWindow;
use crate::call::Call;
use crate::error::Result;
use crate::op::Native;
use crate::transport::cluster::one_sided::{MOST, Pattern, Ticket, What, fitting};
use crate::transport::shared::layout::Agent;

/// What one rank may have sent to parts of one process, in bytes with [`EACH`] for every request,
/// that it does not know to be carried out: it waits there or here in queues.
const UNDER_WAY: usize = 1 << 20;
const EACH: usize = 64;

/// How many requests of one call are under way that are answered.
const ASKED: usize = 16;

/// What takes the pieces of an answer: where a piece starts, in bytes, and the piece.
pub type Each<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<()>;

/// Where the answers of a call come.
enum Comes<'a> {
    To(Each<'a>),
    /// One after the other from here on.
    At(*mut u8),
}

/// An answer that is awaited.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Answer<'a>(Ticket<'a>, usize);

impl RawWindow {
    /// Whether a rank lives in a process without a common arena, which is asked for what is done to
    /// the locks of its part, and to the elements if these are not [reached](RawWindow::part).
    #[inline]
    pub(super) fn is_elsewhere(&self, rank: usize) -> bool {
        self.elsewhere.is_some() && self.parts.get(rank).is_some_and(|part| part.head().is_none())
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

    /// The same; gives what was there to `each`.
    ///
    /// Errors: the ranks have been stopped; those of `each`.
    pub fn exchange_elsewhere(
        &self,
        call: &Call<'_>,
        target: usize,
        (pattern, how): (Pattern, Native),
        data: &[u8],
        each: Each<'_>,
    ) -> Result<()> {
        self.ask_for_all(call, target, (What::Change(how), pattern), data, Comes::To(each))
    }

    /// Reads elements of a part elsewhere, as [`RawWindow::exchange_elsewhere`].
    ///
    /// Errors: as there.
    pub fn get_elsewhere(
        &self,
        call: &Call<'_>,
        target: usize,
        pattern: Pattern,
        each: Each<'_>,
    ) -> Result<()> {
        self.ask_for_all(call, target, (What::Get, pattern), &[], Comes::To(each))
    }

    /// The same, one after the other to where `into` is.
    ///
    /// Errors: as there.
    ///
    /// # Safety
    /// There is room for all of them, of any alignment, which nobody else touches meanwhile.
    pub unsafe fn get_elsewhere_at(
        &self,
        call: &Call<'_>,
        target: usize,
        pattern: Pattern,
        into: *mut u8,
    ) -> Result<()> {
        self.ask_for_all(call, target, (What::Get, pattern), &[], Comes::At(into))
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
        each: Each<'_>,
    ) -> Result<()> {
        let both = [old, new].concat();
        self.ask_for_all(call, target, (What::Swap, pattern), &both, Comes::To(each))
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
        let targets: Vec<usize> = {
            let under_way = elsewhere.under_way.borrow();
            let to_one = |target| homes.get(target).and_then(|home| under_way.get(home));
            match target {
                Some(target) => to_one(target).into_iter().map(|it| it.0).collect(),
                None => under_way.values().map(|it| it.0).collect(),
            }
        };
        // All are asked before the first is awaited.
        let flush = Asked::only(What::Flush);
        let answers = targets.into_iter().map(|target| self.ask(call, target, flush));
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
                let (_, sent) = all.entry(home).or_insert((target, 0));
                *sent += bytes + EACH;
                *sent
            };
            if sent + MOST + EACH > UNDER_WAY {
                self.complete(call, Some(target))?;
            }
        }
        Ok(())
    }

    /// Sends requests that are answered, and sees to where the answers come.
    fn ask_for_all(
        &self,
        call: &Call<'_>,
        target: usize,
        (what, pattern): (What, Pattern),
        data: &[u8],
        mut comes: Comes<'_>,
    ) -> Result<()> {
        let word = self.parts.word().bytes();
        let start = if let Comes::At(into) = comes { Some(into) } else { None };
        let mut awaited = VecDeque::with_capacity(ASKED);
        let mut next = |awaited: &mut VecDeque<(Answer<'_>, usize)>| {
            let Some((answer, from)) = awaited.pop_front() else { return Ok(()) };
            let piece = self.answered(call, answer)?;
            if let Comes::To(each) = &mut comes { each(from, &piece) } else { Ok(()) }
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
            let asked = Asked { what, pattern, data: &data };
            let into = start.map(|start| start.wrapping_add(from));
            // SAFETY: the piece belongs there, where there is room for all (`get_elsewhere_at`) until
            // the answers are dropped, all of them when this returns.
            let answer = unsafe { self.ask_at(call, target, asked, into)? };
            awaited.push_back((answer, from));
        }
        while !awaited.is_empty() {
            next(&mut awaited)?;
        }
        Ok(())
    }

    /// Sends a request that is answered.
    pub(super) fn ask(
        &self,
        call: &Call<'_>,
        target: usize,
        asked: Asked<'_>,
    ) -> Result<Answer<'_>> {
        // SAFETY: the answer is put nowhere.
        unsafe { self.ask_at(call, target, asked, None) }
    }

    /// The same; the answer is put there.
    ///
    /// # Safety
    /// There is room for as many words as are asked for, which nobody else touches until the answer is
    /// dropped.
    unsafe fn ask_at(
        &self,
        call: &Call<'_>,
        target: usize,
        asked: Asked<'_>,
        into: Option<*mut u8>,
    ) -> Result<Answer<'_>> {
        self.comm.check_stopped(call)?;
        let elsewhere = self.elsewhere.as_ref().expect("a window with parts elsewhere");
        let words = match asked.what {
            What::Flush | What::Lock(..) => 0,
            _ => asked.pattern.blocks * asked.pattern.block,
        };
        let (bytes, home) = (words * self.parts.word().bytes(), elsewhere.served.homes[target]);
        let (answers, me) = (&elsewhere.served.answers, self.comm.endpoint.rank);
        let ticket = match into {
            // SAFETY: this function's contract.
            Some(into) => unsafe { answers.expect_at(me, home, (into, bytes)) },
            None => answers.expect(me, home, bytes),
        };
        elsewhere.send(self.comm.me, target, ticket.number, asked)?;
        Ok(Answer(ticket, target))
    }

    /// The target answers while any of its process's ranks is in a call; for a lock this waits, too,
    /// for whoever has it, whom this process does not know.
    pub(super) fn await_answer(
        &self,
        call: &Call<'_>,
        answer: &Answer<'_>,
        by: u32,
    ) -> Result<Vec<u8>> {
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
        let answer = waiter.until_by(on, come)?;
        // What was done before it is seen, as by who reads it directly.
        fence(Acquire);
        answer
    }
}
