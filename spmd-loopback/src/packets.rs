//! Packets on their way.

use std::collections::VecDeque;
use std::time::Instant;

/// Packets from one process to another that are on their way at a time. What is more waits where it
/// was sent, as long as that process looks for packets itself; its bound is the window of messages.
pub(crate) const UNDER_WAY: usize = 64;

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

    pub(crate) fn send(&mut self, from: usize, to: usize, packet: [&[u8]; 2]) {
        self.0[to][from].waiting.push_back(packet.concat());
    }

    /// Lets packets go while fewer than so many are on their way, each with a time of arrival. None
    /// overtakes another one.
    pub(crate) fn let_go(
        &mut self,
        (from, to): (usize, usize),
        most: usize,
        mut arrival: impl FnMut() -> Instant,
    ) {
        let line = &mut self.0[to][from];
        while line.under_way.len() < most {
            let Some(packet) = line.waiting.pop_front() else { break };
            let arrival = arrival();
            let after = line.under_way.back().map_or(arrival, |(last, _)| arrival.max(*last));
            line.under_way.push_back((after, packet));
        }
    }

    /// Those of whom a packet has come.
    pub(crate) fn senders(&self, to: usize) -> Vec<usize> {
        let now = Instant::now();
        let has_come = |line: &Line| line.under_way.front().is_some_and(|(due, _)| *due <= now);
        let lines = self.0[to].iter().enumerate();
        lines.filter(|(_, line)| has_come(line)).map(|(from, _)| from).collect()
    }

    pub(crate) fn receive(&mut self, from: usize, to: usize) -> Option<Vec<u8>> {
        self.0[to][from].under_way.pop_front().map(|(_, packet)| packet)
    }
}
