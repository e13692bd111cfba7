//! Messages between ranks of different processes.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use super::packet::{INLINE, Packet};
use super::{Across, nonsense};
use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::transport::Transport;
use crate::transport::fabric::Started;
use crate::transport::message::{
    Arrived, Data, Envelope, Kept, Manner, Pending, There, Underway, Wanted,
};
use crate::transport::shared::agents::Waiter;
use crate::transport::shared::layout::Agent;
use crate::transport::shared::{Endpoint, World, packed_if_apart};

/// Packets that a look at what has come takes, at most.
const LOOKED_THROUGH: usize = 64;

/// Looks in a row at data that are under way, and how long they may take: in a look the library may
/// let others run, who keep a busy core for milliseconds.
const LOOKS: usize = 64;
const LOOKING: Duration = Duration::from_millis(1);

/// The transport of a rank whose world lives in several processes: to those of its own process
/// messages go through the arena.
pub(crate) struct Remote(pub(crate) Arc<Endpoint>);

impl Remote {
    fn across(&self) -> &Arc<Across> {
        self.0.world.across.as_ref().expect("a world in several processes has a fabric")
    }
}

impl Transport for Remote {
    unsafe fn post<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        manner: Manner,
        waiter: &Waiter<'_>,
    ) -> Result<Pending<'a>> {
        let across = self.across();
        if across.local().contains(&to) {
            // SAFETY: as the caller promises.
            return unsafe { self.0.post(to, envelope, data, manner, waiter) };
        }
        let process = across.process_of(to);
        self.tell(&envelope, process)?;
        let contiguous = data.contiguous();
        let packed = packed_if_apart(data)?;
        let bytes = envelope.bytes;
        let ptr = packed.as_ref().map_or_else(
            || contiguous.expect("it is not packed, so it is contiguous"),
            |packed| packed.as_ptr(),
        );
        let small = bytes <= INLINE && manner != Manner::Synchronous;
        let fits = small && self.fits(across, to, bytes)?;
        if small && !fits {
            waiter.beyond_window();
        }
        let to = to as u32;
        if fits {
            let data = match bytes {
                0 => &[][..],
                // SAFETY: `ptr` leads to the viewed buffer or to what was packed from it: so many
                // bytes, which nobody writes during this call.
                _ => unsafe { std::slice::from_raw_parts(ptr, bytes) },
            };
            across.send(process, &Packet::Message { to, envelope, data })?;
            return Ok(Pending::Done);
        }
        let payload = across.payloads.fetch_add(1, Relaxed);
        across.send(process, &Packet::Announced { to, envelope, payload })?;
        // SAFETY: `ptr` leads to the viewed buffer, which the caller keeps, or to `packed`, which
        // is kept with it.
        let started = unsafe { across.fabric.give(process, payload, ptr, bytes)? };
        let on = to as usize;
        let (started, across) = (RefCell::new(started), across.clone());
        Ok(Pending::Underway(Box::new(Given { started, across, on, _packed: packed })))
    }

    fn take<'a>(&'a self, wanted: &Wanted) -> Result<Option<Arrived<'a>>> {
        // What has been taken before has come before.
        let mut arrived = self.0.take(wanted)?;
        if arrived.is_none() {
            self.0.world.take_packet()?;
            arrived = self.0.take(wanted)?;
        }
        if let Some(arrived) = &arrived {
            self.received(self.across(), arrived)?;
        }
        Ok(arrived)
    }

    fn peek(&self, wanted: &Wanted) -> Result<Option<Envelope>> {
        for _ in 0..LOOKED_THROUGH {
            if let Some(envelope) = self.0.peek(wanted)? {
                return Ok(Some(envelope));
            }
            if !self.0.world.take_packet()? {
                break;
            }
        }
        self.0.peek(wanted)
    }

    fn around(&self, _: &Call<'_>, _: Option<Algorithm>, run: &mut dyn FnMut()) {
        run();
    }
}

impl Remote {
    /// Whether a small message may go at once, as far as is known here.
    #[inline]
    fn fits(&self, across: &Across, to: usize, bytes: usize) -> Result<bool> {
        if self.admits(across, to, bytes) {
            return Ok(true);
        }
        // What was received may have been told, after other packets that wait here.
        while self.0.world.take_packet()? {
            if self.admits(across, to, bytes) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tells a process what the numbers in an envelope mean, if it does not know.
    fn tell(&self, envelope: &Envelope, process: usize) -> Result<()> {
        let across = self.across();
        let numbers = [envelope.file, envelope.dtype_text];
        let news = {
            let mut texts = across.texts.lock();
            numbers.map(|number| texts.is_news(self.0.rank, number, process))
        };
        for (number, news) in numbers.into_iter().zip(news) {
            if news {
                let text = self.0.world.memory.text(self.0.rank).get(number);
                let of = envelope.source;
                across.send(process, &Packet::Text { of, number, text: &text })?;
            }
        }
        Ok(())
    }
}

impl World {
    /// Takes the next of what other processes have sent to ranks of this one; says whether there was
    /// something.
    pub(crate) fn take_packet(&self) -> Result<bool> {
        let Some(across) = &self.across else { return Ok(false) };
        let mut wrong = None;
        let taken = across.fabric.receive(&mut |from, bytes| {
            if let Err(error) = self.deliver(across, from, bytes) {
                wrong = Some(error);
            }
            across.taken[from].fetch_add(1, Release);
        })?;
        wrong.map_or(Ok(taken), Err)
    }

    fn deliver(&self, across: &Arc<Across>, from: usize, bytes: &[u8]) -> Result<()> {
        let unknown = || nonsense(from, "a packet that this one does not know");
        let (to, mut envelope, data) = match Packet::read(bytes).ok_or_else(unknown)? {
            Packet::Text { of, number, text } => {
                let known = (of as usize) < self.size() && across.process_of(of as usize) == from;
                let table = known.then(|| self.memory.text(of as usize)).ok_or_else(unknown)?;
                let heard = across.texts.lock().hear(table, of, number, text);
                return if heard { Ok(()) } else { Err(unknown()) };
            }
            Packet::Received { by, of, bytes } => {
                let (by, of) = (by as usize, of as usize);
                let ours = across.local().contains(&of) && by < self.size();
                if !ours || across.process_of(by) != from {
                    return Err(unknown());
                }
                across.windows.opens(of, by, bytes);
                return Ok(());
            }
            Packet::Calls { lead, context, rounds } => {
                return across.hear_calls(from, lead, context, rounds);
            }
            Packet::Message { to, envelope, data } => (to, envelope, Data::Here(data.to_vec())),
            Packet::Announced { to, envelope, payload } => {
                let there = Announced { across: across.clone(), from, payload };
                (to, envelope, Data::There(Box::new(there)))
            }
        };
        let to = to as usize;
        if !across.local().contains(&to) || across.process_of(envelope.source as usize) != from {
            return Err(nonsense(
                from,
                "a message between ranks that don't live in these processes",
            ));
        }
        let texts = across.texts.lock();
        envelope.file = texts.here(envelope.source, envelope.file);
        envelope.dtype_text = texts.here(envelope.source, envelope.dtype_text);
        drop(texts);
        let queue = self.queue(to).ok_or_else(unknown)?;
        queue.push(Kept { envelope, data });
        self.bell(to).ring();
        Ok(())
    }
}

/// The sender's side of a payload.
struct Given {
    started: RefCell<Box<dyn Started>>,
    across: Arc<Across>,
    on: usize,
    _packed: Option<Vec<u8>>,
}

impl Underway for Given {
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()> {
        // Whom it is for may wait for something else that this process is to take first.
        let world = &waiter.endpoint.world;
        let sent = || done(world, &mut **self.started.borrow_mut());
        let outcome = waiter.until_by(Some(self.on), sent);
        if self.across.survives() {
            // The library has a copy of the data.
            return outcome?;
        }
        self.across.unless_failed(outcome)?
    }
}

/// Whether something is complete, having taken what came meanwhile.
///
/// It looks several times, as each look may move some of what is under way: with one look at a turn,
/// a rank that shares its core moves a few messages in each turn.
fn done(world: &World, started: &mut dyn Started) -> Option<Result<()>> {
    let start = Instant::now();
    for _ in 0..LOOKS {
        if let Err(error) = world.take_packet() {
            return Some(Err(error));
        }
        match started.test() {
            Ok(true) => return Some(Ok(())),
            Ok(false) if start.elapsed() > LOOKING => return None,
            Ok(false) => {}
            Err(error) => return Some(Err(error)),
        }
    }
    None
}

/// The receiver's side.
struct Announced {
    across: Arc<Across>,
    from: usize,
    payload: u32,
}

impl There for Announced {
    unsafe fn fetch(
        self: Box<Self>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        let (world, source) = (&waiter.endpoint.world, envelope.source as usize);
        let fabric = &self.across.fabric;
        // SAFETY: the target has room for the envelope's bytes, as the caller promises, and is the
        // caller's alone until this returns, which it does when it is complete or dropped.
        let mut started = unsafe { fabric.take(self.from, self.payload, into, envelope.bytes)? };
        waiter.ended_by(Agent::DATA);
        waiter.until_by(Some(source), || done(world, &mut *started))??;
        Ok(true)
    }

    fn refuse(self: Box<Self>, envelope: &Envelope, waiter: &Waiter<'_>) {
        // The sender waits until somebody takes it.
        let mut room = Vec::<u8>::new();
        if let Err(error) = room.try_reserve_exact(envelope.bytes) {
            return waiter.give_up(&Error::Unavailable {
                what: format!("memory for a message of {} bytes", envelope.bytes),
                reason: error.to_string(),
                remedy: "send less at once".into(),
            });
        }
        // SAFETY: the room is that large, and nobody else's. Whatever happens to the message, this
        // call has failed already.
        let _: Result<bool, Error> = unsafe { self.fetch(envelope, room.as_mut_ptr(), waiter) };
    }
}
