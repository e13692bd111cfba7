//! The CPUs that this process may use, by core and by NUMA node.

use std::collections::BTreeSet;
use std::fmt;

/// A set of CPU numbers (or of ranks, which are written the same way).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) BTreeSet<usize>);

/// No machine or job has numbers beyond this; the bound keeps `0-99999999999` from being filled in.
const LARGEST: usize = 1 << 20;

impl Cpus {
    /// Reads one item of a list: `3` or `4-7`.
    pub(crate) fn parse(item: &str) -> Result<Cpus, String> {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        match (low.trim().parse::<usize>(), high.trim().parse::<usize>()) {
            (Ok(low), Ok(high)) if low <= high && high <= LARGEST => {
                Ok(Cpus((low..=high).collect()))
            }
            _ => Err(format!("`{item}` is neither a number nor a range such as 4-7")),
        }
    }

    /// Reads a whole list, `0,4-7`, as one set.
    pub(crate) fn parse_ranks(list: &str) -> Result<Cpus, String> {
        let mut all = BTreeSet::new();
        for item in list.split(',') {
            all.extend(Cpus::parse(item)?.0);
        }
        Ok(Cpus(all))
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        self.0.contains(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn within(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.intersection(&other.0).copied().collect())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(low) = numbers.next() {
            let mut high = low;
            while let Some(next) = numbers.next_if_eq(&(high + 1)) {
                high = next;
            }
            write!(f, "{separator}{low}")?;
            if high > low {
                write!(f, "-{high}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// The CPUs that this process may use, by its affinity mask.
pub(crate) fn allowed() -> Cpus {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
        return Cpus(cpus.collect());
    }
    Cpus((0..parallelism()).collect())
}

/// How many threads can run at once here: affinity and the cgroup's quota count.
pub(crate) fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The allowed CPUs of each core that has any, in the order of their lowest CPU.
pub(crate) fn cores(allowed: &Cpus) -> Vec<Cpus> {
    let groups = found::cores(allowed);
    let one_each = || allowed.0.iter().map(|&cpu| Cpus([cpu].into())).collect();
    usable(groups, allowed).unwrap_or_else(one_each)
}

/// The allowed CPUs of each NUMA node that has any; a machine that names no nodes is one node.
pub(crate) fn nodes(allowed: &Cpus) -> Vec<Cpus> {
    usable(found::nodes(), allowed).unwrap_or_else(|| vec![allowed.clone()])
}

/// Cuts groups down to the allowed CPUs; `None` where they don't cover those.
fn usable(groups: Vec<Cpus>, allowed: &Cpus) -> Option<Vec<Cpus>> {
    let mut groups: Vec<Cpus> = groups.iter().map(|group| group.within(allowed)).collect();
    groups.retain(|group| group.len() > 0);
    groups.sort_by_key(|group| group.0.first().copied());
    groups.dedup();
    let covered: BTreeSet<usize> =
        groups.iter().flat_map(|group| group.0.iter().copied()).collect();
    (covered == allowed.0 && !groups.is_empty()).then_some(groups)
}

/// What Linux says under /sys; elsewhere these files are absent and nothing is found.
#[cfg(not(feature = "hwloc"))]
mod found {
    use super::Cpus;
    use std::fs;

    fn list(path: &str) -> Option<Cpus> {
        Cpus::parse_ranks(fs::read_to_string(path).ok()?.trim()).ok()
    }

    pub(super) fn cores(allowed: &Cpus) -> Vec<Cpus> {
        let siblings =
            |cpu| list(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        allowed.0.iter().filter_map(siblings).collect()
    }

    pub(super) fn nodes() -> Vec<Cpus> {
        let root = "/sys/devices/system/node";
        let online = list(&format!("{root}/online")).unwrap_or_default();
        online.0.iter().filter_map(|node| list(&format!("{root}/node{node}/cpulist"))).collect()
    }
}

/// What the library hwloc says.
#[cfg(feature = "hwloc")]
mod found {
    use super::Cpus;
    use hwlocality::Topology;
    use hwlocality::object::types::ObjectType;

    fn objects(kind: ObjectType) -> Vec<Cpus> {
        let Ok(topology) = Topology::new() else { return Vec::new() };
        topology
            .objects_with_type(kind)
            .filter_map(|object| object.cpuset())
            .map(|set| Cpus(set.iter_set().map(usize::from).collect()))
            .collect()
    }

    pub(super) fn cores(_allowed: &Cpus) -> Vec<Cpus> {
        objects(ObjectType::Core)
    }

    pub(super) fn nodes() -> Vec<Cpus> {
        objects(ObjectType::NUMANode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip() {
        let set = Cpus::parse_ranks("7,0-2,4,5").unwrap();
        assert_eq!(set.to_string(), "0-2,4-5,7");
        for nonsense in ["", "a", "1-", "-1", "2-1", "0-99999999999", "1,,2"] {
            assert!(Cpus::parse_ranks(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn groups_are_cut_to_what_is_allowed() {
        let set = |list| Cpus::parse_ranks(list).unwrap();
        let groups = vec![set("0,4"), set("1,5"), set("0,4"), set("2,6")];
        assert_eq!(usable(groups.clone(), &set("0,1,5")), Some(vec![set("0"), set("1,5")]));
        assert_eq!(usable(groups, &set("0,3")), None);
    }

    #[test]
    fn this_machine_has_cores_and_nodes() {
        let allowed = allowed();
        assert!(!cores(&allowed).is_empty() && !nodes(&allowed).is_empty());
    }
}
