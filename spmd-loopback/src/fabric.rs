//! A process's end of the fabric.

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::Result;
use spmd_core::transport::fabric::{End, Fabric, FabricRequest, ProcessGroup, Simulated};

use crate::net::Net;
use crate::packets::UNDER_WAY;
use crate::payloads::{Payload, PayloadData};
use crate::plan::{EarlyEnd, NAME, wrong};
use crate::processes::LoopbackGroup;
use crate::transfers::{ReceiveRequest, SendRequest};

/// One process's end.
pub(crate) struct Loopback {
    net: Arc<Net>,
    process: usize,
    receiving: Mutex<()>,
    world: Arc<LoopbackGroup>,
    hosts: Vec<u32>,
}

impl Loopback {
    pub(crate) fn new(net: &Arc<Net>, process: usize) -> Loopback {
        let world = Arc::new(LoopbackGroup::new(net, &net.enter(process), process, 0));
        let hosts = vec![0; net.plan.processes];
        Loopback { net: net.clone(), process, receiving: Mutex::default(), world, hosts }
    }
}

impl Loopback {
    /// # Safety
    /// As [`Fabric::issend`].
    unsafe fn give_payload(
        &self,
        to: usize,
        key: u32,
        data: *const u8,
        bytes: usize,
    ) -> Result<Box<dyn FabricRequest>> {
        let mut state = self.net.begin(self.process);
        let given = (self.process, to, key);
        if state.payloads.0.contains_key(&given) {
            return Err(wrong("give", format!("payload {key} for process {to} is there already")));
        }
        let arrival = state.arrival();
        let data = match self.net.plan.survives {
            true => {
                // SAFETY: the data are readable during this call, by the caller's contract.
                let data = unsafe { std::slice::from_raw_parts(data, bytes) };
                PayloadData::Copied(data.to_vec())
            }
            false => PayloadData::There(data, bytes),
        };
        if state.lives(to) {
            state.payloads.0.insert(given, Payload { data, arrival });
        }
        Ok(Box::new(SendRequest { net: self.net.clone(), key: given, taken: false }))
    }

    /// # Safety
    /// As [`Fabric::irecv`].
    unsafe fn take_payload(
        &self,
        from: usize,
        key: u32,
        into: *mut u8,
        bytes: usize,
    ) -> Box<dyn FabricRequest> {
        drop(self.net.begin(self.process));
        let key = (from, self.process, key);
        Box::new(ReceiveRequest { net: self.net.clone(), key, into: (into, bytes), taken: false })
    }

    fn send_packet(&self, to: usize, packet: [&[u8]; 2]) {
        let mut state = self.net.begin(self.process);
        if state.lives(to) && state.passes(self.process, to) {
            state.packets.send(self.process, to, packet);
            state.let_go(self.process, to, UNDER_WAY);
        }
    }

    /// The next packet of any process, of several by chance. Says whether there was one; no while
    /// another thread is here, as what comes from one process must stay in order.
    fn next_packet(&self, take: &mut dyn FnMut(usize, &[u8])) -> Result<bool> {
        let Some(_receiving) = self.receiving.try_lock() else { return Ok(false) };
        let mut state = self.net.enter(self.process);
        (0..self.net.plan.processes).for_each(|to| state.let_go(self.process, to, UNDER_WAY));
        let senders = state.packets.senders(self.process);
        if senders.is_empty() {
            return Ok(false);
        }
        let from = senders[state.below(senders.len())];
        let packet = state.packets.receive(from, self.process);
        drop(state);
        packet.iter().for_each(|packet| take(from, packet));
        Ok(true)
    }
}

impl Fabric for Loopback {
    fn process(&self) -> usize {
        self.process
    }

    fn processes(&self) -> usize {
        self.net.plan.processes
    }

    fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    fn name(&self) -> &str {
        NAME
    }

    fn world(&self) -> Arc<dyn ProcessGroup> {
        self.world.clone()
    }

    fn send(&self, to: usize, packet: [&[u8]; 2]) -> Result<()> {
        self.send_packet(to, packet);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.net.enter(self.process);
        (0..self.net.plan.processes).for_each(|to| state.let_go(self.process, to, usize::MAX));
        Ok(())
    }

    fn receive(&self, take: &mut dyn FnMut(usize, &[u8])) -> Result<bool> {
        self.next_packet(take)
    }

    unsafe fn issend(
        &self,
        to: usize,
        key: u32,
        data: *const u8,
        bytes: usize,
    ) -> Result<Box<dyn FabricRequest>> {
        // SAFETY: the caller's contract.
        unsafe { self.give_payload(to, key, data, bytes) }
    }

    unsafe fn irecv(
        &self,
        from: usize,
        key: u32,
        into: *mut u8,
        bytes: usize,
    ) -> Result<Box<dyn FabricRequest>> {
        // SAFETY: the caller's contract.
        Ok(unsafe { self.take_payload(from, key, into, bytes) })
    }

    fn survives(&self) -> bool {
        self.net.plan.survives
    }

    fn abort(&self, status: i32) -> ! {
        self.net.abort(self.process, status)
    }

    fn end(&self, end: End) -> ! {
        let how = match end {
            End::Exit => EarlyEnd::Exited(1),
            End::Kill => EarlyEnd::Killed,
        };
        self.net.leave(self.process, how)
    }

    fn simulated(&self) -> Option<Simulated> {
        Some(Simulated { other_threads: self.net.plan.other_threads })
    }

    fn takes_devices(&self) -> bool {
        self.net.plan.on_device.is_some()
    }

    fn lives(&self) -> bool {
        self.net.gone(self.process).is_none()
    }

    fn connected(&self, to: usize, connection: &TcpStream) {
        self.net.connected(self.process, to, connection);
    }

    fn print(&self, text: fmt::Arguments<'_>) {
        self.net.print(self.process, text);
    }
}
