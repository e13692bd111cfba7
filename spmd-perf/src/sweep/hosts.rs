//! The hosts of a sweep, read as `spmdrun` reads them.

use std::fs;

use super::args::SweepArgs;

/// Hosts, in the order in which they are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    pub(crate) names: Vec<String>,
    /// For how many ranks each has room, if that was said: the least of them counts.
    pub(crate) slots: Option<usize>,
}

impl Hosts {
    /// Those of the command line; none, where it names none.
    ///
    /// Errors: the hostfile cannot be read or names none; something else stands where a host
    /// should.
    pub(crate) fn new(args: &SweepArgs) -> Result<Hosts, String> {
        if let Some(path) = &args.hostfile {
            let shown = path.display();
            let text = fs::read_to_string(path)
                .map_err(|error| format!("cannot read the hostfile {shown}: {error}"))?;
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
            let place = |number| format!("hostfile {shown}, line {}", number + 1);
            let lines = lines.enumerate().filter(|(_, line)| !line.is_empty());
            let hosts = Hosts::read(lines.map(|(number, line)| (place(number), line)))?;
            if hosts.names.is_empty() {
                return Err(format!("the hostfile {shown} names no host; write one a line"));
            }
            return Ok(hosts);
        }
        Hosts::read(args.hosts.iter().map(|item| (format!("--hosts {item}"), item.as_str())))
    }

    fn read<'a>(items: impl Iterator<Item = (String, &'a str)>) -> Result<Hosts, String> {
        let mut all: Vec<(String, Option<usize>)> = Vec::new();
        for (place, text) in items {
            let (name, slots) = host(text).ok_or_else(|| {
                format!("{place}: `{text}` is not a host; write NAME, NAME:4 or, in a file, NAME slots=4")
            })?;
            match all.iter_mut().find(|(known, _)| known == name) {
                // Batch systems name a host once for each slot.
                Some((_, known)) => *known = Some(known.unwrap_or(1) + slots.unwrap_or(1)),
                None => all.push((name.to_owned(), slots)),
            }
        }
        let slots = all.iter().filter_map(|(_, slots)| *slots).min();
        Ok(Hosts { names: all.into_iter().map(|(name, _)| name).collect(), slots })
    }
}

fn host(text: &str) -> Option<(&str, Option<usize>)> {
    let mut words = text.split_whitespace();
    let first = words.next()?;
    let (name, mut slots) = match first.split_once(':') {
        Some((name, slots)) => (name, Some(slots)),
        None => (first, None),
    };
    for word in words {
        let value = word.strip_prefix("slots=").filter(|_| slots.is_none())?;
        slots = Some(value);
    }
    let number = slots.map(|slots| slots.parse().ok().filter(|slots: &usize| *slots > 0));
    let named = !name.is_empty() && !name.starts_with('-');
    (named && number != Some(None)).then_some((name, number.flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Hosts, String> {
        Hosts::read(text.lines().map(|line| ("there".to_owned(), line)))
    }

    #[test]
    fn names_and_slots() {
        let hosts = |names: &[&str], slots| {
            Ok(Hosts { names: names.iter().map(|name| (*name).to_owned()).collect(), slots })
        };
        assert_eq!(read("a\nb"), hosts(&["a", "b"], None));
        assert_eq!(read("a:4\nb slots=2\nc"), hosts(&["a", "b", "c"], Some(2)));
        assert_eq!(read("b\nb\na\na\na"), hosts(&["b", "a"], Some(2)));
        for nonsense in ["a b", "a:x", "a:0", "a:1 slots=2", ":3", "-n"] {
            let told = read(nonsense).unwrap_err();
            assert!(told.starts_with("there: ") && told.contains("is not a host"), "{told}");
        }
    }
}
