//! What the processes of a world share: who of them lives, what is on its way, and chance.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::meetings::Gatherings;
use crate::packets::Packets;
use crate::payloads::Payloads;
use crate::plan::{EarlyEnd, Plan};
use crate::sets::Set;

/// Bytes that are kept of what processes say.
const SAID: usize = 64 << 10;
/// How long a call of the fabric that waits may sleep until it looks again.
const NAP: Duration = Duration::from_millis(20);

/// What the processes of a world share. One lock is enough for tests.
pub(crate) struct Net {
    pub(crate) plan: Plan,
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct State {
    random: Rng,
    delay: Duration,
    gone: Vec<Option<EarlyEnd>>,
    /// Who is told which process has gone.
    told: Sender<usize>,
    /// Messages and steps that each process has begun.
    begun: Vec<u64>,
    links: Vec<(usize, usize, TcpStream)>,
    /// Packets between two processes, of whom the lower is first, until they are cut off from each
    /// other.
    cuts: BTreeMap<(usize, usize), u64>,
    pub(crate) packets: Packets,
    pub(crate) payloads: Payloads,
    pub(crate) sets: BTreeMap<u64, Set>,
    pub(crate) meetings: Gatherings,
    said: String,
}

impl Net {
    pub(crate) fn new(plan: Plan, told: Sender<usize>) -> Net {
        let processes = plan.processes;
        let state = State {
            random: Rng::with_seed(plan.seed),
            delay: plan.delay,
            gone: vec![None; processes],
            told,
            begun: vec![0; processes],
            links: Vec::new(),
            cuts: plan
                .cuts
                .iter()
                .map(|(one, other, after)| (pair(*one, *other), *after))
                .collect(),
            packets: Packets::new(processes),
            payloads: Payloads::default(),
            sets: BTreeMap::from([(0, Set::new((0..processes).collect()))]),
            meetings: Gatherings::default(),
            said: String::new(),
        };
        Net { plan, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The state, for a call of this process: which does not come back if the process has ended.
    pub(crate) fn enter(&self, process: usize) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        if state.gone[process].is_none() {
            return state;
        }
        drop(state);
        stay()
    }

    /// The state, for what is dropped, by whichever thread.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// [`Net::enter`] for the start of a message or step, before which the process may have to end.
    pub(crate) fn begin(&self, process: usize) -> MutexGuard<'_, State> {
        let mut state = self.enter(process);
        state.begun[process] += 1;
        let due = (process, state.begun[process]);
        if !self.plan.kills.contains(&due) {
            return state;
        }
        self.end(&mut state, process, EarlyEnd::Killed);
        drop(state);
        stay()
    }

    /// Waits until `look` finds something.
    pub(crate) fn until<T>(
        &self,
        process: usize,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> T {
        let mut state = self.enter(process);
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            self.changed.wait_for(&mut state, NAP);
            if state.gone[process].is_some() {
                drop(state);
                stay()
            }
        }
    }

    /// Something has changed for who waits.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Ends a process: it sends and takes nothing any more.
    fn end(&self, state: &mut State, process: usize, how: EarlyEnd) {
        if state.gone[process].is_some() {
            return;
        }
        state.gone[process] = Some(how);
        state.payloads.forget(process);
        state.sets.values_mut().for_each(|set| set.leave(process));
        state.links.retain(|(one, other, link)| {
            let ends = *one == process || *other == process;
            if ends {
                let _ = link.shutdown(Shutdown::Both);
            }
            !ends
        });
        // Nobody is left who could want to know.
        let _ = state.told.send(process);
        self.notify();
    }

    pub(crate) fn kill(&self, process: usize) {
        self.end(&mut self.state.lock(), process, EarlyEnd::Killed);
    }

    /// Ends this process, in which the calling thread is.
    pub(crate) fn leave(&self, process: usize, how: EarlyEnd) -> ! {
        self.end(&mut self.state.lock(), process, how);
        stay()
    }

    /// Ends all processes.
    pub(crate) fn abort(&self, process: usize, status: i32) -> ! {
        let mut state = self.enter(process);
        for process in 0..self.plan.processes {
            self.end(&mut state, process, EarlyEnd::Exited(status));
        }
        drop(state);
        stay()
    }

    /// How a process has gone.
    pub(crate) fn gone(&self, process: usize) -> Option<EarlyEnd> {
        self.state.lock().gone[process]
    }

    /// Two processes get nothing from each other any more.
    pub(crate) fn cut(&self, one: usize, other: usize) {
        let mut state = self.state.lock();
        state.cuts.insert(pair(one, other), 0);
        state.break_links(one, other);
        self.notify();
    }

    pub(crate) fn connected(&self, process: usize, to: usize, link: &TcpStream) {
        let mut state = self.state.lock();
        // What cannot be broken at will breaks with its process's threads.
        state.links.extend(link.try_clone().map(|link| (process, to, link)));
        if !state.joins(process, to) || state.gone[process].is_some() {
            state.break_links(process, to);
        }
    }

    pub(crate) fn print(&self, process: usize, text: std::fmt::Arguments<'_>) {
        let mut state = self.state.lock();
        if state.gone[process].is_none() && state.said.len() < SAID {
            state.said += &format!("{text}\n");
        }
    }

    pub(crate) fn said(&self) -> String {
        self.state.lock().said.clone()
    }
}

impl State {
    pub(crate) fn lives(&self, process: usize) -> bool {
        self.gone[process].is_none()
    }

    pub(crate) fn processes(&self) -> usize {
        self.gone.len()
    }

    /// Whether what one process sends comes to another one.
    pub(crate) fn joins(&self, one: usize, other: usize) -> bool {
        self.cuts.get(&pair(one, other)).is_none_or(|left| *left > 0)
    }

    /// Counts a packet: whether it arrives.
    pub(crate) fn passes(&mut self, one: usize, other: usize) -> bool {
        let Some(left) = self.cuts.get_mut(&pair(one, other)) else { return true };
        if *left == 0 {
            return false;
        }
        *left -= 1;
        if *left == 0 {
            self.break_links(one, other);
        }
        true
    }

    fn break_links(&mut self, one: usize, other: usize) {
        self.links.retain(|(from, to, link)| {
            let breaks = pair(*from, *to) == pair(one, other);
            if breaks {
                let _ = link.shutdown(Shutdown::Both);
            }
            !breaks
        });
    }

    /// When something that is sent now arrives.
    pub(crate) fn arrival(&mut self) -> Instant {
        arrival(&mut self.random, self.delay)
    }

    /// Lets packets go while fewer than so many are on their way.
    pub(crate) fn let_go(&mut self, from: usize, to: usize, most: usize) {
        let State { random, delay, packets, .. } = self;
        packets.let_go((from, to), most, || arrival(random, *delay));
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.random.usize(0..limit)
    }
}

fn arrival(random: &mut Rng, longest: Duration) -> Instant {
    let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Instant::now() + Duration::from_micros(random.u64(0..=micros))
}

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

/// Where the threads of a process stay that has ended: as they run in a process of the system's,
/// and may be in the middle of anything, they cannot be ended. What lies on their stacks stays
/// there.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}
