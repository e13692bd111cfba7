//! Streams between ranks: channels of which each end is on a rank of its own.
//!
//! Who sends a value sends a message, while there is room for it at the other end: a task carries it from there to
//! the channel of who receives, and says how many have been taken. Another task sends the end, when all senders
//! are gone.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_collectives::{Allreduce, split_for_messages};
use spmd_core::{ANY, Comm, Ctx, Error, Max, Result};

use crate::about::About;
use crate::channel::{Receiver, Sender, channel_of};
use crate::lock::Lock;
use crate::rank::group_of;
use crate::remote::function::{from_bytes, to_bytes};
use crate::task::Task;
use crate::work::Once;

/// A value's bytes; that there are no more; that there are none, for this reason.
const VALUE: u32 = 0;
const END: u32 = 1;
const BROKEN: u32 = 2;
/// So many values have been taken; none of them: nobody takes any more; `OVER`: this is the last such message.
const TAKEN: u32 = 3;
const OVER: u64 = u64::MAX;

/// Where values go into a stream: see [`Tasks::stream`](crate::Tasks::stream). It may be cloned, and moved into
/// tasks of its rank; the stream ends when all are gone.
pub struct StreamSender<T>(Out<T>);

enum Out<T> {
    /// Within one rank.
    Here(Sender<Result<T>>),
    There(Arc<Mouth>),
}

/// What the senders of a stream to another rank have.
struct Mouth {
    wire: Arc<Lock<Wire>>,
    /// The task that sends the end waits for that of this.
    _open: Sender<()>,
    _closes: Task<()>,
}

/// The way to the other rank.
struct Wire {
    comm: Comm,
    /// Where the stream was made.
    site: &'static Location<'static>,
    /// For so many values there is room there.
    room: usize,
    /// No value goes there any more, for this reason.
    closed: Option<String>,
    /// The other rank has been told that there are no more.
    ended: bool,
}

/// Where they come out. It may be cloned, and moved into tasks of its rank; each value comes to one.
pub struct StreamReceiver<T> {
    values: Receiver<Result<T>>,
    /// None within one rank.
    carrier: Option<Arc<Task<()>>>,
}

/// The ends of a stream that a rank has: where values go in, and where they come out.
pub type StreamEnds<T> = (Option<StreamSender<T>>, Option<StreamReceiver<T>>);

impl<T: Serialize + Send> StreamSender<T> {
    /// Sends a value, once there is room for it; a task is suspended meanwhile.
    ///
    /// Errors: all receivers are gone, or cannot make a value of the bytes, of which a sender may hear some values
    /// later; a value cannot be serialized, now or before; a rank has failed, or waits in a cycle.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<()> {
        match &self.0 {
            Out::Here(values) => values.send(Ok(value)),
            Out::There(mouth) => {
                let bytes = to_bytes(&value);
                drop(value);
                let site = Location::caller();
                mouth.wire.lock_at(site)?.send(bytes, site)
            }
        }
    }
}

impl Wire {
    #[track_caller]
    fn send(&mut self, bytes: Result<Vec<u8>>, site: &'static Location<'static>) -> Result<()> {
        let bytes = match (&self.closed, bytes) {
            (None, Ok(bytes)) => bytes,
            (Some(why), _) => return Err(Error::argument(format!("send at {site}: {why}"))),
            (None, Err(why)) => {
                self.closed = Some(format!("the stream made at {} has ended: {why}", self.site));
                self.end(BROKEN, why.to_string().as_bytes())?;
                return Err(why);
            }
        };
        while self.room == 0 {
            match self.taken()? {
                0 => {
                    let gone =
                        format!("the receivers of the stream made at {} are gone", self.site);
                    let told = Error::argument(format!("send at {site}: {gone}"));
                    self.closed = Some(gone);
                    return Err(told);
                }
                taken => self.room = taken as usize,
            }
        }
        self.comm.send(&bytes, self.other(), VALUE)?;
        self.room -= 1;
        Ok(())
    }

    #[track_caller]
    fn end(&mut self, how: u32, why: &[u8]) -> Result<()> {
        self.ended = true;
        self.comm.send(why, self.other(), how)
    }

    /// How many values the other rank has taken since it last said so.
    #[track_caller]
    fn taken(&self) -> Result<u64> {
        let mut taken = [0];
        self.comm.recv(&mut taken, self.other(), TAKEN)?;
        Ok(taken[0])
    }

    fn other(&self) -> usize {
        1 - self.comm.rank()
    }
}

/// Sends the end, when all senders are gone. If that is because their rank waited in a cycle, it was not for the
/// program to end, and the other rank is told of that.
fn close(open: &Receiver<()>, wire: &Lock<Wire>, cycles: u64) -> Result<()> {
    let site = Location::caller();
    open.recv_at(site)?;
    let mut wire = wire.lock_at(site)?;
    if wire.comm.internals().stop_after_cycle(cycles) {
        return Ok(());
    }
    if !wire.ended {
        wire.end(END, &[])?;
    }
    while wire.taken()? != OVER {}
    Ok(())
}

impl<T: Send> StreamReceiver<T> {
    /// Receives the value that was sent first; `None` if there is none any more, and all senders are gone.
    ///
    /// Errors: what the sending rank could not serialize, or this one make of the bytes; a rank has failed,
    /// or waits in a cycle.
    #[track_caller]
    pub fn recv(&self) -> Result<Option<T>> {
        match self.values.recv()? {
            Some(value) => value.map(Some),
            None => {
                self.carrier.as_ref().map_or(Ok(()), |task| task.fetch().copied()).and(Ok(None))
            }
        }
    }

    /// What is received, until the end, or the first error.
    #[track_caller]
    pub fn iter(&self) -> impl Iterator<Item = Result<T>> {
        let mut failed = false;
        std::iter::from_fn(move || {
            let next = (!failed).then(|| self.recv().transpose()).flatten();
            failed = matches!(next, Some(Err(_)));
            next
        })
    }
}

/// Carries values from the other rank to who takes them here, where there is room for so many.
fn carry<T: DeserializeOwned + Send>(
    values: Sender<Result<T>>,
    (comm, depth, site): (&Comm, usize, &'static Location<'static>),
) -> Result<()> {
    let (other, some) = (1 - comm.rank(), depth.div_ceil(2));
    let mut values = Some(values);
    let mut outcome = Ok(());
    // What the sender knows of.
    let mut room = depth;
    loop {
        if let Some(takers) = &values {
            // Without room it says nothing before it is told of some.
            match takers.room_at(if room == 0 { some } else { 0 }, site)? {
                None => values = None,
                Some(free) if free - room >= some => {
                    comm.send(&[(free - room) as u64], other, TAKEN)?;
                    room = free;
                }
                Some(_) => {}
            }
            if values.is_none() {
                comm.send(&[0u64], other, TAKEN)?;
            }
        }
        let (bytes, status) = comm.recv_vec::<u8>(other, ANY)?;
        match (status.tag(), &values) {
            // Nobody has them: they come, and go.
            (VALUE, None) => {}
            (VALUE, Some(takers)) => {
                room = room.saturating_sub(1);
                let value = from_bytes(&bytes);
                outcome = value.as_ref().map(drop).map_err(|why: &Error| why.to_string().into());
                // Who is gone meanwhile is missed above.
                let _ = takers.send(value);
                if outcome.is_err() {
                    comm.send(&[0u64], other, TAKEN)?;
                    values = None;
                }
            }
            (BROKEN, _) => {
                outcome = Err(String::from_utf8_lossy(&bytes).into_owned().into());
                break;
            }
            _ => break,
        }
    }
    comm.send(&[OVER], other, TAKEN)?;
    outcome
}

/// [`Tasks::stream`](crate::Tasks::stream) of this rank.
#[track_caller]
pub(crate) fn make_stream<T>(
    ctx: &Ctx,
    (from, to, depth): (usize, usize, usize),
    site: &'static Location<'static>,
) -> Result<StreamEnds<T>>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    let (me, n) = (ctx.rank(), ctx.size());
    let refused = |why: String| Error::argument(format!("stream at {site}: {why}"));
    // What is too large is said by all, and so is what only some say.
    let mut said = [from, to, depth, !from, !to, !depth];
    ctx.allreduce_in_place(&mut said, Max)?;
    if (0..3).any(|word| said[word] != !said[word + 3]) {
        return Err(refused("the ranks name different ends, or depths".into()));
    }
    if let Some(end) = [from, to].into_iter().find(|end| *end >= n) {
        return Err(refused(format!("there is no rank {end} among {n}")));
    }
    let ends = (from != to && (me == from || me == to)).then_some(0);
    let Some(comm) = split_for_messages(ctx, ends, i32::from(me == to))? else {
        let both = (me == from && me == to).then(|| channel_of("the stream", depth, site));
        let ends = both.map(|(put, take)| {
            (StreamSender(Out::Here(put)), StreamReceiver { values: take, carrier: None })
        });
        return Ok(ends.unzip());
    };
    let about =
        |name: String| Some(Box::new(About { name: Some(name.into()), ..About::default() }));
    let (group, depth) = (group_of(ctx.internals()), depth.max(1));
    if me == from {
        let cycles = comm.internals().cycles_told();
        let wire = Wire { comm, site, room: depth, closed: None, ended: false };
        let wire = Arc::new(Lock::new("the stream", site, wire)?);
        let (open, closed) = channel_of("the stream", 1, site);
        let its = wire.clone();
        let closes = Once(move || close(&closed, &its, cycles));
        let closes = Task::put(group, (site, about(format!("stream to rank {to}"))), closes);
        let mouth = Mouth { wire, _open: open, _closes: closes };
        return Ok((Some(StreamSender(Out::There(Arc::new(mouth)))), None));
    }
    let (put, take) = channel_of("the stream", depth, site);
    let carries = Once(move || carry(put, (&comm, depth, site)));
    let carrier = Task::put(group, (site, about(format!("stream from rank {from}"))), carries);
    Ok((None, Some(StreamReceiver { values: take, carrier: Some(Arc::new(carrier)) })))
}

impl<T> Clone for StreamSender<T> {
    fn clone(&self) -> StreamSender<T> {
        StreamSender(match &self.0 {
            Out::Here(values) => Out::Here(values.clone()),
            Out::There(mouth) => Out::There(mouth.clone()),
        })
    }
}

impl<T> Clone for StreamReceiver<T> {
    fn clone(&self) -> StreamReceiver<T> {
        StreamReceiver { values: self.values.clone(), carrier: self.carrier.clone() }
    }
}

impl<T> fmt::Debug for StreamSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for StreamReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReceiver").finish_non_exhaustive()
    }
}
