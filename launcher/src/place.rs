//! Which CPUs each rank may use, and its share of the cores.

use crate::args::{Bind, Mode};
use crate::error::Error;
use crate::plan::Plan;
use crate::report::say;
use crate::topology::{self, Cpus};

/// The place of every rank.
pub(crate) struct Places {
    /// The distinct sets; empty where ranks are not bound.
    sets: Vec<Cpus>,
    /// The set of each rank.
    of_rank: Vec<usize>,
    /// How many ranks use each set.
    users: Vec<usize>,
    allowed: Cpus,
    parallelism: usize,
}

impl Places {
    /// Places `ranks` ranks on the CPUs that this process may use.
    pub(crate) fn new(bind: &Bind, ranks: usize) -> Result<Places, Error> {
        Places::on(bind, ranks, topology::allowed(), topology::parallelism())
    }

    fn on(bind: &Bind, ranks: usize, allowed: Cpus, parallelism: usize) -> Result<Places, Error> {
        let sets = match bind {
            Bind::None => Vec::new(),
            Bind::Core => topology::cores(&allowed),
            Bind::Numa => topology::nodes(&allowed),
            Bind::List(items) => checked(items, &allowed)?,
        };
        let of_rank: Vec<usize> = match bind {
            Bind::None => Vec::new(),
            // Neighbours in rank share a node; on cores and items they take turns.
            Bind::Numa => (0..ranks).map(|rank| rank * sets.len() / ranks).collect(),
            _ => (0..ranks).map(|rank| rank % sets.len()).collect(),
        };
        let mut users = vec![0; sets.len()];
        for &set in &of_rank {
            users[set] += 1;
        }
        if of_rank.is_empty() {
            users.push(ranks);
        }
        Ok(Places { sets, of_rank, users, allowed, parallelism })
    }

    /// The CPUs of one rank, or `None` where it is not bound.
    pub(crate) fn cpus(&self, rank: usize) -> Option<&Cpus> {
        self.of_rank.get(rank).map(|&set| &self.sets[set])
    }

    /// The CPUs that any rank may use: those of a process that holds all ranks.
    pub(crate) fn union(&self) -> Option<Cpus> {
        let used = self.sets.iter().zip(&self.users).filter(|(_, users)| **users > 0);
        let all = used.flat_map(|(set, _)| set.0.iter().copied()).collect();
        (!self.sets.is_empty()).then_some(Cpus(all))
    }

    /// How many threads a rank may run without taking cores from another: at least one.
    pub(crate) fn share(&self, rank: usize) -> usize {
        let (cpus, users) = match self.of_rank.get(rank) {
            Some(&set) => (self.sets[set].len().min(self.parallelism), self.users[set]),
            None => (self.parallelism, self.users[0]),
        };
        (cpus / users.max(1)).max(1)
    }

    /// How many cores the ranks of the job share.
    pub(crate) fn cores(&self) -> usize {
        self.union().map_or(self.parallelism, |cpus| cpus.len().min(self.parallelism))
    }

    /// Every rank's CPUs, `0-1;2-3`, for a process that binds its own threads.
    pub(crate) fn list(&self) -> String {
        let sets: Vec<String> =
            self.of_rank.iter().map(|&set| self.sets[set].to_string()).collect();
        sets.join(";")
    }

    /// One line about a rank.
    pub(crate) fn describe(&self, rank: usize) -> String {
        match self.cpus(rank) {
            Some(cpus) => format!("rank {rank} is bound to CPU {cpus}"),
            None => format!("rank {rank} is not bound (CPU {})", self.allowed),
        }
    }
}

impl Places {
    /// Prints what `--report-bindings` asks for: a line for each rank, or for the process whose
    /// workers run virtual ranks.
    pub(crate) fn report(&self, plan: &Plan) {
        if plan.mode == Mode::Virtual {
            let cpus = self.union().unwrap_or_else(|| self.allowed.clone());
            return say(&format!("the workers of all virtual ranks use CPU {cpus}"));
        }
        for rank in 0..plan.size {
            say(&self.describe(rank));
        }
    }
}

fn checked(items: &[Cpus], allowed: &Cpus) -> Result<Vec<Cpus>, Error> {
    let unknown = items.iter().flat_map(|item| &item.0).find(|&&cpu| !allowed.contains(cpu));
    match unknown {
        Some(cpu) => Err(Error::Usage(format!(
            "--bind: CPU {cpu} is not one that this process may use; those are {allowed}"
        ))),
        None => Ok(items.to_vec()),
    }
}

/// The affinity of the calling thread for as long as it starts processes, which inherit it: so no
/// code of ours runs between fork and exec. Restored when dropped.
#[cfg(target_os = "linux")]
pub(crate) struct Affinity(Option<rustix::thread::CpuSet>);

#[cfg(target_os = "linux")]
impl Affinity {
    pub(crate) fn save() -> Affinity {
        Affinity(rustix::thread::sched_getaffinity(None).ok())
    }

    /// Moves the calling thread to `cpus`.
    pub(crate) fn set(&self, cpus: &Cpus) -> Result<(), Error> {
        let mut set = rustix::thread::CpuSet::new();
        for &cpu in cpus.0.iter().filter(|&&cpu| cpu < rustix::thread::CpuSet::MAX_CPU) {
            set.set(cpu);
        }
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|error| Error::system(format!("bind to CPU {cpus}"), error))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Affinity {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            // Failing to restore only leaves the launcher, which mostly sleeps, where it is.
            let _ = rustix::thread::sched_setaffinity(None, set);
        }
    }
}

/// Elsewhere processes cannot be bound from outside.
#[cfg(not(target_os = "linux"))]
pub(crate) struct Affinity;

#[cfg(not(target_os = "linux"))]
impl Affinity {
    pub(crate) fn save() -> Affinity {
        Affinity
    }

    pub(crate) fn set(&self, _cpus: &Cpus) -> Result<(), Error> {
        Err(Error::Usage("--bind works on Linux only; drop it".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> Cpus {
        Cpus::parse_ranks(list).unwrap()
    }

    #[test]
    fn unbound_ranks_share_all_cores() {
        let places = Places::on(&Bind::None, 3, set("0-7"), 8).unwrap();
        assert_eq!((places.cpus(0), places.share(0)), (None, 2));
        assert_eq!(Places::on(&Bind::None, 100, set("0-7"), 8).unwrap().share(99), 1);
    }

    #[test]
    fn list_items_go_round() {
        let bind = Bind::List(vec![set("0-3"), set("4-5")]);
        let places = Places::on(&bind, 3, set("0-7"), 8).unwrap();
        assert_eq!(places.list(), "0-3;4-5;0-3");
        assert_eq!((places.share(0), places.share(1)), (2, 2));
        assert_eq!(places.union(), Some(set("0-5")));
        assert!(places.describe(1).contains("4-5"));
    }

    #[test]
    fn a_forbidden_cpu_is_an_error() {
        let bind = Bind::List(vec![set("9")]);
        let error = Places::on(&bind, 1, set("0-3"), 4).err().unwrap().to_string();
        assert!(error.contains("CPU 9") && error.contains("0-3"), "{error}");
    }
}
