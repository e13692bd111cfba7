//! Payloads: data that go from buffer to buffer once their receiver asks for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use spmd_core::transport::fabric::Started;
use spmd_core::{Error, Result};

use crate::fabric::Loopback;
use crate::net::Net;
use crate::wrong;

/// Sender, receiver and key.
type Key = (usize, usize, u32);

/// Payloads that were given and not taken: each is of a message that its receiver knows, or will.
#[derive(Default)]
pub(crate) struct Payloads(BTreeMap<Key, Payload>);

struct Payload {
    data: Data,
    arrival: Instant,
}

/// Where the data are.
enum Data {
    /// With their sender, who keeps them until they have been taken or it has taken them back.
    There(*const u8, usize),
    /// Copied, as the sender may leave them.
    Copied(Vec<u8>),
}

// SAFETY: the data of another thread are only read, under the lock that their sender takes before it
// leaves them.
unsafe impl Send for Data {}

impl Payloads {
    /// A process has ended: what it has not sent does not come, and nobody takes what is for it.
    pub(crate) fn forget(&mut self, process: usize) {
        self.0.retain(|(from, to, _), _| *from != process && *to != process);
    }
}

impl Loopback {
    /// # Safety
    /// As [`Fabric::give`](spmd_core::transport::fabric::Fabric::give).
    pub(crate) unsafe fn give_payload(
        &self,
        to: usize,
        key: u32,
        data: *const u8,
        bytes: usize,
    ) -> Result<Box<dyn Started>> {
        let mut state = self.net.begin(self.process);
        let given = Given { net: self.net.clone(), key: (self.process, to, key), taken: false };
        let arrival = state.arrival(self.net.plan.delay);
        let data = match self.net.plan.survives {
            // SAFETY: the data are readable during this call, by the caller's contract.
            true => Data::Copied(unsafe { std::slice::from_raw_parts(data, bytes) }.to_vec()),
            false => Data::There(data, bytes),
        };
        if state.lives(to)
            && state.payloads.0.insert(given.key, Payload { data, arrival }).is_some()
        {
            return Err(wrong("give", format!("payload {key} for process {to} is there already")));
        }
        Ok(Box::new(given))
    }

    /// # Safety
    /// As [`Fabric::take`](spmd_core::transport::fabric::Fabric::take).
    pub(crate) unsafe fn take_payload(
        &self,
        from: usize,
        key: u32,
        into: *mut u8,
        bytes: usize,
    ) -> Box<dyn Started> {
        drop(self.net.begin(self.process));
        let key = (from, self.process, key);
        Box::new(Taken { net: self.net.clone(), key, into: (into, bytes), taken: false })
    }
}

/// The sender's side.
struct Given {
    net: Arc<Net>,
    key: Key,
    taken: bool,
}

impl Started for Given {
    fn test(&mut self) -> Result<bool> {
        let state = self.net.enter(self.key.0);
        // For one that has ended it never is.
        self.taken |= state.lives(self.key.1) && !state.payloads.0.contains_key(&self.key);
        Ok(self.taken)
    }
}

/// A library takes no send back: it goes on with a copy, or the process has to end.
impl Drop for Given {
    fn drop(&mut self) {
        if !self.taken && !self.net.plan.survives && !matches!(self.test(), Ok(true)) {
            let (process, to, _) = self.key;
            self.net.say(process, format_args!("a payload for process {to} was given up"));
            self.net.abort(process, 1)
        }
    }
}

/// The receiver's side, which can be taken back.
struct Taken {
    net: Arc<Net>,
    key: Key,
    into: (*mut u8, usize),
    taken: bool,
}

impl Started for Taken {
    fn test(&mut self) -> Result<bool> {
        let (from, process, _) = self.key;
        let (into, bytes) = self.into;
        let mut state = self.net.enter(process);
        if self.taken {
            return Ok(true);
        }
        let now = Instant::now();
        let has_come = state.joins(from, process)
            && state.payloads.0.get(&self.key).is_some_and(|payload| payload.arrival <= now);
        let Some(payload) = has_come.then(|| state.payloads.0.remove(&self.key)).flatten() else {
            return Ok(false);
        };
        let (data, there) = match &payload.data {
            Data::There(data, bytes) => (*data, *bytes),
            Data::Copied(data) => (data.as_ptr(), data.len()),
        };
        if there != bytes {
            return Err(too_long(from, there, bytes));
        }
        // SAFETY: the data are the payload's own, or their sender's, who has kept them until now: it
        // leaves them under the lock that is held here. The memory is writable for as many bytes until
        // this is dropped, by the contract of `take`.
        unsafe { std::ptr::copy_nonoverlapping(data, into, bytes) };
        self.taken = true;
        drop(state);
        self.net.notify();
        Ok(true)
    }
}

fn too_long(from: usize, there: usize, bytes: usize) -> Error {
    wrong("take", format!("process {from} has sent {there} bytes, not {bytes}"))
}
