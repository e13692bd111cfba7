//! Mailboxes of virtual ranks, and of threads too many for rings: one queue a receiver, however
//! many senders.
//!
//! A large message is not copied into the queue: the receiver copies from the sender's buffer,
//! and the sender waits for that (`access.rs`). So does a small one that finds the mailbox full.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use parking_lot::Mutex;

use crate::transport::message::UnexpectedMessage;

/// Bytes after which a sender lets others run: its receiver may share its thread.
const TURN: usize = 64 << 10;

pub(crate) struct Queue {
    arrived: Mutex<VecDeque<UnexpectedMessage>>,
    /// What the messages in `arrived` take; changed under its lock.
    queued: AtomicUsize,
    /// What those take that the receiver has taken out of it and keeps; changed by that alone.
    kept: AtomicUsize,
    /// What both may take before small messages, too, wait with their senders.
    window: usize,
}

impl Queue {
    /// The mailbox of one of so many ranks. Its window is for all senders together: one of each
    /// pair of thousands of ranks would be no bound. There is room for some messages of each.
    pub(crate) fn new(window: usize, ranks: usize) -> Queue {
        let window = window.max(ranks * TURN);
        Queue { arrived: Mutex::default(), queued: 0.into(), kept: 0.into(), window }
    }

    /// Adds a message, whether the window is full or not. Whether many lie there by now, so that
    /// others are to be let run.
    pub(crate) fn push(&self, message: UnexpectedMessage) -> bool {
        let weight = message.weight();
        let mut arrived = self.arrived.lock();
        arrived.push_back(message);
        let before = self.queued.load(Relaxed);
        self.queued.store(before + weight, Release);
        before / TURN != (before + weight) / TURN
    }

    /// Whether the rank keeps as much as it may, so that the next message is to be offered instead
    /// of added. Those who add at the same time may each add one more.
    pub(crate) fn is_full(&self) -> bool {
        // In this order: what is drained meanwhile is not counted twice.
        let kept = self.kept.load(Acquire);
        kept + self.queued.load(Relaxed) >= self.window
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.load(Acquire) == 0
    }

    /// Moves what has arrived to the end of `waiting`.
    pub(super) fn drain(&self, waiting: &mut VecDeque<UnexpectedMessage>) {
        let mut arrived = self.arrived.lock();
        let queued = self.queued.swap(0, Relaxed);
        self.kept.store(self.kept.load(Relaxed) + queued, Release);
        waiting.append(&mut arrived);
    }

    /// A message that was drained is kept no longer.
    pub(super) fn release(&self, weight: usize) {
        self.kept.store(self.kept.load(Relaxed) - weight, Relaxed);
    }
}
