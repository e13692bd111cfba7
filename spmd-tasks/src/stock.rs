//! What there is of a process's resources, and what of it is free.

use std::collections::BTreeMap;

use spmd_core::internal::{PARTS, Resource, Resources};

use crate::request::{Asks, Request, Units, amount};

/// What there is of each resource, by its name.
pub(crate) struct Stock(BTreeMap<Box<str>, Kept>);

enum Kept {
    /// In millionths.
    Amount {
        all: u64,
        free: u64,
    },
    Units(Vec<Group>),
}

/// Units that belong together, each with whether it is free.
struct Group(Vec<(u32, bool)>);

impl Group {
    fn free(&self) -> usize {
        self.0.iter().filter(|(_, free)| *free).count()
    }
}

impl Stock {
    pub(crate) fn new(declared: &Resources) -> Stock {
        let kept = |resource: &Resource| match resource {
            Resource::Amount(all) => Kept::Amount { all: *all, free: *all },
            Resource::Units(groups) => Kept::Units(
                groups
                    .iter()
                    .map(|group| Group(group.iter().map(|it| (*it, true)).collect()))
                    .collect(),
            ),
        };
        Stock(declared.named().iter().map(|(name, it)| (name.as_str().into(), kept(it))).collect())
    }

    /// Why a request can never be met, if so.
    pub(crate) fn lacks(&self, request: &Request) -> Option<String> {
        request.amounts.iter().find_map(|(name, parts)| {
            let asked = amount(*parts);
            match self.0.get(name) {
                None => Some(format!(
                    "it asks for {asked} {name}, of which this process has none: declare it by \
                     `spmdrun --resources` or `Spmd::resources`"
                )),
                Some(Kept::Amount { all, .. }) if parts > all => Some(format!(
                    "it asks for {asked} {name}, and this process has {}",
                    amount(*all)
                )),
                Some(Kept::Units(_)) if parts % PARTS != 0 => {
                    Some(format!("it asks for {asked} {name}, which has whole units"))
                }
                Some(Kept::Units(groups)) => {
                    let only = only(groups, name, request);
                    let groups = only.as_ref().unwrap_or(groups);
                    let all: usize = groups.iter().map(|group| group.0.len()).sum();
                    let of = request.gpus.as_ref().filter(|_| only.is_some());
                    let of = of.map(|gpus| format!(" of {gpus:?}, its scope")).unwrap_or_default();
                    (parts / PARTS > all as u64).then(|| {
                        format!("it asks for {asked} {name}{of}, and this process has {all}")
                    })
                }
                Some(Kept::Amount { .. }) => None,
            }
        })
    }

    /// The units of a resource, lowest first.
    pub(crate) fn units(&self, name: &str) -> Vec<u32> {
        let Some(Kept::Units(groups)) = self.0.get(name) else { return Vec::new() };
        let mut units: Vec<u32> =
            groups.iter().flat_map(|group| &group.0).map(|(unit, _)| *unit).collect();
        units.sort_unstable();
        units
    }

    /// Takes what a task asks for, if all of that is free. Gives the units that it takes.
    pub(crate) fn take(&mut self, asks: &Asks) -> Option<Units> {
        let prefers = asks.prefers();
        let mut taken = Units::new();
        for (name, parts) in &asks.request.amounts {
            match &self.0[name] {
                Kept::Amount { free, .. } if parts > free => return None,
                Kept::Amount { .. } => {}
                Kept::Units(groups) => {
                    let (count, prefers) = ((parts / PARTS) as usize, |unit| prefers(name, unit));
                    let units = match only(groups, name, &asks.request) {
                        None => pick(groups, count, prefers),
                        Some(groups) => pick(&groups, count, prefers),
                    };
                    taken.push((name.clone(), units?));
                }
            }
        }
        self.set(&asks.request, &taken, false);
        Some(taken)
    }

    /// Gives back what a task was given.
    pub(crate) fn give_back(&mut self, asks: &Asks) {
        self.set(&asks.request, &asks.granted(), true);
    }

    fn set(&mut self, request: &Request, units: &Units, is_free: bool) {
        for (name, parts) in &request.amounts {
            match self.0.get_mut(name) {
                Some(Kept::Amount { free, .. }) if is_free => *free += parts,
                Some(Kept::Amount { free, .. }) => *free -= parts,
                Some(Kept::Units(groups)) => {
                    let of_name = units.iter().filter(|(it, _)| it == name).flat_map(|it| &it.1);
                    for unit in of_name {
                        let all = groups.iter_mut().flat_map(|group| &mut group.0);
                        all.filter(|(it, _)| it == unit).for_each(|(_, free)| *free = is_free);
                    }
                }
                None => {}
            }
        }
    }
}

/// Those of a resource's units that the request's scope has, if it has not all.
fn only(groups: &[Group], name: &str, request: &Request) -> Option<Vec<Group>> {
    let gpus = request.gpus.as_ref().filter(|_| name == "gpu")?;
    let of_scope = |group: &Group| {
        Group(group.0.iter().filter(|(unit, _)| gpus.contains(unit)).copied().collect())
    };
    Some(groups.iter().map(of_scope).filter(|group| !group.0.is_empty()).collect())
}

/// So many free units: of one group, if one is large enough, of the one with the most preferred units
/// and then of the fullest; else of as few groups as may be.
fn pick(groups: &[Group], count: usize, prefers: impl Fn(u32) -> bool) -> Option<Vec<u32>> {
    let fits_one = groups.iter().any(|group| group.0.len() >= count);
    let mut order: Vec<&Group> =
        groups.iter().filter(|group| group.free() >= if fits_one { count } else { 1 }).collect();
    order.sort_by_key(|group| {
        let preferred = group.0.iter().filter(|(unit, free)| *free && prefers(*unit)).count();
        let free = group.free();
        // A small request leaves room for large ones, a large one takes whole groups.
        let room = if fits_one { free } else { usize::MAX - free };
        (usize::MAX - preferred.min(count), room)
    });
    let mut units = Vec::with_capacity(count);
    for group in order {
        let mut free: Vec<u32> =
            group.0.iter().filter(|(_, free)| *free).map(|(unit, _)| *unit).collect();
        free.sort_by_key(|unit| !prefers(*unit));
        units.extend(free.into_iter().take(count - units.len()));
        if units.len() == count {
            units.sort_unstable();
            return Some(units);
        }
    }
    (count == 0).then(Vec::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(name: &str, parts: u64) -> Asks {
        let mut request = Request::default();
        request.add(name, parts);
        Asks::new(request)
    }

    fn take(stock: &mut Stock, count: u64) -> Option<(Asks, Vec<u32>)> {
        let asks = asks("gpu", count * PARTS);
        let units = stock.take(&asks)?;
        asks.grant(units.clone());
        let units = units.into_iter().flat_map(|(_, units)| units).collect();
        Some((asks, units))
    }

    #[test]
    fn a_request_stays_in_a_group_that_is_large_enough() {
        let mut stock = Stock::new(&"gpu=(0,1),(2,3)".parse().unwrap());
        let (one, units) = take(&mut stock, 1).unwrap();
        assert_eq!(units, [0]);
        let (two, units) = take(&mut stock, 2).unwrap();
        assert_eq!(units, [2, 3]);
        assert!(take(&mut stock, 2).is_none(), "1 is free alone");
        let (other, units) = take(&mut stock, 1).unwrap();
        assert_eq!(units, [1]);
        stock.give_back(&two);
        stock.give_back(&other);
        // 1 and 2 are free, 3, too: but two of a group.
        assert_eq!(take(&mut stock, 2).unwrap().1, [2, 3]);
        stock.give_back(&one);
        assert_eq!(take(&mut stock, 1).unwrap().1, [0]);
    }

    #[test]
    fn a_larger_one_takes_whole_groups() {
        let mut stock = Stock::new(&"gpu=(0,1),(2,3),(4)".parse().unwrap());
        let (all, units) = take(&mut stock, 4).unwrap();
        assert_eq!(units, [0, 1, 2, 3]);
        stock.give_back(&all);
        let (_, units) = take(&mut stock, 1).unwrap();
        assert_eq!(units, [4], "the smallest group that has it");
        assert_eq!(take(&mut stock, 3).unwrap().1, [0, 1, 2]);
        assert!(take(&mut stock, 2).is_none());
    }

    #[test]
    fn units_of_inputs_come_first() {
        let mut stock = Stock::new(&"gpu=(0,1),(2,3)".parse().unwrap());
        let before = asks("gpu", PARTS);
        before.grant(vec![("gpu".into(), vec![3])]);
        let after = asks("gpu", PARTS);
        after.is_near(&before);
        assert_eq!(stock.take(&after).unwrap(), [("gpu".into(), vec![3])]);
    }

    #[test]
    fn amounts_have_fractions() {
        let mut stock = Stock::new(&"license=1".parse().unwrap());
        let third = || asks("license", PARTS / 3);
        let taken = [(); 3].map(|()| third());
        taken.iter().for_each(|it| it.grant(stock.take(it).unwrap()));
        assert!(stock.take(&third()).is_none());
        stock.give_back(&taken[0]);
        assert!(stock.take(&third()).is_some());
    }

    #[test]
    fn what_there_is_not() {
        let stock = Stock::new(&"gpu=2;license=1.5".parse().unwrap());
        let lacks = |name: &str, parts| stock.lacks(&asks(name, parts).request);
        assert!(lacks("gpu", 2 * PARTS).is_none() && lacks("license", 3 * PARTS / 2).is_none());
        assert!(
            lacks("gpu", 3 * PARTS).unwrap().contains("it asks for 3 gpu, and this process has 2")
        );
        assert!(lacks("gpu", PARTS / 2).unwrap().contains("whole units"));
        assert!(lacks("license", 2 * PARTS).unwrap().contains("has 1.5"));
        assert!(lacks("fpga", PARTS).unwrap().contains("--resources"));
    }
}
