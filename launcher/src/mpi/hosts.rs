//! The hosts of a job: `--host`, `--hostfile`, and how many processes each of them gets.

use std::net::ToSocketAddrs;
use std::path::Path;

use crate::error::Error;

/// A host that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// How many ranks it has room for; without it, as many as it gets.
    pub(crate) slots: Option<usize>,
    /// Where it was named, for errors.
    place: String,
}

/// Reads what `--host` gives.
pub(crate) fn from_list(items: &[String]) -> Result<Vec<Host>, Error> {
    let hosts = items.iter().map(|item| host(item, format!("--host {item}")));
    hosts.collect::<Result<_, _>>().map(merged)
}

/// Reads a hostfile: a host a line, as `name`, `name:4` or `name slots=4`; `#` begins a comment.
pub(crate) fn from_file(path: &Path) -> Result<Vec<Host>, Error> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::Usage(format!("cannot read the hostfile {shown}: {error}")))?;
    from_text(&text, &shown.to_string())
}

/// Reads what a hostfile of this name holds.
pub(crate) fn from_text(text: &str, shown: &str) -> Result<Vec<Host>, Error> {
    let mut hosts = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            hosts.push(host(line, format!("hostfile {shown}, line {}", number + 1))?);
        }
    }
    match hosts.is_empty() {
        true => Err(Error::Usage(format!("the hostfile {shown} names no host; write one a line"))),
        false => Ok(merged(hosts)),
    }
}

fn host(text: &str, place: String) -> Result<Host, Error> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or("");
    let (name, mut slots) = match first.split_once(':') {
        Some((name, slots)) => (name, Some(slots)),
        None => (first, None),
    };
    let mut understood = !name.is_empty() && !name.starts_with('-');
    for word in words {
        let value = word.strip_prefix("slots=");
        understood &= value.is_some() && slots.is_none();
        slots = value;
    }
    // Of 32 bits, so that sums over a file do not overflow.
    let number = |slots: &str| slots.parse().ok().filter(|&slots: &u32| slots > 0);
    let number = slots.map(|slots| number(slots).map(|slots| slots as usize));
    if !understood || number == Some(None) {
        return Err(Error::Usage(format!(
            "{place}: `{text}` is not a host; write NAME, NAME:4 or, in a file, NAME slots=4"
        )));
    }
    Ok(Host { name: name.to_owned(), slots: number.flatten(), place })
}

/// A host that is named several times, as batch systems write it, has a slot for each time.
fn merged(hosts: Vec<Host>) -> Vec<Host> {
    let mut all: Vec<Host> = Vec::new();
    for host in hosts {
        match all.iter_mut().find(|known| known.name == host.name) {
            Some(known) => {
                known.slots = Some(known.slots.unwrap_or(1) + host.slots.unwrap_or(1));
            }
            None => all.push(host),
        }
    }
    all
}

/// Whether this machine knows an address for the name.
pub(crate) fn has_address(name: &str) -> bool {
    (name, 0).to_socket_addrs().is_ok_and(|mut addresses| addresses.next().is_some())
}

/// Errors: a host that `known` denies.
pub(crate) fn check(hosts: &[Host], known: impl Fn(&str) -> bool) -> Result<(), Error> {
    match hosts.iter().find(|host| !known(&host.name)) {
        None => Ok(()),
        Some(Host { name, place, .. }) => Err(Error::Usage(format!(
            "{place}: no address is known for the host {name}; correct the name (`getent hosts \
             {name}` shows what it means here)"
        ))),
    }
}

/// All slots, where every host says how many it has.
pub(crate) fn slots(hosts: &[Host]) -> Option<usize> {
    hosts.iter().map(|host| host.slots).sum::<Option<usize>>().filter(|&slots| slots > 0)
}

/// Variables, or starts of their names, by which batch systems and users name hosts to MPI
/// launchers.
const NAMED_BY: [&str; 12] = [
    "SLURM_",
    "PBS_",
    "LSB_",
    "PE_HOSTFILE",
    "LOADL_",
    "COBALT_",
    "FLUX_",
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST",
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_prte_default_hostfile",
    "PRTE_MCA_",
];

/// Whether all processes are on this host: none was named, and nothing names some to the launcher.
pub(crate) fn is_this_alone(named: &[Host]) -> bool {
    let names = |name: std::ffi::OsString| {
        let name = name.to_string_lossy().into_owned();
        NAMED_BY.iter().any(|start| name.starts_with(start))
    };
    named.is_empty() && !std::env::vars_os().any(|(name, _)| names(name))
}

/// How many processes of `each` ranks go to which host, neighbours in rank side by side: hosts
/// that say their slots are filled, the others share the rest.
pub(crate) fn share(
    hosts: &[Host],
    processes: usize,
    each: usize,
) -> Result<Vec<(String, usize)>, Error> {
    let room = |host: &Host| host.slots.map(|slots| slots / each);
    let limited: usize = hosts.iter().filter_map(room).sum();
    let open = hosts.iter().filter(|host| host.slots.is_none()).count();
    if !hosts.is_empty() && open == 0 && processes > limited {
        let list: Vec<String> =
            hosts.iter().map(|host| format!("{}:{}", host.name, host.slots.unwrap_or(0))).collect();
        let fit = match each {
            1 => String::new(),
            _ => format!(", which hold {limited} processes of {each} ranks"),
        };
        return Err(Error::Usage(format!(
            "{} ranks are more than the slots of the hosts ({}){fit}; use fewer ranks, more \
             hosts, or give them more slots",
            processes.saturating_mul(each),
            list.join(", ")
        )));
    }
    let share = processes.saturating_sub(limited).div_ceil(open.max(1));
    let mut left = processes;
    let mut shares: Vec<(String, usize)> = Vec::new();
    for host in hosts {
        let count = room(host).unwrap_or(share).min(left);
        left -= count;
        if count > 0 {
            shares.push((host.name.clone(), count));
        }
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &str) -> Vec<Host> {
        from_list(&list.split(',').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    fn shares(list: &str, processes: usize, each: usize) -> String {
        let shares = share(&hosts(list), processes, each).unwrap();
        let texts: Vec<String> = shares.iter().map(|(host, n)| format!("{host}:{n}")).collect();
        texts.join(" ")
    }

    #[test]
    fn processes_are_shared_out_in_order() {
        assert_eq!(shares("a:2,b:4", 3, 1), "a:2 b:1");
        assert_eq!(shares("a,b,c", 7, 1), "a:3 b:3 c:1");
        assert_eq!(shares("a:2,b", 7, 1), "a:2 b:5");
        assert_eq!(shares("a:4,b", 3, 1), "a:3");
        assert_eq!(shares("a,a,b:2", 4, 1), "a:2 b:2");
        assert_eq!(shares("a:8,b:8", 3, 4), "a:2 b:1");
    }

    #[test]
    fn too_many_ranks() {
        let error = share(&hosts("a:2,b:4"), 7, 1).unwrap_err().to_string();
        assert!(error.contains("7 ranks") && error.contains("a:2, b:4"), "{error}");
        let error = share(&hosts("a:7"), 2, 4).unwrap_err().to_string();
        assert!(error.contains("8 ranks") && error.contains("1 processes of 4"), "{error}");
    }

    #[test]
    fn numbers_beyond_all_bounds() {
        assert!(from_list(&["a:4294967296".into()]).is_err());
        let most = hosts("a:4294967295,a:4294967295,b:4294967295");
        assert_eq!(slots(&most), Some(3 * 4_294_967_295));
        let error = share(&most, usize::MAX, 3).unwrap_err().to_string();
        assert!(error.contains("more than the slots"), "{error}");
    }

    #[test]
    fn a_hostfile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        std::fs::write(&path, "# ours\na\n\n b slots=4 # big\nc:2\nc\n").unwrap();
        let hosts = from_file(&path).unwrap();
        let read: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect();
        assert_eq!(read, [("a", None), ("b", Some(4)), ("c", Some(3))]);
        assert_eq!(slots(&hosts), None);
        let error = check(&hosts, |name| name != "b").unwrap_err().to_string();
        assert!(error.contains("line 4") && error.contains("the host b"), "{error}");
        for nonsense in ["a b", "a slots=0", "a:x", "a:1 slots=2", ":3", "-n", "# nothing"] {
            std::fs::write(&path, nonsense).unwrap();
            assert!(from_file(&path).is_err(), "{nonsense}");
        }
    }
}
