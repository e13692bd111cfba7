//! What detectors tell each other, over TCP.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::peer_status::AgreementKey;
use super::acceptor::same;
use super::begun::BlockRound;
use super::state::{MOST, ProcessState};
use crate::fault::Fault;

/// A secret of the job, without which nothing is answered.
pub(super) type Key = [u64; 2];

/// What a connection begins with: the secret, and which process it is.
pub(super) type Greeting = [u8; 20];

pub(super) fn greeting(key: Key, process: usize) -> Greeting {
    let mut bytes = Greeting::default();
    bytes[..8].copy_from_slice(&key[0].to_le_bytes());
    bytes[8..16].copy_from_slice(&key[1].to_le_bytes());
    bytes[16..].copy_from_slice(&(process as u32).to_le_bytes());
    bytes
}

/// Who says this greeting, if it is one of so many processes that know the secret.
pub(super) fn who(greeting: &Greeting, key: Key, processes: usize) -> Option<usize> {
    let (said, process) = greeting.split_last_chunk()?;
    let process = u32::from_le_bytes(*process) as usize;
    let knows = same(said, &self::greeting(key, 0)[..16]);
    (knows && process < processes).then_some(process)
}

/// One thing said.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DetectorMessage {
    /// The ranks of this process enter this block, counted from 1.
    Entered(u64),
    /// Something in this process has waited for a while.
    Waiting,
    /// How do things stand? Answered with the same number.
    Ask(u64),
    /// The answer.
    ProcessState(u64, ProcessState),
    /// This has stopped the job.
    Fault(Fault),
    /// This ends the process that says it, of those that may go on without it.
    Failed(Fault),
    /// The ranks of this process have left this block.
    Left(u64),
    /// This process is about to agree on something with the others of a communicator.
    Ready(AgreementKey),
    /// This process has lost its connection to that one.
    Lost(usize),
    /// That process has lost its connection to the one that is told this.
    LostBy(usize),
    /// Have all processes begun this round?
    AskForRound(BlockRound),
    /// That process asks whether the one that is told this has begun the round.
    TellOfRound(usize, BlockRound),
    /// This process has begun the round for which that one has asked.
    HasBegun(usize),
    /// All have begun the round for which the one that is told this has asked.
    AllHaveBegun,
}

/// How long a host may be silent, asked every second, until it counts as gone. Its system answers,
/// whatever its processes do, so it has not answered twice at least. Who waits for it asks within a
/// second, at the second look; with the time that ranks then have to come to their end, that makes
/// less than five seconds.
#[cfg(target_os = "linux")]
const SILENCE: Duration = Duration::from_millis(2250);

/// One end of a connection.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    came: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        end_in_silence(&stream)?;
        Ok(Connection { stream, came: Vec::new() })
    }

    pub(super) fn greet(&mut self, greeting: &Greeting) -> io::Result<()> {
        self.stream.write_all(greeting)
    }

    /// After an error, nothing can be said any more: a part of the word may be on its way.
    pub(super) fn send(&mut self, word: &DetectorMessage) -> io::Result<()> {
        let bytes = postcard::to_allocvec(word).map_err(io::Error::other)?;
        let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&bytes);
        self.stream.write_all(&frame)
    }

    /// Reads once, which does not block if something has come, and gives the words that are
    /// complete. An error if the other end is gone or says what is no word.
    pub(super) fn receive(&mut self) -> io::Result<Vec<DetectorMessage>> {
        let mut room = [0; 16 << 10];
        let bytes = self.stream.read(&mut room)?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.came.extend_from_slice(&room[..bytes]);
        words(&mut self.came)
    }
}

/// Takes the words that are complete from what has come.
pub(super) fn words(came: &mut Vec<u8>) -> io::Result<Vec<DetectorMessage>> {
    let mut words = Vec::new();
    while let Some((length, rest)) = came.split_at_checked(4) {
        let length = u32::from_le_bytes(length.try_into().expect("4 bytes")) as usize;
        if length > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(word) = rest.get(..length) else { break };
        words.push(postcard::from_bytes(word).map_err(io::Error::other)?);
        came.drain(..4 + length);
    }
    Ok(words)
}

/// Has the system end a connection to a host from which nothing comes any more: it asks by itself
/// whether that is still there.
#[cfg(target_os = "linux")]
fn end_in_silence(stream: &TcpStream) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let ask = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, SILENCE.as_millis() as libc::c_int),
    ];
    for (level, name, value) in ask {
        let value: libc::c_int = value;
        // SAFETY: the descriptor is open, and the option an integer that is read during the call.
        let set = unsafe {
            let (value, size) = ((&raw const value).cast(), size_of_val(&value) as _);
            libc::setsockopt(stream.as_raw_fd(), level, name, value, size)
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Elsewhere that takes as long as the system is set to.
#[cfg(not(target_os = "linux"))]
fn end_in_silence(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_says_who_it_is_to_those_with_the_same_secret() {
        let key = [7, 1 << 60];
        assert_eq!(who(&greeting(key, 3), key, 4), Some(3));
        assert_eq!(who(&greeting(key, 4), key, 4), None);
        assert_eq!(who(&greeting([7, 1], 3), key, 4), None);
        assert_eq!(who(&Greeting::default(), key, 4), None);
    }
}
