//! A process's end of the fabric.

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::Result;
use spmd_core::transport::fabric::{End, Fabric, Processes, Simulated, Started};

use crate::Gone;
use crate::net::Net;
use crate::processes::Members;

/// One process's end.
pub(crate) struct Loopback {
    pub(crate) net: Arc<Net>,
    pub(crate) process: usize,
    pub(crate) receiving: Mutex<()>,
    world: Arc<Members>,
    hosts: Vec<u32>,
}

impl Loopback {
    pub(crate) fn new(net: &Arc<Net>, process: usize) -> Loopback {
        let world = Arc::new(Members::new(net, &net.enter(process), process, 0));
        let hosts = vec![0; net.plan.processes];
        Loopback { net: net.clone(), process, receiving: Mutex::default(), world, hosts }
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
        crate::NAME
    }

    fn world(&self) -> Arc<dyn Processes> {
        self.world.clone()
    }

    fn send(&self, to: usize, packet: &[u8]) -> Result<()> {
        self.send_packet(to, packet);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.let_all_go();
        Ok(())
    }

    fn receive(&self, take: &mut dyn FnMut(usize, &[u8])) -> Result<bool> {
        self.next_packet(take)
    }

    unsafe fn give(
        &self,
        to: usize,
        key: u32,
        data: *const u8,
        bytes: usize,
    ) -> Result<Box<dyn Started>> {
        // SAFETY: the caller's contract.
        unsafe { self.give_payload(to, key, data, bytes) }
    }

    unsafe fn take(
        &self,
        from: usize,
        key: u32,
        into: *mut u8,
        bytes: usize,
    ) -> Result<Box<dyn Started>> {
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
            End::Exit => Gone::Exited(1),
            End::Kill => Gone::Killed,
        };
        self.net.leave(self.process, how)
    }

    fn simulated(&self) -> Option<Simulated> {
        Some(Simulated { other_threads: self.net.plan.other_threads })
    }

    fn lives(&self) -> bool {
        self.net.gone(self.process).is_none()
    }

    fn connected(&self, to: usize, connection: &TcpStream) {
        self.net.connected(self.process, to, connection);
    }

    fn say(&self, text: fmt::Arguments<'_>) {
        self.net.say(self.process, text);
    }
}
