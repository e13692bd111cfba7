//! The connections of the watches: a star around that of process 0.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::wire::{Connection, Key, Word};
use crate::error::{Error, Result};
use crate::transport::fabric::{Fabric, Step};

/// How long a stranger may take to say who it is.
const STRANGER: Duration = Duration::from_secs(5);
/// Strangers at a time.
const STRANGERS: usize = 4096;
/// How long it may take to reach process 0 at one of its addresses.
const REACH: Duration = Duration::from_secs(3);
/// Addresses that a process tells of itself.
const ADDRESSES: usize = 8;

/// What a watch hears.
pub(super) enum Event {
    Said(usize, Word),
    /// The connection to a process has broken.
    Gone(usize),
}

/// Wakes the watch.
pub(super) struct Waker(SocketAddr, UdpSocket);

impl Waker {
    pub(super) fn wake(&self) {
        // If it does not come, the watch wakes by itself a little later.
        let _ = self.1.send_to(&[0], self.0);
    }
}

/// One watch's connections.
pub(super) struct Net {
    key: Key,
    processes: usize,
    bell: UdpSocket,
    listener: Option<TcpListener>,
    peers: BTreeMap<usize, Connection>,
    strangers: Vec<(Connection, Instant)>,
}

/// What process 0 tells all.
#[derive(Clone, Copy)]
#[repr(C)]
struct Invitation {
    key: Key,
    port: u64,
    addresses: [[u8; 16]; ADDRESSES],
}

impl Net {
    /// Joins the watches of all processes, which call it together.
    pub(super) fn join(fabric: &Arc<dyn Fabric>) -> Result<(Net, Waker)> {
        let system = |error| Error::system("opening the watch's sockets", error);
        let bell = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?;
        let ringer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?;
        let waker = Waker(bell.local_addr().map_err(system)?, ringer);
        let one_host = fabric.hosts().iter().all(|host| *host == fabric.hosts()[0]);
        let mut invitation = Invitation { key: [0; 2], port: 0, addresses: [[0; 16]; ADDRESSES] };
        let mut listener = None;
        if fabric.process() == 0 {
            let any = if one_host { Ipv4Addr::LOCALHOST.into() } else { any_address() };
            let made = TcpListener::bind((any, 0)).map_err(system)?;
            invitation.key = [secret(), secret()];
            invitation.port = made.local_addr().map_err(system)?.port().into();
            let own = addresses();
            invitation.addresses.iter_mut().zip(own).for_each(|(place, it)| *place = it.octets());
            listener = Some(made);
        }
        let (memory, bytes) = ((&raw mut invitation).cast(), size_of::<Invitation>());
        // SAFETY: it is plain words, the same on all processes, and held here.
        unsafe { fabric.world().run(Step::Broadcast { root: 0, memory, bytes })? };
        let (peers, strangers) = Default::default();
        let (key, processes) = (invitation.key, fabric.processes());
        let mut net = Net { key, processes, bell, listener, peers, strangers };
        if fabric.process() != 0 {
            let near = fabric.hosts()[fabric.process()] == fabric.hosts()[0];
            let mut stream = reach(&invitation, near)?;
            let hello = Word::Hello(invitation.key, fabric.process() as u32);
            stream.say(&hello).map_err(system)?;
            net.peers.insert(0, stream);
        }
        Ok((net, waker))
    }

    pub(super) fn say(&mut self, process: usize, word: &Word) {
        let Some(peer) = self.peers.get_mut(&process) else { return };
        // That it is gone is seen when it is listened to.
        let _ = peer.say(word);
    }

    pub(super) fn say_to_all(&mut self, word: &Word) {
        let all: Vec<usize> = self.peers.keys().copied().collect();
        all.into_iter().for_each(|process| self.say(process, word));
    }

    /// Waits until something happens, or this time is over.
    pub(super) fn wait(&mut self, limit: Duration) -> Vec<Event> {
        let ready = self.poll(limit);
        let mut drained = [0; 16];
        if ready.bell {
            let _ = self.bell.recv(&mut drained);
        }
        if ready.listener {
            self.greet();
        }
        let mut events = Vec::new();
        for process in ready.peers {
            let Some(peer) = self.peers.get_mut(&process) else { continue };
            match peer.hear() {
                Ok(words) => {
                    events.extend(words.into_iter().map(|word| Event::Said(process, word)))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.peers.remove(&process);
                    events.push(Event::Gone(process));
                }
            }
        }
        self.admit(&ready.strangers, &mut events);
        events
    }

    /// Takes a connection, which has still to say who it is.
    fn greet(&mut self) {
        let accepted = self.listener.as_ref().map(TcpListener::accept);
        let Some(Ok((stream, _))) = accepted else { return };
        if let (true, Ok(stranger)) = (self.strangers.len() < STRANGERS, Connection::new(stream)) {
            self.strangers.push((stranger, Instant::now()));
        }
    }

    /// Listens to strangers, and lets those in who know the secret.
    fn admit(&mut self, ready: &[usize], events: &mut Vec<Event>) {
        let strangers = std::mem::take(&mut self.strangers);
        for (index, (mut stranger, since)) in strangers.into_iter().enumerate() {
            if !ready.contains(&index) {
                if since.elapsed() < STRANGER {
                    self.strangers.push((stranger, since));
                }
                continue;
            }
            let Ok(words) = stranger.hear() else { continue };
            let mut words = words.into_iter();
            match words.next() {
                None => self.strangers.push((stranger, since)),
                Some(Word::Hello(key, process))
                    if key == self.key && (process as usize) < self.processes =>
                {
                    let process = process as usize;
                    self.peers.insert(process, stranger);
                    events.extend(words.map(|word| Event::Said(process, word)));
                }
                Some(_) => {}
            }
        }
    }
}

/// What has something to be read.
#[derive(Default)]
struct Ready {
    bell: bool,
    listener: bool,
    peers: Vec<usize>,
    strangers: Vec<usize>,
}

impl Net {
    #[cfg(unix)]
    fn poll(&self, limit: Duration) -> Ready {
        use std::os::fd::AsRawFd;
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = vec![entry(self.bell.as_raw_fd())];
        fds.extend(self.listener.iter().map(|it| entry(it.as_raw_fd())));
        fds.extend(self.peers.values().map(|it| entry(it.stream.as_raw_fd())));
        fds.extend(self.strangers.iter().map(|it| entry(it.0.stream.as_raw_fd())));
        // SAFETY: the array has as many entries as are said, of descriptors that are open.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, limit.as_millis() as i32) };
        let mut ready = fds.iter().map(|entry| entry.revents != 0);
        let mut next = || ready.next().unwrap_or(false);
        let bell = next();
        let listener = self.listener.is_some() && next();
        let peers = self.peers.keys().copied().filter(|_| next()).collect();
        let strangers = (0..self.strangers.len()).filter(|_| next()).collect();
        Ready { bell, listener, peers, strangers }
    }

    /// There are no such worlds on other systems.
    #[cfg(not(unix))]
    fn poll(&self, limit: Duration) -> Ready {
        std::thread::sleep(limit);
        Ready::default()
    }
}

/// A connection to process 0.
fn reach(invitation: &Invitation, near: bool) -> Result<Connection> {
    let own = near.then_some(IpAddr::from(Ipv4Addr::LOCALHOST));
    let told = invitation.addresses.iter().filter(|it| **it != [0; 16]);
    let told = told.map(|octets| IpAddr::from(Ipv6Addr::from(*octets)).to_canonical());
    let mut tried = Vec::new();
    for address in own.into_iter().chain(told) {
        let place = SocketAddr::new(address, invitation.port as u16);
        match TcpStream::connect_timeout(&place, REACH).and_then(Connection::new) {
            Ok(connection) => return Ok(connection),
            Err(error) => tried.push(format!("{place}: {error}")),
        }
    }
    Err(Error::Unavailable {
        what: "a connection to the watch of process 0".into(),
        reason: tried.join("; "),
        remedy: "let the job's hosts connect to each other over TCP, at any port".into(),
    })
}

/// The address at which a listener hears all.
fn any_address() -> IpAddr {
    let six = Ipv6Addr::UNSPECIFIED;
    if TcpListener::bind((six, 0)).is_ok() { six.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// This host's addresses, as those of the newer kind.
#[cfg(unix)]
fn addresses() -> Vec<Ipv6Addr> {
    let mut found = Vec::new();
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is made by the system, looked at until its end, and given back once; an
    // address is of the kind that its family says.
    unsafe {
        if libc::getifaddrs(&mut list) != 0 {
            return found;
        }
        let mut entry = list;
        while let Some(it) = entry.as_ref() {
            if let Some(address) = it.ifa_addr.as_ref() {
                match i32::from(address.sa_family) {
                    libc::AF_INET => {
                        let it = it.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                        let bits = u32::from_be(it.sin_addr.s_addr);
                        found.push(Ipv4Addr::from(bits).to_ipv6_mapped());
                    }
                    libc::AF_INET6 => {
                        let it = it.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                        found.push(Ipv6Addr::from(it.sin6_addr.s6_addr));
                    }
                    _ => {}
                }
            }
            entry = it.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    let elsewhere = |it: &Ipv6Addr| {
        let same = IpAddr::from(*it).to_canonical();
        !same.is_loopback() && (it.segments()[0] & 0xffc0) != 0xfe80
    };
    found.retain(elsewhere);
    found
}

#[cfg(not(unix))]
fn addresses() -> Vec<Ipv6Addr> {
    Vec::new()
}

/// A number that nobody can guess.
fn secret() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
