//! The connections of the detectors: a star around that of process 0, or, where processes go on
//! when others fail, one between any two.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acceptor::{Acceptor, Bounds, await_any, descriptor};
use super::address::{Invitation, address, any_address, invite, invite_all};
use super::wire::{Connection, DetectorMessage, Key, greeting, who};
use crate::error::{Error, Result};
use crate::transport::fabric::Fabric;

/// How long all may take to connect to each other.
const JOIN: Duration = Duration::from_secs(5);

/// What a detector hears.
pub(super) enum Event {
    Received(usize, DetectorMessage),
    /// The connection to a process has broken.
    Gone(usize),
}

/// Wakes the detector.
pub(super) struct Waker(SocketAddr, UdpSocket);

impl Waker {
    pub(super) fn wake(&self) {
        // If it does not come, the detector wakes by itself a little later.
        let _ = self.1.send_to(&[0], self.0);
    }
}

/// One detector's connections.
pub(super) struct Net {
    fabric: Arc<dyn Fabric>,
    key: Key,
    processes: usize,
    bell: UdpSocket,
    acceptor: Option<Acceptor<20>>,
    peers: BTreeMap<usize, Connection>,
}

impl Net {
    /// Joins the detectors of all processes, which call it together: any two, or each to process 0.
    pub(super) fn join(fabric: &Arc<dyn Fabric>) -> Result<(Net, Waker)> {
        let (process, processes) = (fabric.process(), fabric.processes());
        let system = |error| Error::system("opening the failure detector's sockets", error);
        let bell = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?;
        let ringer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?;
        // Nobody else's datagrams wake it.
        bell.connect(ringer.local_addr().map_err(system)?).map_err(system)?;
        let waker = Waker(bell.local_addr().map_err(system)?, ringer);
        let one_host = fabric.hosts().iter().all(|host| *host == fabric.hosts()[0]);
        let all = fabric.survives();
        let mut own = Invitation::default();
        let mut acceptor = None;
        if all || process == 0 {
            let any = if one_host { Ipv4Addr::LOCALHOST.into() } else { any_address() };
            let made = TcpListener::bind((any, 0)).map_err(system)?;
            own = Invitation::new(made.local_addr().map_err(system)?.port());
            acceptor = Some(Acceptor::new(made, Bounds::PATIENT).map_err(system)?);
        }
        let hosts = if all { process } else { process.min(1) };
        let invitations = if all { invite_all(fabric, own)? } else { vec![invite(fabric, own)?] };
        let (key, peers) = (invitations[0].key, BTreeMap::new());
        let mut net = Net { fabric: fabric.clone(), key, processes, bell, acceptor, peers };
        for (host, invitation) in invitations.iter().enumerate().take(hosts) {
            let near = fabric.hosts()[process] == fabric.hosts()[host];
            let mut stream = address(invitation, host, near)?;
            stream.greet(&greeting(key, process)).map_err(system)?;
            net.connect(host, stream);
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
            if start.elapsed() > JOIN {
                return Err(Error::boot(format!(
                    "the failure detectors of {} of {} processes have not connected to this one's within \
                     {JOIN:?}; the job's hosts must be able to connect to each other over TCP, \
                     at any port",
                    self.processes - 1 - self.peers.len(),
                    self.processes
                )));
            }
            self.wait(Duration::from_millis(100));
        }
        Ok(())
    }

    pub(super) fn send(&mut self, process: usize, word: &DetectorMessage) {
        let Some(peer) = self.peers.get_mut(&process) else { return };
        if peer.send(word).is_err() {
            // That it is gone is seen when it is listened to, which is at once.
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn send_to_all(&mut self, word: &DetectorMessage) {
        let all: Vec<usize> = self.peers.keys().copied().collect();
        all.into_iter().for_each(|process| self.send(process, word));
    }

    /// Ends the connection to a process; whether there was one.
    pub(super) fn disconnect(&mut self, process: usize) -> bool {
        self.peers.remove(&process).is_some()
    }

    /// Waits until something happens, or this time is over.
    pub(super) fn wait(&mut self, limit: Duration) -> Vec<Event> {
        let acceptor = self.acceptor.as_ref().and_then(Acceptor::patience);
        let ready = self.poll(acceptor.map_or(limit, |patience| patience.min(limit)));
        let mut drained = [0; 16];
        if ready.bell {
            let _ = self.bell.recv(&mut drained);
        }
        let mut events = Vec::new();
        for process in ready.peers {
            let Some(peer) = self.peers.get_mut(&process) else { continue };
            match peer.receive() {
                Ok(words) => {
                    events.extend(words.into_iter().map(|word| Event::Received(process, word)))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.peers.remove(&process);
                    events.push(Event::Gone(process));
                }
            }
        }
        self.admit();
        events
    }

    /// Lets those in who know the secret.
    fn admit(&mut self) {
        let (key, processes) = (self.key, self.processes);
        let Some(acceptor) = &mut self.acceptor else { return };
        let mut admitted = Vec::new();
        for (stream, greeting) in acceptor.admit(|greeting| who(greeting, key, processes).is_some())
        {
            let Some(process) = who(&greeting, key, processes) else { continue };
            admitted.extend(Connection::new(stream).map(|peer| (process, peer)));
        }
        admitted.into_iter().for_each(|(process, peer)| self.connect(process, peer));
    }

    fn connect(&mut self, process: usize, peer: Connection) {
        self.fabric.connected(process, &peer.stream);
        self.peers.insert(process, peer);
    }
}

/// What has something to be read.
#[derive(Default)]
struct Ready {
    bell: bool,
    peers: Vec<usize>,
}

impl Net {
    fn poll(&self, limit: Duration) -> Ready {
        let mut descriptors = vec![descriptor(&self.bell)];
        descriptors.extend(self.peers.values().map(|peer| descriptor(&peer.stream)));
        // Who is at the door is looked at in any case.
        descriptors.extend(self.acceptor.iter().flat_map(Acceptor::descriptors));
        let mut ready = await_any(&descriptors, Some(limit)).into_iter();
        let mut next = || ready.next().unwrap_or(false);
        let bell = next();
        let peers = self.peers.keys().copied().filter(|_| next()).collect();
        Ready { bell, peers }
    }
}
