//! How a detector tells `spmdrun` what has stopped the job, as an MPI launcher may wait for ever
//! for a host that has fallen silent, and must be ended then.
//!
//! `spmdrun` listens, on this host alone if the job is, and has the job's environment say where,
//! with a secret. Whoever knows that says it, and what it has found. Nothing is answered; what
//! those may cost who do not know it, `acceptor.rs` says.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use parking_lot::Mutex;

use super::acceptor::{Acceptor, Bounds, await_any, same};
use super::address::{addresses, any_address, secret};
use crate::environment::variables;
use crate::error::{Error, Result};

/// How long it may take to reach `spmdrun`, and whoever knows the secret to say the next piece.
const REACH: Duration = Duration::from_secs(1);
/// How often to try to reach it: while strangers fill the system's queue of connections, or the
/// machine is busy, some do not get through.
const TRIES: usize = 10;
/// Bytes of the secret, and of what is said at most.
const KEY: usize = 32;
const MOST: u64 = 64 << 10;

/// The end of `spmdrun`.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Alarm {
    acceptor: Mutex<Acceptor<KEY>>,
    port: u16,
    near: bool,
    key: String,
}

impl Alarm {
    /// For a job that is on this host alone, if it is `near`.
    ///
    /// Errors: the system gives no socket.
    pub fn new(near: bool) -> Result<Alarm> {
        let failed = |error| Error::system("listening to the job's failure detectors", error);
        let address = if near { Ipv4Addr::LOCALHOST.into() } else { any_address() };
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let acceptor = Mutex::new(Acceptor::new(listener, Bounds::BRISK).map_err(failed)?);
        Ok(Alarm { acceptor, port, near, key: format!("{:016x}{:016x}", secret(), secret()) })
    }

    /// What [`variables::ALARM`] is to say in the job's environment: the secret, and all addresses
    /// at which this may be reached.
    pub fn place(&self) -> String {
        let mut all: Vec<IpAddr> =
            addresses().into_iter().map(|it| IpAddr::from(it).to_canonical()).collect();
        if self.near || all.is_empty() {
            all = vec![Ipv4Addr::LOCALHOST.into()];
        }
        let all =
            all.into_iter().map(|address| format!(",{}", SocketAddr::new(address, self.port)));
        self.key.clone() + &all.collect::<String>()
    }

    /// Waits until a detector says what has stopped the job: for ever, if none does.
    pub fn wait(&self) -> String {
        let mut acceptor = self.acceptor.lock();
        loop {
            await_any(&acceptor.descriptors(), acceptor.patience());
            let known = acceptor.admit(|key| same(key, self.key.as_bytes()));
            if let Some(text) = known.into_iter().find_map(|(stream, _)| receive(stream)) {
                return text;
            }
        }
    }
}

/// What is said by who knows the secret; what has come of it, if it is broken off.
fn receive(stream: TcpStream) -> Option<String> {
    stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(REACH))).ok()?;
    let mut text = Vec::new();
    let _ = stream.take(MOST).read_to_end(&mut text);
    (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// How a process says it that was to become a rank of the job.
pub const NOT_STARTED: &str = "a rank could not be started: ";

/// Says to the `spmdrun` that has started this process's job why it does not become a rank of that: no
/// detector runs yet, and others might wait for it. Returns whether it is said.
pub fn raise_alarm(why: &str) -> bool {
    let said = |launcher: Launcher| launcher.notify(&format!("{NOT_STARTED}{why}")).recv().is_ok();
    Launcher::find().is_some_and(said)
}

/// `spmdrun`, as the detectors reach it.
pub(super) struct Launcher {
    key: String,
    places: Vec<SocketAddr>,
}

impl Launcher {
    /// As the environment says; none if something else has started the job.
    pub(super) fn find() -> Option<Launcher> {
        Launcher::parse(&std::env::var(variables::ALARM).ok()?)
    }

    fn parse(text: &str) -> Option<Launcher> {
        let (key, places) = text.split_once(',')?;
        let places = places.split(',').map(|place| place.parse().ok()).collect::<Option<_>>()?;
        Some(Launcher { key: key.to_owned(), places })
    }

    /// Says what has stopped the job, at all addresses together, as some may not be reached. It
    /// does not wait for that; what it gives hears when it is said, or cannot be.
    pub(super) fn notify(&self, what: &str) -> Receiver<()> {
        let (says, said) = mpsc::channel();
        for &place in &self.places {
            let (text, says) = (format!("{}{what}", self.key), says.clone());
            let tell = move || {
                let stream = TcpStream::connect_timeout(&place, REACH);
                stream.and_then(|mut stream| stream.write_all(text.as_bytes()))
            };
            // If it cannot be told, its user ends the job, as without it.
            let tell = move || {
                if (0..TRIES).any(|_| tell().is_ok()) {
                    let _ = says.send(());
                }
            };
            let _ = std::thread::Builder::new().name("spmd alarm".into()).spawn(tell);
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::fault::{Cause, Fault};

    #[test]
    fn only_who_knows_the_secret_is_heard() {
        let alarm = Alarm::new(true).expect("sockets can be made");
        let place = alarm.place();
        let fault = Fault::Rank { rank: 2, cause: Cause::Lost };
        let launcher = Launcher::parse(&place).expect("it says where");
        assert!(Launcher::parse("").is_none() && Launcher::parse("key,nowhere").is_none());
        let stranger = Launcher { key: "0".repeat(KEY), places: launcher.places.clone() };
        let wrong = Fault::Rank { rank: 3, cause: Cause::Lost };
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| alarm.wait());
            stranger.notify(&wrong.to_string());
            // Those that say nothing at all do not keep others out for long.
            let connect = |_| TcpStream::connect(launcher.places[0]).expect("it listens");
            let _silent: Vec<TcpStream> = (0..2 * Bounds::BRISK.places).map(connect).collect();
            assert!(launcher.notify(&fault.to_string()).recv().is_ok());
            assert_eq!(heard.join().expect("it does not panic"), fault.to_string());
        });
    }

    #[test]
    fn it_is_told_although_no_connection_gets_through_at_first() {
        let alarm = Alarm::new(true).expect("sockets can be made");
        let fault = Fault::Rank { rank: 2, cause: Cause::Lost };
        let launcher = Launcher::parse(&alarm.place()).expect("it says where");
        let connect = || TcpStream::connect_timeout(&launcher.places[0], REACH / 10).ok();
        let _silent: Vec<TcpStream> = std::iter::from_fn(connect).collect();
        launcher.notify(&fault.to_string());
        thread::sleep(REACH + REACH / 5);
        let (says, heard) = mpsc::channel();
        thread::spawn(move || says.send(alarm.wait()));
        let heard = heard.recv_timeout(20 * REACH).expect("it is told");
        assert_eq!(heard, fault.to_string());
    }
}
