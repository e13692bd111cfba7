//! Payloads that were begun to be sent or received.

use std::sync::Arc;
use std::time::Instant;

use spmd_core::transport::fabric::FabricRequest;
use spmd_core::{Error, Result};

use crate::net::Net;
use crate::payloads::{Key, PayloadData};
use crate::plan::wrong;

/// The sender's side.
pub(crate) struct SendRequest {
    pub(crate) net: Arc<Net>,
    pub(crate) key: Key,
    pub(crate) taken: bool,
}

impl FabricRequest for SendRequest {
    fn test(&mut self) -> Result<bool> {
        let state = self.net.enter(self.key.0);
        // For one that has ended it never is.
        self.taken |= state.lives(self.key.1) && !state.payloads.0.contains_key(&self.key);
        Ok(self.taken)
    }
}

/// A library takes no send back: it goes on with a copy, or the process has to end.
impl Drop for SendRequest {
    fn drop(&mut self) {
        if !self.taken && !self.net.plan.survives && !matches!(self.test(), Ok(true)) {
            let (process, to, _) = self.key;
            self.net.print(process, format_args!("a payload for process {to} was given up"));
            self.net.abort(process, 1)
        }
    }
}

/// The receiver's side, which can be taken back.
pub(crate) struct ReceiveRequest {
    pub(crate) net: Arc<Net>,
    pub(crate) key: Key,
    pub(crate) into: (*mut u8, usize),
    pub(crate) taken: bool,
}

impl FabricRequest for ReceiveRequest {
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
            PayloadData::There(data, bytes) => (*data, *bytes),
            PayloadData::Copied(data) => (data.as_ptr(), data.len()),
        };
        if there != bytes {
            return Err(too_long(from, there, bytes));
        }
        // SAFETY: the data are the payload's own, or their sender's, who has kept them until now:
        // it leaves them under the lock that is held here. The memory is writable for as many bytes
        // until this is dropped, and nobody else reads or writes it, by the contract of `irecv`: so
        // it is apart from the data.
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
