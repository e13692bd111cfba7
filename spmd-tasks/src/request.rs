//! What a task asks for besides a worker, and what it has been given.

use std::fmt;

use parking_lot::Mutex;
use spmd_core::internal::PARTS;

/// What a task asks for: workers, and amounts of resources in millionths, by name, each name once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) cpu: usize,
    pub(crate) amounts: Vec<(Box<str>, u64)>,
    /// The workers of which it needs one, and the GPUs of which those are that it asks for, if not all do.
    pub(crate) workers: Option<Vec<usize>>,
    pub(crate) gpus: Option<Vec<u32>>,
    /// Why it cannot run where it would have to.
    pub(crate) never: Option<String>,
}

impl Default for Request {
    fn default() -> Request {
        Request { cpu: 1, amounts: Vec::new(), workers: None, gpus: None, never: None }
    }
}

impl Request {
    /// Asks for so much more of a resource.
    pub(crate) fn add(&mut self, name: &str, parts: u64) {
        match self.amounts.binary_search_by(|(known, _)| (**known).cmp(name)) {
            Ok(place) => {
                let parts_before = &mut self.amounts[place].1;
                *parts_before = parts_before.saturating_add(parts);
            }
            Err(place) => self.amounts.insert(place, (name.into(), parts)),
        }
    }
}

/// An amount as people write it.
pub(crate) fn amount(parts: u64) -> f64 {
    parts as f64 / PARTS as f64
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        if self.cpu != 1 {
            write!(f, "{} cpu", self.cpu)?;
            before = ", ";
        }
        for (name, parts) in &self.amounts {
            write!(f, "{before}{} {name}", amount(*parts))?;
            before = ", ";
            if let Some(gpus) = self.gpus.as_ref().filter(|_| **name == *"gpu") {
                write!(f, " of {gpus:?}")?;
            }
        }
        if let Some(workers) = &self.workers {
            let workers: Vec<String> = workers.iter().map(usize::to_string).collect();
            write!(f, "{before}worker {}", workers.join(" or "))?;
        }
        Ok(())
    }
}

/// Units of resources, by the resources' names.
pub(crate) type Units = Vec<(Box<str>, Vec<u32>)>;

/// Units as people write them.
pub(crate) fn listed(units: &Units) -> String {
    if units.is_empty() {
        return "it".into();
    }
    let one = |(name, units): &(Box<str>, Vec<u32>)| format!("{name} {units:?}");
    units.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What a task asks for, and what became of it.
pub(crate) struct Asks {
    pub(crate) request: Request,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The units that the tasks had whose values it uses.
    near: Units,
    granted: Option<Units>,
    is_given_back: bool,
}

impl Asks {
    pub(crate) fn new(request: Request) -> Asks {
        Asks { request, state: Mutex::default() }
    }

    /// A task that this one's task needs had those that `other` was given.
    pub(crate) fn is_near(&self, other: &Asks) {
        let units = other.state.lock().granted.clone();
        self.state.lock().near.extend(units.into_iter().flatten());
    }

    /// Its data are with this unit.
    pub(crate) fn would_be_on(&self, name: &str, unit: u32) {
        self.state.lock().near.push((name.into(), vec![unit]));
    }

    /// Whether such a task had this unit.
    pub(crate) fn prefers(&self) -> impl Fn(&str, u32) -> bool {
        let near = self.state.lock().near.clone();
        move |name, unit| near.iter().any(|(it, units)| **it == *name && units.contains(&unit))
    }

    pub(crate) fn grant(&self, units: Units) {
        self.state.lock().granted = Some(units);
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.state.lock().granted.is_some()
    }

    /// It is given back, if it was granted and has not been.
    pub(crate) fn take_back(&self) -> bool {
        let mut state = self.state.lock();
        let had = state.granted.is_some() && !state.is_given_back;
        state.is_given_back |= had;
        had
    }

    /// The units that it was given.
    pub(crate) fn granted(&self) -> Units {
        self.state.lock().granted.clone().unwrap_or_default()
    }
}
