//! The connections of the watches: a star around that of process 0, or, where processes go on when
//! others fail, one between any two.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::reach::{Invitation, any_address, invite, invite_all, reach};
use super::wire::{Connection, Key, Word};
use crate::error::{Error, Result};
use crate::transport::fabric::Fabric;

/// How long a stranger may take to say who it is.
const STRANGER: Duration = Duration::from_secs(5);
/// Strangers at a time.
const STRANGERS: usize = 4096;
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

impl Net {
    /// Joins the watches of all processes, which call it together: any two, or each to process 0.
    pub(super) fn join(fabric: &Arc<dyn Fabric>) -> Result<(Net, Waker)> {
        let (process, processes) = (fabric.process(), fabric.processes());
        let system = |error| Error::system("opening the watch's sockets", error);
        let bell = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?;
        let ringer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?;
        let waker = Waker(bell.local_addr().map_err(system)?, ringer);
        let one_host = fabric.hosts().iter().all(|host| *host == fabric.hosts()[0]);
        let all = fabric.survives();
        let mut own = Invitation::default();
        let mut listener = None;
        if all || process == 0 {
            let any = if one_host { Ipv4Addr::LOCALHOST.into() } else { any_address() };
            let made = TcpListener::bind((any, 0)).map_err(system)?;
            own = Invitation::new(made.local_addr().map_err(system)?.port());
            listener = Some(made);
        }
        let hosts = if all { process } else { process.min(1) };
        let invitations = if all { invite_all(fabric, own)? } else { vec![invite(fabric, own)?] };
        let (peers, strangers) = Default::default();
        let key = invitations[0].key;
        let mut net = Net { key, processes, bell, listener, peers, strangers };
        for (host, invitation) in invitations.iter().enumerate().take(hosts) {
            let near = fabric.hosts()[process] == fabric.hosts()[host];
            let mut stream = reach(invitation, host, near)?;
            stream.say(&Word::Hello(key, process as u32)).map_err(system)?;
            net.peers.insert(host, stream);
        }
        if all {
            net.await_all()?;
        }
        Ok((net, waker))
    }

    /// Waits until all others are connected: a process that fails before would not be missed.
    fn await_all(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.peers.len() + 1 < self.processes {
            if start.elapsed() > STRANGER {
                return Err(Error::Boot(format!(
                    "the watches of {} of {} processes have not connected to this one's within \
                     {STRANGER:?}; the job's hosts must be able to connect to each other over TCP, \
                     at any port",
                    self.processes - 1 - self.peers.len(),
                    self.processes
                )));
            }
            self.wait(Duration::from_millis(100));
        }
        Ok(())
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
