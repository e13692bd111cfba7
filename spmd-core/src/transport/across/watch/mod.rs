//! The watch: a thread of each process that notices what a rank in a native call cannot: that a
//! process is gone, that another one has failed, that ranks wait for each other for ever.
//!
//! The watches are joined to that of process 0, which judges (`judge.rs`), by a connection each, over
//! which nothing is said as long as all goes well. A watch looks at its ranks twice a second; if a
//! wait has lasted that long, it says so; a native call ends at its time limit (`overdue.rs`). Process 0 then asks all how things stand (`state.rs`) until
//! nobody says so any more. A connection that breaks while ranks are in a block is a dead peer.
//! Nothing is answered to who does not know the job's secret.

mod judge;
mod net;
mod overdue;
pub(super) mod state;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Result;
use crate::fault::{Cause, Fault};
use crate::transport::fabric::Fabric;
use crate::transport::shared::{Reach, World};
use net::{Event, Net};
use overdue::Overdue;
use state::State;
use wire::Word;

/// How often a watch looks at its ranks.
const LOOK: Duration = Duration::from_millis(500);
/// How long after a process is gone it is missed, where the ranks here have come to the end of their
/// block: it may have heard before this one that the block is over.
const FAREWELL: Duration = Duration::from_millis(200);
/// How long packets may be on their way while all ranks wait.
const DELIVERY: Duration = Duration::from_secs(60);
/// How long ranks have to come to their end by themselves, once the job is known to have failed.
const GRACE: Duration = Duration::from_secs(1);

/// The watch of a process, as its ranks know it.
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

/// What the thread and the ranks of its process share.
struct Shared {
    /// What the ranks are in, as long as they are in a block.
    world: Mutex<Option<Arc<World>>>,
    /// The last block that they have entered, and the last that those of all processes have left.
    entered: AtomicU64,
    left: AtomicU64,
    /// What the ranks want to be said.
    outbox: Mutex<Vec<Word>>,
    waker: net::Waker,
}

impl Watch {
    /// Joins this process's watch to the others. All processes call it, once.
    pub(crate) fn start(fabric: &Arc<dyn Fabric>, each: usize) -> Result<Option<Watch>> {
        if fabric.processes() == 1 {
            return Ok(None);
        }
        let (net, waker) = Net::join(fabric)?;
        let (world, entered, left, outbox) = Default::default();
        let shared = Arc::new(Shared { world, entered, left, outbox, waker });
        let (process, processes) = (fabric.process(), fabric.processes());
        let thread = Thread {
            shared: shared.clone(),
            net,
            process,
            each,
            looked: Instant::now(),
            last: State::default(),
            overdue: Overdue::default(),
            entered: vec![0; processes],
            gone: Vec::new(),
            asked: 0,
            answers: BTreeMap::new(),
            before: None,
            flowing: Instant::now(),
            library: fabric.name().to_owned(),
            waiting: false,
            failed: None,
        };
        let spawned = std::thread::Builder::new().name("spmd watch".into()).spawn(|| thread.run());
        spawned.map_err(|error| crate::Error::system("starting the watch", error))?;
        Ok(Some(Watch { shared }))
    }

    /// The ranks of this process are about to enter a block, in this world.
    pub(crate) fn enter(&self, world: &Arc<World>) {
        *self.shared.world.lock() = Some(world.clone());
        self.say(Word::Entered(self.shared.entered.fetch_add(1, AcqRel) + 1));
    }

    /// They are through with it: as all others are, or the job has failed.
    pub(crate) fn leave(&self) {
        *self.shared.world.lock() = None;
        self.shared.left.store(self.shared.entered.load(Acquire), Release);
    }

    /// Tells the others that this has stopped the job, and waits a little for it to be said.
    pub(crate) fn fail(&self, fault: &Fault) {
        self.say(Word::Fault(fault.clone()));
        let start = Instant::now();
        while !self.shared.outbox.lock().is_empty() && start.elapsed() < LOOK {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Something is wrong in a call of this process: has process 0 look what it is, and waits until
    /// it has been said, or for a while.
    pub(crate) fn suspect(&self) {
        self.say(Word::Waiting);
        let start = Instant::now();
        while !super::SAID.load(Relaxed) && start.elapsed() < 3 * LOOK {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn say(&self, word: Word) {
        self.shared.outbox.lock().push(word);
        self.shared.waker.wake();
    }
}

/// The thread's own.
struct Thread {
    shared: Arc<Shared>,
    net: Net,
    process: usize,
    each: usize,
    looked: Instant,
    last: State,
    overdue: Overdue,
    /// Of process 0: the last block that each process has entered.
    entered: Vec<u64>,
    /// Processes that are gone, and since when: they may have left the block, as others have.
    gone: Vec<(usize, Instant)>,
    /// Of process 0: the number of the last question, the answers to it, those to the one before.
    asked: u64,
    answers: BTreeMap<usize, State>,
    before: Option<Vec<State>>,
    /// Of process 0: when packets were last seen to arrive, or none to be missing.
    flowing: Instant,
    /// What joins the processes, for people.
    library: String,
    /// Of process 0: somebody has said that something waits since the last question was answered.
    waiting: bool,
    /// What has stopped the job, and when this was learnt.
    failed: Option<(Fault, Instant)>,
}

impl Thread {
    fn run(mut self) {
        loop {
            let soon = !self.gone.is_empty() || self.failed.is_some();
            let limit = if soon { FAREWELL } else { LOOK };
            let events = self.net.wait(limit);
            let said = std::mem::take(&mut *self.shared.outbox.lock());
            for word in said {
                self.say_own(word);
            }
            for event in events {
                match event {
                    Event::Said(process, word) => self.hear(process, word),
                    Event::Gone(process) => self.gone.push((process, Instant::now())),
                }
            }
            if self.looked.elapsed() >= LOOK {
                self.looked = Instant::now();
                self.look();
            }
            self.lose_those_gone();
            self.end_if_failed();
        }
    }

    /// Says to all what a rank of this process wants to be said.
    fn say_own(&mut self, word: Word) {
        match &word {
            Word::Entered(block) => self.entered[self.process] = *block,
            Word::Waiting => self.waiting = true,
            Word::Fault(_) if self.failed.is_some() => return,
            Word::Fault(fault) => self.failed = Some((fault.clone(), Instant::now())),
            _ => {}
        }
        match (self.process, word) {
            (0, Word::Fault(fault)) => self.net.say_to_all(&Word::Fault(fault)),
            (0, _) => {}
            (_, word) => self.net.say(0, &word),
        }
    }

    fn hear(&mut self, process: usize, word: Word) {
        match word {
            Word::Hello(..) => {}
            Word::Entered(block) => self.entered[process] = block,
            Word::Waiting => self.waiting = true,
            Word::Ask(number) => {
                let state = self.state();
                self.net.say(0, &Word::State(number, state));
            }
            Word::State(number, state) if number == self.asked => {
                self.answers.insert(process, state);
                self.judge();
            }
            Word::State(..) => {}
            Word::Fault(fault) => {
                if self.process == 0 {
                    self.net.say_to_all(&Word::Fault(fault.clone()));
                }
                self.stop(fault);
            }
        }
    }

    /// Processes that are gone without a word, while their ranks are in a block, have failed. That
    /// must be said at once, as MPI's launcher may end all processes when it misses one.
    fn lose_those_gone(&mut self) {
        let patience = if self.at_the_end() { FAREWELL } else { Duration::ZERO };
        let (late, still) = self.gone.iter().partition(|(_, since)| since.elapsed() >= patience);
        self.gone = still;
        let late: Vec<(usize, Instant)> = late;
        for (process, _) in late {
            let inside = match self.process {
                0 => self.entered[process] > self.shared.left.load(Acquire),
                _ => self.shared.world.lock().is_some(),
            };
            if inside && self.failed.is_none() {
                let fault = Fault::Rank { rank: process * self.each, cause: Cause::Lost };
                self.tell_and_stop(fault);
            }
        }
    }

    /// Ends the job for something that was found here.
    fn tell_and_stop(&mut self, fault: Fault) {
        super::say(&fault);
        match self.process {
            0 => self.net.say_to_all(&Word::Fault(fault.clone())),
            _ => self.net.say(0, &Word::Fault(fault.clone())),
        }
        self.stop(fault);
    }

    /// Whether the ranks of this process have done all that they do in their block.
    fn at_the_end(&self) -> bool {
        let world = self.shared.world.lock();
        let across = world.as_ref().and_then(|world| world.across.as_ref());
        across.is_none_or(|across| across.ended.load(Acquire))
    }

    /// Ends the waits of this process's ranks.
    fn stop(&mut self, fault: Fault) {
        if self.failed.is_some() {
            return;
        }
        super::SAID.store(true, Relaxed);
        if let Some(world) = &*self.shared.world.lock() {
            world.raise(Reach::All, &fault);
        }
        self.failed = Some((fault, Instant::now()));
    }

    fn state(&self) -> State {
        match &*self.shared.world.lock() {
            Some(world) => State::of(world),
            None => State { ended: true, ..State::default() },
        }
    }

    /// Looks whether something has waited since the last look; process 0 asks all, if it or
    /// another process has seen such a thing.
    fn look(&mut self) {
        let state = self.state();
        let waited = state.has_waited_since(&self.last);
        self.last = state;
        let limit = self.shared.world.lock().as_ref().and_then(|world| world.timeout);
        if let Some(fault) = self.overdue.look(&self.last, limit) {
            self.tell_and_stop(fault);
            return;
        }
        if self.process != 0 {
            if waited {
                self.net.say(0, &Word::Waiting);
            }
            return;
        }
        if waited || std::mem::take(&mut self.waiting) {
            self.asked += 1;
            self.answers = BTreeMap::from([(0, self.last.clone())]);
            self.net.say_to_all(&Word::Ask(self.asked));
        } else {
            self.before = None;
            self.flowing = Instant::now();
        }
    }

    fn judge(&mut self) {
        if self.answers.len() < self.entered.len() || self.failed.is_some() {
            return;
        }
        let now: Vec<State> = std::mem::take(&mut self.answers).into_values().collect();
        let verdict = judge::verdict(self.each, self.before.as_deref(), &now);
        let stalled = self.before.as_ref().and_then(|it| judge::stalled(self.each, it, &now));
        self.before = Some(now);
        if stalled.is_none() {
            self.flowing = Instant::now();
        }
        let lost = stalled.filter(|_| self.flowing.elapsed() >= DELIVERY);
        if let Some(fault) = verdict.or_else(|| lost.map(|packets| self.undelivered(packets))) {
            self.tell_and_stop(fault);
        }
    }

    /// The library does not do what it is for.
    fn undelivered(&self, packets: u64) -> Fault {
        let text = format!(
            "all ranks wait, and {packets} packets that were sent {} seconds ago or more have not \
             come: {} does not deliver them; try another library or another network of it",
            DELIVERY.as_secs(),
            self.library
        );
        Fault::Rank { rank: self.process * self.each, cause: Cause::Returned(text) }
    }

    /// Ends the process, if its ranks do not come to an end though the job has failed.
    fn end_if_failed(&self) {
        let Some((_, since)) = &self.failed else { return };
        if since.elapsed() >= GRACE && self.shared.world.lock().is_some() {
            end_process();
        }
    }
}

/// Without a word to MPI, which another thread may be in: its launcher ends what is left.
fn end_process() -> ! {
    #[cfg(unix)]
    // SAFETY: it ends the process and does nothing else.
    unsafe {
        libc::_exit(1)
    }
    #[cfg(not(unix))]
    std::process::abort()
}
