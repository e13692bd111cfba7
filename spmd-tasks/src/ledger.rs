//! Jobs that wait for resources.
//!
//! Among requests that need some of the same resource the first comes first, by priority and then by
//! time: so a large one waits no longer than those before it take. A request whose resources nobody
//! waits for passes. Jobs with the same request stand in one line, so that to give something back costs
//! as much as there are different requests, however many jobs wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::internal::Resources;

use crate::about::Priority;
use crate::job::Job;
use crate::request::{Asks, Request};
use crate::stock::Stock;

pub(crate) struct Ledger(Mutex<State>);

struct State {
    stock: Stock,
    /// By priority, the first first.
    lines: BTreeMap<(u8, Request), VecDeque<Waiting>>,
    /// The number of the next one.
    next: u64,
}

/// A job that waits, or that has been given what it asks for.
pub(crate) struct Waiting {
    number: u64,
    pub(crate) job: Job,
    pub(crate) asks: Arc<Asks>,
    pub(crate) priority: Priority,
}

impl Ledger {
    pub(crate) fn new(resources: &Resources) -> Ledger {
        let (stock, lines) = (Stock::new(resources), BTreeMap::new());
        Ledger(Mutex::new(State { stock, lines, next: 0 }))
    }

    /// Why a request can never be met, if so.
    pub(crate) fn lacks(&self, request: &Request) -> Option<String> {
        self.0.lock().stock.lacks(request)
    }

    /// The units that a resource has, lowest first.
    pub(crate) fn units(&self, name: &str) -> Vec<u32> {
        self.0.lock().stock.units(name)
    }

    /// A job asks for something. Gives those that have what they ask for now.
    pub(crate) fn asks(&self, job: Job, asks: Arc<Asks>, priority: Priority) -> Vec<Waiting> {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        let line = state.lines.entry((priority as u8, asks.request.clone())).or_default();
        line.push_back(Waiting { number, job, asks, priority });
        state.admit()
    }

    /// A job that was given what it asked for is done.
    pub(crate) fn give_back(&self, asks: &Asks) -> Vec<Waiting> {
        let mut state = self.0.lock();
        state.stock.give_back(asks);
        state.admit()
    }
}

impl State {
    fn admit(&mut self) -> Vec<Waiting> {
        let mut admitted = Vec::new();
        // Those that somebody waits for who comes before.
        let mut awaited: BTreeSet<Box<str>> = BTreeSet::new();
        loop {
            let passes =
                |request: &Request| !request.amounts.iter().any(|(name, _)| awaited.contains(name));
            let lines = self.lines.iter().filter(|((_, request), _)| passes(request));
            let first = lines
                .min_by_key(|((priority, _), line)| (*priority, line.front().map(|it| it.number)));
            let Some((key, line)) = first else { break };
            let key = key.clone();
            let Some(asks) = line.front().map(|waiting| waiting.asks.clone()) else { break };
            match self.stock.take(&asks) {
                Some(units) => {
                    asks.grant(units);
                    if let Some(line) = self.lines.get_mut(&key) {
                        admitted.extend(line.pop_front());
                        if line.is_empty() {
                            self.lines.remove(&key);
                        }
                    }
                }
                None => awaited.extend(key.1.amounts.into_iter().map(|(name, _)| name)),
            }
        }
        admitted
    }
}
