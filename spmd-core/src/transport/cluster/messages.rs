//! Messages between ranks of different processes.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use super::first_report::nonsense;
use super::joined::Cluster;
use super::packet::{INLINE, Packet};
use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::transport::Transport;
use crate::transport::fabric::FabricRequest;
use crate::transport::message::{Data, Envelope, MatchPattern, SendMode, UnexpectedMessage};
use crate::transport::pending::{PendingSend, SenderSide};
use crate::transport::shared::layout::Agent;
use crate::transport::shared::posted::Arrivals;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::{Arrived, Body, FaultScope};
use crate::transport::shared::{Endpoint, Service, World, packed_if_apart};

/// Packets that a look at what has come takes, at most: others may send as fast as this takes.
const LOOKED_THROUGH: usize = 64;

/// Looks in a row at data that are under way, and how long they may take: in a look the library may
/// let others run, who keep a busy core for milliseconds.
const LOOKS: usize = 64;
const LOOKING: Duration = Duration::from_millis(1);

/// The transport of a rank whose world lives in several processes: to those of its own process
/// messages go through the arena.
pub(crate) struct Remote {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) cluster: Arc<Cluster>,
}

impl Transport for Remote {
    unsafe fn post<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        mode: SendMode,
        waiter: &Waiter<'_>,
    ) -> Result<PendingSend<'a>> {
        let cluster = &self.cluster;
        if cluster.local().contains(&to) {
            // SAFETY: the viewed buffer stays alive and unwritten until what this gives has been
            // completed or dropped (contract of `Transport::post`): it is what the endpoint gives.
            return unsafe { self.endpoint.post(to, envelope, data, mode, waiter) };
        }
        let process = cluster.process_of(to);
        self.send_texts(&envelope, process)?;
        let contiguous = data.contiguous();
        let packed = packed_if_apart(data)?;
        let bytes = envelope.bytes;
        let ptr = packed.as_ref().map_or_else(
            || contiguous.expect("it is not packed, so it is contiguous"),
            |packed| packed.as_ptr(),
        );
        let small = bytes <= INLINE && mode != SendMode::Synchronous;
        let fits = small && self.fits(to, bytes)?;
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
            cluster.send(process, &Packet::Message { to, envelope, data })?;
            return Ok(PendingSend::Done);
        }
        let payload = cluster.payloads.fetch_add(1, Relaxed);
        cluster.send(process, &Packet::Announced { to, envelope, payload })?;
        // SAFETY: `ptr` leads to the viewed buffer, which the caller keeps, or to `packed`, which
        // is kept with it.
        let started = unsafe { cluster.fabric.issend(process, payload, ptr, bytes)? };
        let on = to as usize;
        let (started, cluster) = (RefCell::new(started), cluster.clone());
        Ok(PendingSend::SenderSide(Box::new(PayloadSend { started, cluster, on, _packed: packed })))
    }

    fn needs_sender(&self, to: usize) -> bool {
        !self.cluster.local().contains(&to) || self.endpoint.needs_sender(to)
    }

    fn take<'a>(&'a self, pattern: &MatchPattern) -> Result<Option<Arrived<'a>>> {
        // What has been taken before has come before.
        let mut arrived = self.endpoint.take(pattern)?;
        if arrived.is_none() && self.cluster.take_packet(&self.endpoint.world)? {
            arrived = self.endpoint.take(pattern)?;
        }
        if let Some(arrived) = &arrived {
            self.received(arrived)?;
        }
        Ok(arrived)
    }

    fn peek(&self, pattern: &MatchPattern) -> Result<Option<Envelope>> {
        for _ in 0..LOOKED_THROUGH {
            if let Some(envelope) = self.endpoint.peek(pattern)? {
                return Ok(Some(envelope));
            }
            if !self.cluster.take_packet(&self.endpoint.world)? {
                break;
            }
        }
        self.endpoint.peek(pattern)
    }

    fn send_at_once(&self, to: usize, envelope: &Envelope, data: &View<'_>) -> Result<bool> {
        Ok(self.cluster.local().contains(&to) && self.endpoint.send_at_once(to, envelope, data)?)
    }

    fn deliver(
        &self,
        arrivals: &Arc<Arrivals>,
        take: &mut dyn FnMut(usize, Arrived<'_>),
    ) -> std::result::Result<(), (Option<usize>, Error)> {
        let taken = self.cluster.take_packets(&self.endpoint.world);
        taken.map_err(|error| (None, error))?;
        self.endpoint.deliver(arrivals, take)
    }

    fn receives(&self, arrived: &Arrived<'_>) -> Result<()> {
        self.received(arrived)
    }

    unsafe fn fetch(
        &self,
        there: Box<dyn Any + Send>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        match there.downcast::<PayloadReceive>() {
            // SAFETY: `into` is valid for writes of the envelope's bytes, and nobody else touches
            // these until this returns (contract of `Transport::fetch`): until the payload's
            // `fetch` has.
            Ok(announced) => unsafe { announced.fetch(&self.cluster, envelope, into, waiter) },
            // SAFETY: as above.
            Err(there) => unsafe { self.endpoint.fetch(there, envelope, into, waiter) },
        }
    }

    fn refuse(&self, there: Box<dyn Any + Send>, envelope: &Envelope, waiter: &Waiter<'_>) {
        match there.downcast::<PayloadReceive>() {
            Ok(announced) => announced.refuse(&self.cluster, envelope, waiter),
            Err(there) => self.endpoint.refuse(there, envelope, waiter),
        }
    }

    fn around(&self, _: &Call<'_>, _: Option<Algorithm>, run: &mut dyn FnMut()) {
        run();
    }
}

impl Remote {
    /// Whether a small message may go at once, as far as is known here.
    #[inline]
    fn fits(&self, to: usize, bytes: usize) -> Result<bool> {
        if self.admits(to, bytes) {
            return Ok(true);
        }
        // What was received may have been told, after other packets that wait here.
        while self.cluster.take_packet(&self.endpoint.world)? {
            if self.admits(to, bytes) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a small message may go at once, as far as is known here; then it counts as sent.
    #[inline]
    fn admits(&self, to: usize, bytes: usize) -> bool {
        self.cluster.windows.admits(
            self.endpoint.world.tuning.window as u64,
            self.endpoint.rank,
            to,
            bytes,
        )
    }

    /// A message is about to be received: tells its sender, if that is elsewhere and has to know.
    #[inline]
    fn received(&self, arrived: &Arrived<'_>) -> Result<()> {
        let source = arrived.envelope.source as usize;
        let small = matches!(arrived.body, Body::UnexpectedMessage(Data::Here(_)));
        if !small || self.cluster.local().contains(&source) {
            return Ok(());
        }
        let window = self.endpoint.world.tuning.window as u64;
        match self.cluster.windows.receives(
            window,
            self.endpoint.rank,
            source,
            arrived.envelope.bytes,
        ) {
            None => Ok(()),
            Some(bytes) => {
                let (by, of) = (self.endpoint.rank as u32, source as u32);
                self.cluster
                    .send(self.cluster.process_of(source), &Packet::Received { by, of, bytes })
            }
        }
    }

    /// Tells a process what the numbers in an envelope mean, if it does not know.
    fn send_texts(&self, envelope: &Envelope, process: usize) -> Result<()> {
        let cluster = &self.cluster;
        let numbers = [envelope.file, envelope.dtype_text];
        let news = {
            let mut texts = cluster.texts.lock();
            numbers.map(|number| texts.is_news(self.endpoint.rank, number, process))
        };
        for (number, news) in numbers.into_iter().zip(news) {
            if news {
                let text = self.endpoint.world.memory.text(self.endpoint.rank).get(number);
                let of = envelope.source;
                cluster.send(process, &Packet::Text { of, number, text: &text })?;
            }
        }
        Ok(())
    }
}

impl Cluster {
    /// Takes the next of what other processes have sent to ranks of this one; says whether there
    /// was something.
    pub(crate) fn take_packet(&self, world: &World) -> Result<bool> {
        let mut wrong = None;
        let taken = self.fabric.receive(&mut |from, bytes| {
            if let Err(error) = self.deliver(world, from, bytes) {
                wrong = Some(error);
            }
            self.taken[from].fetch_add(1, Release);
        })?;
        wrong.map_or(Ok(taken), Err)
    }

    /// The same for as many as a look takes.
    pub(super) fn take_packets(&self, world: &World) -> Result<bool> {
        for taken in 0..LOOKED_THROUGH {
            if !self.take_packet(world)? {
                return Ok(taken > 0);
            }
        }
        Ok(true)
    }

    fn deliver(&self, world: &World, from: usize, bytes: &[u8]) -> Result<()> {
        let unknown = || nonsense(from, "a packet that this one does not know");
        let (to, mut envelope, data) = match Packet::read(bytes).ok_or_else(unknown)? {
            Packet::Text { of, number, text } => {
                let known = (of as usize) < world.size() && self.process_of(of as usize) == from;
                let table = known.then(|| world.memory.text(of as usize)).ok_or_else(unknown)?;
                let heard = self.texts.lock().receive(table, of, number, text);
                return if heard { Ok(()) } else { Err(unknown()) };
            }
            Packet::Received { by, of, bytes } => {
                let (by, of) = (by as usize, of as usize);
                let ours = self.local().contains(&of) && by < world.size();
                if !ours || self.process_of(by) != from {
                    return Err(unknown());
                }
                self.windows.opens(of, by, bytes);
                return Ok(());
            }
            Packet::Calls { leader, context, rounds } => {
                return self.receive_calls(from, leader, context, rounds);
            }
            Packet::Request(request) => {
                self.carry_out(world, from, &request);
                return Ok(());
            }
            Packet::Answer { window, ticket, data } => {
                self.hear(world, from, window, ticket, data);
                return Ok(());
            }
            Packet::Message { to, envelope, data } => (to, envelope, Data::Here(data.to_vec())),
            Packet::Announced { to, envelope, payload } => {
                let there = PayloadReceive { from, payload };
                (to, envelope, Data::There(Box::new(there)))
            }
        };
        let to = to as usize;
        if !self.local().contains(&to) || self.process_of(envelope.source as usize) != from {
            return Err(nonsense(
                from,
                "a message between ranks that don't live in these processes",
            ));
        }
        let texts = self.texts.lock();
        envelope.file = texts.here(envelope.source, envelope.file);
        envelope.dtype_text = texts.here(envelope.source, envelope.dtype_text);
        drop(texts);
        let queue = world.queue(to).ok_or_else(unknown)?;
        queue.push(UnexpectedMessage::new(envelope, data));
        world.bell(to).ring();
        Ok(())
    }
}

impl Service for Cluster {
    fn serve(&self, world: &World) -> bool {
        self.take_packets(world).unwrap_or_else(|error| {
            // Whoever waits may wait for nothing else than what this breaks.
            world.raise(FaultScope::All, &self.fault_of(&error));
            true
        })
    }
}

/// The sender's side of a payload.
struct PayloadSend {
    started: RefCell<Box<dyn FabricRequest>>,
    cluster: Arc<Cluster>,
    on: usize,
    _packed: Option<Vec<u8>>,
}

impl SenderSide for PayloadSend {
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()> {
        // Whom it is for may wait for something else that this process is to take first.
        let world = &waiter.endpoint.world;
        let sent = || done(&self.cluster, world, &mut **self.started.borrow_mut());
        let outcome = waiter.until_by(Some(self.on), sent);
        if self.cluster.survives() {
            // The library has a copy of the data.
            return outcome?;
        }
        self.cluster.unless_failed(outcome)?
    }
}

/// Whether something is complete, having taken what came meanwhile.
///
/// It looks several times, as each look may move some of what is under way: with one look at a
/// turn, a rank that shares its core moves a few messages in each turn.
fn done(
    cluster: &Arc<Cluster>,
    world: &World,
    started: &mut dyn FabricRequest,
) -> Option<Result<()>> {
    let start = Instant::now();
    for _ in 0..LOOKS {
        if let Err(error) = cluster.take_packet(world) {
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
#[derive(Clone, Copy)]
struct PayloadReceive {
    from: usize,
    payload: u32,
}

impl PayloadReceive {
    /// Takes the data to `into`.
    ///
    /// # Safety
    /// `into` is valid for writes of the envelope's bytes, and nobody else touches these until this
    /// returns.
    unsafe fn fetch(
        self,
        cluster: &Arc<Cluster>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        let (world, source) = (&waiter.endpoint.world, envelope.source as usize);
        let fabric = &cluster.fabric;
        // SAFETY: `into` is valid for writes of the envelope's bytes, and nobody else touches these
        // until this returns (this function's contract). By then `started` is complete or has been
        // dropped, after which the fabric leaves the memory alone.
        let mut started = unsafe { fabric.irecv(self.from, self.payload, into, envelope.bytes)? };
        waiter.ended_by(Agent::DATA);
        waiter.until_by(Some(source), || done(cluster, world, &mut *started))??;
        Ok(true)
    }

    /// Takes the data to nowhere: the sender waits until somebody takes them.
    fn refuse(self, cluster: &Arc<Cluster>, envelope: &Envelope, waiter: &Waiter<'_>) {
        let mut room = Vec::<u8>::new();
        if let Err(error) = room.try_reserve_exact(envelope.bytes) {
            return waiter.give_up(&Error::unavailable(
                format!("memory for a message of {} bytes", envelope.bytes),
                error.to_string(),
                "send less at once".into(),
            ));
        }
        // SAFETY: the room is that large, and nobody else's. Whatever happens to the message, this
        // call has failed already.
        let _: Result<bool, Error> =
            unsafe { self.fetch(cluster, envelope, room.as_mut_ptr(), waiter) };
    }
}
