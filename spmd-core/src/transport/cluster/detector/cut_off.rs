//! Two processes that live and have lost the connection between them, where processes go on when
//! others fail. Each takes the other for dead, and whoever still sees both would wait for ranks that
//! never come to the same communicator. So the higher of the two ends.
//!
//! A process that loses a connection says so to all, and whoever is still joined to the lost one
//! passes it on to that. A dead process hears nothing of it. One that hears it lives: if it was lost
//! by a lower one, it ends; if by a higher one, it gives up the connection on its side too, and the
//! higher one learns by the same way that it was lost. Nothing goes by time.
//!
//! Two that nobody else sees cannot be told from two of which one is dead: each goes on alone.

use std::time::Instant;

use super::thread::DetectorThread;
use super::wire::DetectorMessage;
use crate::transport::fabric::End;

impl DetectorThread {
    /// The connection to a process has broken.
    pub(super) fn lose(&mut self, process: usize) {
        self.gone.push((process, Instant::now()));
        if self.survives {
            self.net.send_to_all(&DetectorMessage::Lost(process));
        }
    }

    /// A process has lost its connection to another one, which may live.
    pub(super) fn pass_on(&mut self, by: usize, lost: usize) {
        self.net.send(lost, &DetectorMessage::LostBy(by));
    }

    /// A process has lost its connection to this one.
    pub(super) fn settle_with(&mut self, other: usize) {
        if other >= self.process {
            if self.net.disconnect(other) {
                self.lose(other);
            }
            return;
        }
        self.fabric.print(format_args!(
            "the process of rank {} ends itself: it and the process of rank {} have lost the \
             connection between them, and others, which go on, see both",
            self.process * self.each,
            other * self.each
        ));
        self.fabric.end(End::Kill);
    }
}
