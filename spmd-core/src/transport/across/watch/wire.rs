//! What watches tell each other, over TCP.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::state::State;
use crate::fault::Fault;

/// A secret of the job, without which nothing is answered.
pub(super) type Key = [u64; 2];

/// One thing said.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// The first word of a connection: the secret, and who says it.
    Hello(Key, u32),
    /// The ranks of this process enter this block, counted from 1.
    Entered(u64),
    /// Something in this process has waited for a while.
    Waiting,
    /// How do things stand? Answered with the same number.
    Ask(u64),
    /// The answer.
    State(u64, State),
    /// This has stopped the job.
    Fault(Fault),
}

/// Most bytes of a word: a state with thousands of waits is cut to that.
const MOST: usize = 8 << 20;

/// One end of a connection.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    came: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        Ok(Connection { stream, came: Vec::new() })
    }

    pub(super) fn say(&mut self, word: &Word) -> io::Result<()> {
        let bytes = postcard::to_allocvec(word).map_err(io::Error::other)?;
        let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&bytes);
        self.stream.write_all(&frame)
    }

    /// Reads once, which does not block if something has come, and gives the words that are
    /// complete. An error if the other end is gone or says what is no word.
    pub(super) fn hear(&mut self) -> io::Result<Vec<Word>> {
        let mut room = [0; 16 << 10];
        let bytes = self.stream.read(&mut room)?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.came.extend_from_slice(&room[..bytes]);
        let mut words = Vec::new();
        while let Some((length, rest)) = self.came.split_at_checked(4) {
            let length = u32::from_le_bytes(length.try_into().expect("4 bytes")) as usize;
            if length > MOST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some(word) = rest.get(..length) else { break };
            words.push(postcard::from_bytes(word).map_err(io::Error::other)?);
            self.came.drain(..4 + length);
        }
        Ok(words)
    }
}
