//! What the processes of a job have for their tasks besides cores, as it is declared.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Of an amount there are so many parts in one.
pub const PARTS: u64 = 1_000_000;

/// What there is of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// An amount, in millionths.
    Amount(u64),
    /// Units with numbers, in groups that belong together.
    Units(Vec<Vec<u32>>),
}

/// What a process has for its tasks: the resources by their names, as in
/// `gpu=(0,1),(2,3);license=2.5;cpu=4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    named: BTreeMap<String, Resource>,
    workers: Option<usize>,
}

/// What counts workers.
const CPU: &str = "cpu";
/// Of what a plain number means units that are counted from 0.
const GPU: &str = "gpu";
/// The most workers, and the most units of a resource.
const MOST: u64 = 1024;

impl Resources {
    /// How many workers a process has, where that is said.
    pub fn workers(&self) -> Option<usize> {
        self.workers
    }

    /// The others, by their names.
    pub fn named(&self) -> &BTreeMap<String, Resource> {
        &self.named
    }

    /// The same with so many GPUs, where nothing is said of them.
    pub(crate) fn or_gpus(mut self, count: u32) -> Resources {
        if count > 0 && !self.named.contains_key(GPU) {
            self.named.insert(GPU.into(), Resource::Units(vec![(0..count).collect()]));
        }
        self
    }
}

impl FromStr for Resources {
    type Err = String;

    fn from_str(text: &str) -> Result<Resources, String> {
        let mut all = Resources::default();
        for item in text.split(';').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| {
                format!("{item:?} is no resource; write it as gpu=(0,1),(2,3) or license=2.5")
            })?;
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() {
                return Err(format!("{item:?} names no resource"));
            }
            let twice = match name {
                CPU => {
                    let workers = whole(value).ok_or_else(|| {
                        format!("cpu={value} is not a number of workers, 1 to {MOST}")
                    })?;
                    all.workers.replace(workers).is_some()
                }
                _ => all.named.insert(name.into(), resource(name, value)?).is_some(),
            };
            if twice {
                return Err(format!("the resource {name} is there twice"));
            }
        }
        Ok(all)
    }
}

fn whole(text: &str) -> Option<usize> {
    text.parse().ok().filter(|count| (1..=MOST as usize).contains(count))
}

fn resource(name: &str, value: &str) -> Result<Resource, String> {
    if value.starts_with('(') {
        return units(value).map(Resource::Units).ok_or_else(|| {
            format!(
                "{name}={value} is not a list of groups of different numbers such as (0,1),(2,3)"
            )
        });
    }
    if name == GPU {
        let count = whole(value).ok_or_else(|| {
            format!("{name}={value} is not a number of GPUs; write 2, or their numbers as (0,1)")
        })?;
        return Ok(Resource::Units(vec![(0..count as u32).collect()]));
    }
    let parts = value.parse().ok().and_then(parts);
    let parts =
        parts.ok_or_else(|| format!("{name}={value} is not an amount, such as 2 or 0.5"))?;
    Ok(Resource::Amount(parts))
}

/// An amount in millionths, if it is one that there can be.
pub fn parts(amount: f64) -> Option<u64> {
    let parts = (amount * PARTS as f64).round();
    (parts >= 1.0 && parts <= (1u64 << 52) as f64).then_some(parts as u64)
}

/// `(0,1),(2,3)`.
fn units(text: &str) -> Option<Vec<Vec<u32>>> {
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    let mut rest = text;
    loop {
        let (group, after) = rest.strip_prefix('(')?.split_once(')')?;
        let group: Option<Vec<u32>> =
            group.split(',').map(|unit| unit.trim().parse().ok()).collect();
        let group = group?;
        if !group.iter().all(|unit| seen.insert(*unit)) || seen.len() > MOST as usize {
            return None;
        }
        groups.push(group);
        let after = after.trim();
        if after.is_empty() {
            return Some(groups);
        }
        rest = after.strip_prefix(',')?.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_read() {
        let all: Resources = "gpu=(0,1),(2, 3); license=2.5;cpu=4;".parse().unwrap();
        assert_eq!(all.workers(), Some(4));
        assert_eq!(all.named()["gpu"], Resource::Units(vec![vec![0, 1], vec![2, 3]]));
        assert_eq!(all.named()["license"], Resource::Amount(2_500_000));
        let counted: Resources = "gpu=3".parse().unwrap();
        assert_eq!(counted.named()["gpu"], Resource::Units(vec![vec![0, 1, 2]]));
        assert_eq!(counted.clone().or_gpus(8), counted);
        assert_eq!(Resources::default().or_gpus(3).named(), counted.named());
        assert_eq!("".parse(), Ok(Resources::default()));
    }

    #[test]
    fn what_makes_no_sense() {
        for (text, why) in [
            ("gpu", "write it as"),
            ("=3", "names no resource"),
            ("gpu=0", "not a number of GPUs"),
            ("gpu=1.5", "not a number of GPUs"),
            ("gpu=(0,1", "list of groups"),
            ("gpu=(0,1),(1,2)", "list of groups"),
            ("gpu=(0),", "list of groups"),
            ("gpu=()", "list of groups"),
            ("cpu=0", "number of workers"),
            ("cpu=2000", "number of workers"),
            ("license=-1", "not an amount"),
            ("license=nan", "not an amount"),
            ("license=inf", "not an amount"),
            ("license=0.0000001", "not an amount"),
            ("a=1;a=2", "twice"),
            ("cpu=1;cpu=1", "twice"),
        ] {
            let refused = text.parse::<Resources>().unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
