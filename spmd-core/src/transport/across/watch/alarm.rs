//! How a watch tells `spmdrun` what has stopped the job, as an MPI launcher may wait for ever for a
//! host that has fallen silent, and must be ended then.
//!
//! `spmdrun` listens, and has the job's environment say where, with a secret. Whoever knows that
//! says it, and what it has found. Nothing is answered.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::reach::{addresses, any_address, secret};
use crate::boot::variables;
use crate::error::{Error, Result};
use crate::fault::Fault;

/// How long it may take to reach `spmdrun`, and each of the two to say or hear something.
const REACH: Duration = Duration::from_secs(1);
/// Bytes of the secret, and of what is said at most.
const KEY: usize = 32;
const MOST: u64 = 64 << 10;

/// The end of `spmdrun`.
pub struct Alarm {
    listener: TcpListener,
    key: String,
}

impl Alarm {
    /// Errors: the system gives no socket.
    pub fn new() -> Result<Alarm> {
        let listener = TcpListener::bind((any_address(), 0));
        let listener =
            listener.map_err(|error| Error::system("listening to the job's watches", error))?;
        Ok(Alarm { listener, key: format!("{:016x}{:016x}", secret(), secret()) })
    }

    /// What [`variables::ALARM`] is to say in the job's environment: the secret, and all addresses
    /// at which this may be reached.
    ///
    /// Errors: the system does not tell the port.
    pub fn place(&self) -> Result<String> {
        let own = self.listener.local_addr();
        let port = own.map_err(|error| Error::system("asking for a port", error))?.port();
        let mut all: Vec<IpAddr> =
            addresses().into_iter().map(|it| IpAddr::from(it).to_canonical()).collect();
        if all.is_empty() {
            all.push(Ipv4Addr::LOCALHOST.into());
        }
        let all = all.into_iter().map(|address| format!(",{}", SocketAddr::new(address, port)));
        Ok(self.key.clone() + &all.collect::<String>())
    }

    /// Waits until a watch says what has stopped the job: for ever, if none does.
    ///
    /// Errors: the system takes no connection.
    pub fn wait(&self) -> std::io::Result<String> {
        loop {
            let (mut stream, _) = self.listener.accept()?;
            if let Ok(Some(text)) = self.hear(&mut stream) {
                return Ok(text);
            }
        }
    }

    /// What is said by who knows the secret.
    fn hear(&self, stream: &mut TcpStream) -> std::io::Result<Option<String>> {
        stream.set_read_timeout(Some(REACH))?;
        let (mut key, mut text) = ([0; KEY], Vec::new());
        stream.read_exact(&mut key)?;
        if key != self.key.as_bytes() {
            return Ok(None);
        }
        stream.take(MOST).read_to_end(&mut text)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }
}

/// `spmdrun`, as the watches reach it.
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

    /// Says what has stopped the job, at all addresses together, as some may not be reached. It does
    /// not wait for that.
    pub(super) fn tell(&self, fault: &Fault) {
        for &place in &self.places {
            let text = format!("{}{fault}", self.key);
            let tell = move || {
                // If it cannot be told, its user ends the job, as without it.
                let stream = TcpStream::connect_timeout(&place, REACH);
                let _ = stream.and_then(|mut stream| stream.write_all(text.as_bytes()));
            };
            let _ = std::thread::Builder::new().name("spmd alarm".into()).spawn(tell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Cause;

    #[test]
    fn only_who_knows_the_secret_is_heard() {
        let alarm = Alarm::new().expect("sockets can be made");
        let place = alarm.place().expect("it has a port");
        let fault = Fault::Rank { rank: 2, cause: Cause::Lost };
        let launcher = Launcher::parse(&place).expect("it says where");
        assert!(Launcher::parse("").is_none() && Launcher::parse("key,nowhere").is_none());
        let stranger = Launcher { key: "0".repeat(KEY), places: launcher.places.clone() };
        let wrong = Fault::Rank { rank: 3, cause: Cause::Lost };
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| alarm.wait());
            stranger.tell(&wrong);
            // One that says nothing at all does not keep others out for long.
            let _silent = TcpStream::connect(launcher.places[0]).expect("it listens");
            launcher.tell(&fault);
            let heard = heard.join().expect("it does not panic").expect("it has been told");
            assert_eq!(heard, fault.to_string());
        });
    }
}
