//! Packets on their way.

use std::collections::VecDeque;
use std::time::Instant;

use spmd_core::Result;

use crate::fabric::Loopback;
use crate::net::State;

/// Packets from one process to another that are on their way at a time. What is more waits where it
/// was sent, as long as that process looks for packets itself; its bound is the window of messages.
const UNDER_WAY: usize = 64;

/// What one process has sent to another.
#[derive(Default)]
struct Line {
    under_way: VecDeque<(Instant, Vec<u8>)>,
    waiting: VecDeque<Vec<u8>>,
}

/// The packets of all processes, by receiver and sender.
pub(crate) struct Packets(Vec<Vec<Line>>);

impl Packets {
    pub(crate) fn new(processes: usize) -> Packets {
        let lines = || (0..processes).map(|_| Line::default()).collect();
        Packets((0..processes).map(|_| lines()).collect())
    }
}

impl Loopback {
    pub(crate) fn send_packet(&self, to: usize, packet: &[u8]) {
        let mut state = self.net.begin(self.process);
        if state.lives(to) && state.passes(self.process, to) {
            state.packets.0[to][self.process].waiting.push_back(packet.to_vec());
            self.let_go(&mut state, to, UNDER_WAY);
        }
    }

    /// Lets packets go while fewer than so many are on their way. None overtakes another one.
    fn let_go(&self, state: &mut State, to: usize, most: usize) {
        while state.packets.0[to][self.process].under_way.len() < most {
            let arrival = state.arrival(self.net.plan.delay);
            let line = &mut state.packets.0[to][self.process];
            let Some(packet) = line.waiting.pop_front() else { break };
            let after = line.under_way.back().map_or(arrival, |(last, _)| arrival.max(*last));
            line.under_way.push_back((after, packet));
        }
    }

    pub(crate) fn let_all_go(&self) {
        let mut state = self.net.enter(self.process);
        (0..self.net.plan.processes).for_each(|to| self.let_go(&mut state, to, usize::MAX));
    }

    /// The next packet of any process, of several by chance. Says whether there was one; no while
    /// another thread is here, as what comes from one process must stay in order.
    pub(crate) fn next_packet(&self, take: &mut dyn FnMut(usize, &[u8])) -> Result<bool> {
        let Some(_receiving) = self.receiving.try_lock() else { return Ok(false) };
        let mut state = self.net.enter(self.process);
        for to in 0..self.net.plan.processes {
            if !state.packets.0[to][self.process].waiting.is_empty() {
                self.let_go(&mut state, to, UNDER_WAY);
            }
        }
        let now = Instant::now();
        let lines = state.packets.0[self.process].iter();
        let has_come = |line: &Line| line.under_way.front().is_some_and(|(due, _)| *due <= now);
        let senders: Vec<usize> =
            lines.enumerate().filter(|(_, line)| has_come(line)).map(|(from, _)| from).collect();
        if senders.is_empty() {
            return Ok(false);
        }
        let from = senders[state.below(senders.len())];
        let packet = state.packets.0[self.process][from].under_way.pop_front();
        drop(state);
        packet.iter().for_each(|(_, packet)| take(from, packet));
        Ok(true)
    }
}
