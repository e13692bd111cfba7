//! Where connections come in: those of peers, which know the job's secret, and those of strangers.
//!
//! Who has connected says a greeting of fixed length, which begins with the secret. Before it is
//! complete and right, nothing is understood and no more than that is read. Whatever strangers do,
//! they cost this process at most
//!
//! - [`Bounds::places`] descriptors at a time, and as many greetings of memory;
//! - [`Bounds::deadline`] for each, from its accept on, however it trickles;
//! - `places / stay` accepts in a unit of time: a place is free again when `stay` is over, even if
//!   who was there has been sent away before. When all are taken, the one that has been there for
//!   the longest goes, but not before `stay`, in which the greeting of a peer comes: it is sent
//!   along with the connection. Others wait at the system's door meanwhile.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What strangers may cost.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) places: usize,
    pub(super) deadline: Duration,
    pub(super) stay: Duration,
}

impl Bounds {
    /// For peers of which none may be lost, even if a packet of its greeting is.
    pub(super) const PATIENT: Bounds =
        Bounds { places: 64, deadline: Duration::from_secs(5), stay: Duration::from_millis(500) };
    /// For peers that have little time, and say the same several times.
    pub(super) const BRISK: Bounds = Bounds { stay: Duration::from_millis(50), ..Bounds::PATIENT };
}

/// A listener, and who has not yet said a greeting of `N` bytes.
pub(super) struct Acceptor<const N: usize> {
    listener: TcpListener,
    bounds: Bounds,
    /// In the order in which they came.
    places: Vec<PendingConnection<N>>,
    /// Until when the system gives no connections, as it said by an error.
    closed: Option<Instant>,
}

struct PendingConnection<const N: usize> {
    /// None once it was sent away.
    stream: Option<TcpStream>,
    since: Instant,
    came: [u8; N],
    bytes: usize,
}

impl<const N: usize> Acceptor<N> {
    /// Errors: the listener cannot be asked without waiting.
    pub(super) fn new(listener: TcpListener, bounds: Bounds) -> io::Result<Acceptor<N>> {
        listener.set_nonblocking(true)?;
        Ok(Acceptor { listener, bounds, places: Vec::new(), closed: None })
    }

    /// What to listen to: the listener, while it is open, and who stands at the door.
    pub(super) fn descriptors(&self) -> Vec<Descriptor> {
        let listener = self.is_open().then(|| descriptor(&self.listener));
        let strangers = self.places.iter().filter_map(|place| place.stream.as_ref());
        listener.into_iter().chain(strangers.map(descriptor)).collect()
    }

    /// How long there is nothing to do for the door unless something comes.
    pub(super) fn patience(&self) -> Option<Duration> {
        let stay = self.bounds.stay;
        let oldest = self.places.first().map(|place| {
            let age = place.since.elapsed();
            // Then it gives way to one more, or else goes at the deadline.
            let until = if self.is_full() && age < stay { stay } else { self.bounds.deadline };
            until.saturating_sub(age)
        });
        let closed = self.closed.map(|until| until.saturating_duration_since(Instant::now()));
        oldest.into_iter().chain(closed).min()
    }

    fn is_full(&self) -> bool {
        self.places.len() >= self.bounds.places
    }

    /// Whether one more may come in.
    fn is_open(&self) -> bool {
        let stays = |place: &PendingConnection<N>| place.since.elapsed() < self.bounds.stay;
        self.closed.is_none_or(|until| until <= Instant::now())
            && !(self.is_full() && self.places.first().is_some_and(stays))
    }

    /// Looks at who has come and what was said, and gives those who are `known` by their greeting.
    pub(super) fn admit(&mut self, known: impl Fn(&[u8; N]) -> bool) -> Vec<(TcpStream, [u8; N])> {
        let mut admitted = Vec::new();
        self.receive_all(&known, &mut admitted);
        self.forget();
        // Not more than have places: other work must not wait for strangers.
        for _ in 0..self.bounds.places {
            if !self.is_open() {
                break;
            }
            let Some(stream) = self.accept() else { break };
            if self.is_full() {
                self.places.remove(0);
            }
            let (since, came) = (Instant::now(), [0; N]);
            self.places.push(PendingConnection { stream: Some(stream), since, came, bytes: 0 });
        }
        self.receive_all(&known, &mut admitted);
        admitted
    }

    /// The next connection, if there is one. An error is one of a connection that has gone again,
    /// or says that the system has no descriptor or no memory for it: that may pass.
    fn accept(&mut self) -> Option<TcpStream> {
        self.closed = None;
        let error = match self.listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => return Some(stream),
            Ok(_) => return None,
            Err(error) => error,
        };
        let harmless = [
            io::ErrorKind::WouldBlock,
            io::ErrorKind::Interrupted,
            io::ErrorKind::ConnectionAborted,
        ];
        if !harmless.contains(&error.kind()) {
            self.closed = Some(Instant::now() + self.bounds.stay);
        }
        None
    }

    /// Hears those at the door.
    fn receive_all(
        &mut self,
        known: &impl Fn(&[u8; N]) -> bool,
        admitted: &mut Vec<(TcpStream, [u8; N])>,
    ) {
        self.places.retain_mut(|place| match place.receive() {
            Received::Nothing => true,
            Received::Greeting if known(&place.came) => {
                let stream = place.stream.take();
                admitted.extend(stream.map(|stream| (stream, place.came)));
                false
            }
            Received::Greeting | Received::End => {
                place.stream = None;
                true
            }
        });
    }

    /// Sends away those whose time is over.
    fn forget(&mut self) {
        let Bounds { deadline, stay, .. } = self.bounds;
        self.places.retain(|place| {
            let limit = if place.stream.is_some() { deadline } else { stay };
            place.since.elapsed() < limit
        });
    }
}

enum Received {
    Nothing,
    Greeting,
    /// It has gone, or was sent away.
    End,
}

impl<const N: usize> PendingConnection<N> {
    /// Reads what is left of the greeting, as far as it has come.
    fn receive(&mut self) -> Received {
        let Some(stream) = &mut self.stream else { return Received::End };
        while self.bytes < N {
            match stream.read(&mut self.came[self.bytes..]) {
                Ok(0) => return Received::End,
                Ok(bytes) => self.bytes += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Received::Nothing;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Received::End,
            }
        }
        Received::Greeting
    }
}

/// What the system waits for.
#[cfg(unix)]
pub(super) type Descriptor = std::os::fd::RawFd;
#[cfg(not(unix))]
pub(super) type Descriptor = ();

#[cfg(unix)]
pub(super) fn descriptor(socket: &impl std::os::fd::AsRawFd) -> Descriptor {
    socket.as_raw_fd()
}

#[cfg(not(unix))]
pub(super) fn descriptor<T>(_: &T) -> Descriptor {}

/// Waits until there is something on one of these, or the time is over; for each, whether there is.
#[cfg(unix)]
pub(super) fn await_any(descriptors: &[Descriptor], limit: Option<Duration>) -> Vec<bool> {
    let entry = |fd: &_| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut fds: Vec<_> = descriptors.iter().map(entry).collect();
    // One millisecond more: a wait is cut to whole ones.
    let limit = limit.map_or(-1, |limit| i32::try_from(limit.as_millis() + 1).unwrap_or(i32::MAX));
    // SAFETY: the array has as many entries as are said, of descriptors that are open.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, limit) };
    fds.iter().map(|entry| entry.revents != 0).collect()
}

/// Elsewhere there are no worlds for which it matters how long that takes.
#[cfg(not(unix))]
pub(super) fn await_any(descriptors: &[Descriptor], limit: Option<Duration>) -> Vec<bool> {
    let pause = Duration::from_millis(20);
    std::thread::sleep(limit.map_or(pause, |limit| limit.min(pause)));
    vec![true; descriptors.len()]
}

/// Whether two secrets are the same, in a time that does not tell how much of them is.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    let pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.fold(0, |sum, (one, other)| sum | (one ^ other)) == 0
}

#[cfg(all(test, unix))]
mod tests;
