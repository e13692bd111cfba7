//! Messages under measurement.

use spmd::prelude::*;

use crate::bench::Bench;
use crate::measure::{Effort, Measured, REWRITE, Subject, looks, measure as measure_subject};
use crate::memory::{Data, Memory};

/// Messages in a window.
pub(crate) const WINDOW: usize = 64;
/// Messages that a rank sends at once, whether they are received or not.
pub(crate) const MANY: usize = 1000;
/// The tag of the message with which a rank says that no more come from it.
const END: u32 = 1;

/// Measures messages of this many bytes.
///
/// Errors: there is one rank; an odd number of them, for the message rate.
pub(crate) fn measure(
    ctx: &Ctx,
    bench: Bench,
    bytes: usize,
    memory: Memory,
    effort: Effort,
) -> Result<Measured> {
    let (rank, n) = (ctx.rank(), ctx.size());
    if n < 2 || bench == Bench::MessageRate && n % 2 != 0 {
        return Err(format!("{} needs an even number of ranks", bench.name()).into());
    }
    let half = n / 2;
    let peer = match (bench, rank) {
        (Bench::MessageRate, _) => Some((rank + half) % n),
        // As far apart as ranks are: between hosts, where there are several.
        (_, 0) => Some(n - 1),
        (_, last) if last == n - 1 => Some(0),
        _ => None,
    };
    let sends = if bench == Bench::MessageRate { rank < half } else { rank == 0 };
    // What is received at the same time has a place each.
    let places = if bench == Bench::Isend && !sends && peer.is_some() { WINDOW } else { 1 };
    let (send, recv) = (memory.zeros(ctx, bytes)?, memory.zeros(ctx, places * bytes)?);
    let mut subject = Messages { bench, peer, sends, send, recv };
    let mut measured = measure_subject(ctx, effort, &mut subject)?;
    if bench == Bench::Latency {
        // Half of the round trip.
        let Measured { avg, min, p50, p99, max, .. } = &mut measured;
        [avg, min, p50, p99, max].into_iter().for_each(|time| *time /= 2.0);
    }
    Ok(measured)
}

struct Messages {
    bench: Bench,
    peer: Option<usize>,
    /// Whether this rank sends first.
    sends: bool,
    send: Data<u8>,
    recv: Data<u8>,
}

impl Messages {
    fn window(&mut self, ctx: &Ctx, peer: usize, sends: bool) -> Result<()> {
        for _ in 0..WINDOW {
            if sends {
                ctx.send(&*self.send, peer, 0)?;
            } else {
                ctx.recv(&mut *self.recv, peer, 0)?;
            }
        }
        // The sender's time ends when all have come.
        if sends { ctx.recv(&mut [0u8; 1], peer, 1).map(drop) } else { ctx.send(&[1u8], peer, 1) }
    }

    /// The same as requests, begun before any of them is waited for.
    fn window_of_requests(&mut self, ctx: &Ctx, peer: usize, sends: bool) -> Result<()> {
        let (send, recv) = (&*self.send, &mut *self.recv);
        ctx.requests(|requests| {
            if sends {
                for _ in 0..WINDOW {
                    requests.isend(send, peer, 0)?;
                }
            } else {
                for place in recv.chunks_exact_mut(send.len()) {
                    requests.irecv(place, peer, 0)?;
                }
            }
            requests.wait_all()
        })?;
        if sends { ctx.recv(&mut [0u8; 1], peer, 1).map(drop) } else { ctx.send(&[1u8], peer, 1) }
    }

    /// Messages into a rank that waits for something else.
    fn flood(&mut self, ctx: &Ctx) -> Result<()> {
        if let Some(peer) = self.peer.filter(|_| self.sends) {
            (0..MANY).try_for_each(|_| ctx.send(&*self.send, peer, 0))?;
        }
        ctx.barrier()?;
        if let Some(peer) = self.peer.filter(|_| !self.sends) {
            (0..MANY).try_for_each(|_| ctx.recv(&mut *self.recv, peer, 0).map(drop))?;
        }
        Ok(())
    }

    /// Messages among all, received as they come while others still send.
    fn any_source(&mut self, ctx: &Ctx) -> Result<()> {
        let (me, n) = (ctx.rank(), ctx.size());
        let other = |turn: usize| (me + 1 + turn % (n - 1)) % n;
        let mut sending = n - 1;
        for turn in 0..MANY {
            ctx.send(&*self.send, other(turn), 0)?;
            while let Some(next) = ctx.iprobe(ANY, ANY)? {
                ctx.recv(&mut *self.recv, next.source(), next.tag())?;
                sending -= usize::from(next.tag() == END);
            }
        }
        (0..n - 1).try_for_each(|turn| ctx.send(&[0u8; 0], other(turn), END))?;
        while sending > 0 {
            let next = ctx.recv(&mut *self.recv, ANY, ANY)?;
            sending -= usize::from(next.tag() == END);
        }
        Ok(())
    }
}

impl Subject for Messages {
    fn rewrites(&self) -> bool {
        self.send.len() >= REWRITE
    }

    fn prepare(&mut self, turn: usize) -> Result<()> {
        let number = |index: usize| (turn + index % 251) as u8;
        self.send.iter_mut().enumerate().for_each(|(index, byte)| *byte = number(index));
        Ok(())
    }

    fn call(&mut self, ctx: &Ctx, _: usize) -> Result<()> {
        match self.bench {
            Bench::Flood => return self.flood(ctx),
            Bench::AnySource => return self.any_source(ctx),
            _ => {}
        }
        let Some(peer) = self.peer else { return Ok(()) };
        match self.bench {
            Bench::Latency if self.sends => {
                ctx.send(&*self.send, peer, 0)?;
                ctx.recv(&mut *self.recv, peer, 0).map(drop)
            }
            Bench::Latency => {
                ctx.recv(&mut *self.recv, peer, 0)?;
                ctx.send(&*self.send, peer, 0)
            }
            Bench::Bidirectional => {
                for _ in 0..WINDOW {
                    ctx.sendrecv(&*self.send, peer, 0, &mut *self.recv, peer, 0)?;
                }
                Ok(())
            }
            Bench::Isend => self.window_of_requests(ctx, peer, self.sends),
            _ => self.window(ctx, peer, self.sends),
        }
    }

    /// Both ranks of a pair send the same bytes.
    fn wrong(&mut self, _: usize) -> Result<u64> {
        let both = matches!(self.bench, Bench::Latency | Bench::Bidirectional | Bench::AnySource);
        let receives = !self.sends || both;
        if self.peer.is_none() || !receives {
            return Ok(0);
        }
        let sent = |index: usize| self.send[index % self.send.len()];
        let wrong = looks(self.recv.len()).filter(|index| self.recv[*index] != sent(*index));
        Ok(wrong.count() as u64)
    }
}
