//! The values that options take, and how they are read.

use std::time::Duration;

use clap::ValueEnum;
use spmd_core::boot::Resources;
use spmd_core::internal::nearest;

use crate::topology::Cpus;

/// Which CPUs each rank may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    None,
    Core,
    Numa,
    /// Rank i uses item i, in turn.
    List(Vec<Cpus>),
}

/// Who reads the launcher's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stdin {
    Rank(usize),
    All,
    None,
}

pub(crate) fn rank_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a job has at least one rank".into()),
        Ok(count) => Ok(count),
        Err(_) => Err("write a whole number of ranks, such as 4".into()),
    }
}

pub(crate) fn bind(text: &str) -> Result<Bind, String> {
    match text {
        "none" => Ok(Bind::None),
        "core" => Ok(Bind::Core),
        "numa" => Ok(Bind::Numa),
        list => {
            let items: Result<Vec<Cpus>, String> = list.split(',').map(Cpus::parse).collect();
            items.map(Bind::List).map_err(|error| {
                let meant = nearest(list, ["none", "core", "numa"]);
                let why = meant.map_or(error, |name| format!("{name} may be meant"));
                format!("{why}; write none, core, numa or a list of CPUs")
            })
        }
    }
}

pub(super) fn stdin(text: &str) -> Result<Stdin, String> {
    match text {
        "all" => Ok(Stdin::All),
        "none" => Ok(Stdin::None),
        rank => rank.parse().map(Stdin::Rank).map_err(|_| "write a rank, all or none".into()),
    }
}

/// Reads `90`, `1.5`, `500ms`, `2s`, `3m` or `1h`; a number alone is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = number.trim().parse::<f64>().unwrap_or(f64::NAN) * scale;
    // A billion seconds is 31 years; the bound keeps sums with an instant from overflowing.
    if !(0.0..=1e9).contains(&seconds) {
        return Err("write seconds, or a number with ms, s, m or h, such as 90 or 1.5m".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads what the library takes for a time limit: seconds, without a unit.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(_) => positive_duration(text),
        Err(_) => Err("write seconds, such as 90 or 0.5".into()),
    }
}

pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a time limit must be longer than zero".into()),
        limit => Ok(limit),
    }
}

/// What a process has for tasks: the text, if it says that.
pub(crate) fn resources(text: &str) -> Result<String, String> {
    text.parse::<Resources>().map(|_| text.to_owned())
}

/// Reads one of the names of an option's values.
pub(crate) fn named<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, true).map_err(|_| {
        let names: Vec<String> = T::value_variants()
            .iter()
            .filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()))
            .collect();
        let meant = nearest(text, names.iter().map(String::as_str));
        let meant = meant.map_or(String::new(), |name| format!("{name} may be meant; "));
        format!("{meant}write one of {}", names.join(", "))
    })
}

/// Reads a number of bytes, from 1 on.
pub(crate) fn bytes(text: &str) -> Result<Option<usize>, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.map(Some).ok_or_else(|| "write a whole number of bytes, such as 1073741824".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for nonsense in ["", "s", "-1", "nan", "inf", "1e99", "3 weeks", "1.2.3"] {
            assert!(duration(nonsense).is_err(), "{nonsense}");
        }
        assert!(positive_duration("0").is_err());
    }

    #[test]
    fn binding_lists() {
        let Ok(Bind::List(items)) = bind("0-1,5") else { panic!("refused") };
        assert_eq!(items.len(), 2);
        assert!(bind("cores").is_err() && bind("3-1").is_err() && bind("").is_err());
    }
}
