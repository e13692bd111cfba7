//! What a rank can see of its host; nothing, where the system does not say something.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One host of a world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// Ranks on it.
    pub(crate) ranks: usize,
    /// `Linux 6.18.0, x86_64`
    pub(crate) system: String,
    /// The processor's model.
    pub(crate) cpu: Option<String>,
    pub(crate) sockets: Option<usize>,
    pub(crate) cores: Option<usize>,
    /// CPUs that the rank which wrote this may use.
    pub(crate) usable_cpus: usize,
    pub(crate) memory_bytes: Option<u64>,
    /// Interfaces that have a device or were used, and what each sent while it was measured.
    pub(crate) interfaces: Vec<Interface>,
}

/// A network interface, or a port of an InfiniBand adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// As the system gives it: `25000 Mb/s`.
    pub(crate) rate: Option<String>,
    pub(crate) sent_bytes: u64,
}

impl Host {
    /// This one, on which there are so many ranks and whose interfaces were like that before.
    pub(super) fn here(ranks: usize, before: &[Interface]) -> Host {
        let kernel = read("/proc/sys/kernel/osrelease");
        let kernel = kernel.map_or(std::env::consts::OS.into(), |it| format!("Linux {it}"));
        let packages = topology("physical_package_id");
        let pairs = packages.iter().zip(topology("core_id"));
        let cores: BTreeSet<_> = pairs.collect();
        let sockets: BTreeSet<_> = packages.iter().collect();
        let known = |count: usize| Some(count).filter(|count| *count > 0);
        Host {
            name: read("/proc/sys/kernel/hostname").unwrap_or("unknown".into()),
            ranks,
            system: format!("{kernel}, {}", std::env::consts::ARCH),
            cpu: field("/proc/cpuinfo", "model name"),
            sockets: known(sockets.len()),
            cores: known(cores.len()),
            usable_cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: field("/proc/meminfo", "MemTotal").and_then(|text| {
                let kilobytes: u64 = text.strip_suffix(" kB")?.parse().ok()?;
                kilobytes.checked_mul(1024)
            }),
            interfaces: since(before, interfaces()),
        }
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// What follows the first `NAME :` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = read(path)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// A property of each CPU, in one order.
fn topology(property: &str) -> Vec<String> {
    let cpu = |number| read(format!("/sys/devices/system/cpu/cpu{number}/topology/{property}"));
    let most = entries("/sys/devices/system/cpu").len();
    (0..most).filter_map(cpu).collect()
}

/// The entries of a folder, in order.
fn entries(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The interfaces of this process's network, and what each has sent since the system started.
pub(super) fn interfaces() -> Vec<Interface> {
    let mut found = read("/proc/net/dev").map(|table| network(&table)).unwrap_or_default();
    for adapter in entries("/sys/class/infiniband") {
        for port in entries(adapter.join("ports")) {
            // The counter counts words of four bytes.
            let words = read(port.join("counters/port_xmit_data"));
            let words = words.and_then(|words| words.parse::<u64>().ok()).unwrap_or(0);
            found.push(Interface {
                name: format!("{} port {}", name(&adapter), name(&port)),
                rate: read(port.join("rate")),
                sent_bytes: words.saturating_mul(4),
            });
        }
    }
    found
}

/// Reads `/proc/net/dev`: two lines of headings, then eight figures of what each interface got and
/// as many of what it sent.
fn network(table: &str) -> Vec<Interface> {
    let interface = |line: &str| {
        let (name, figures) = line.trim().split_once(':')?;
        let sent_bytes = figures.split_whitespace().nth(8)?.parse().ok()?;
        let speed = read(format!("/sys/class/net/{name}/speed"));
        let speed = speed.and_then(|speed| speed.parse::<i64>().ok()).filter(|speed| *speed > 0);
        let rate = speed.map(|speed| format!("{speed} Mb/s"));
        Some(Interface { name: name.to_owned(), rate, sent_bytes })
    };
    table.lines().skip(2).filter_map(interface).collect()
}

/// The interfaces with what they have sent between two looks; those without a device that have sent
/// nothing are left out.
fn since(before: &[Interface], now: Vec<Interface>) -> Vec<Interface> {
    let has_device = |it: &Interface| {
        it.name.contains(" port ")
            || Path::new("/sys/class/net").join(&it.name).join("device").exists()
    };
    let mut left = now;
    for interface in &mut left {
        let known = before.iter().find(|known| known.name == interface.name);
        let sent = known.map_or(0, |known| known.sent_bytes);
        interface.sent_bytes = interface.sent_bytes.saturating_sub(sent);
    }
    left.retain(|interface| interface.sent_bytes > 0 || has_device(interface));
    left
}

/// Libraries that this process has loaded and through which MPI reaches a network: libfabric and
/// its providers, UCX and its transports, and what they stand on.
pub(super) fn network_libraries() -> Vec<String> {
    const NAMES: [&str; 8] =
        ["libfabric", "-fi.so", "libucp", "libuct", "libpsm", "libibverbs", "libmlx", "libcxi"];
    let maps = read("/proc/self/maps").unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.rsplit_once('/').map(|(_, file)| file));
    let mine = files.filter(|file| NAMES.iter().any(|name| file.contains(name)));
    let mine: BTreeSet<String> = mine.map(str::to_owned).collect();
    mine.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_meanwhile() {
        let table = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 500 10\n  \
                     none-such: 1 2 3 4 5 6 7 8 70 10 11\n idle-one:0 0 0 0 0 0 0 0 9 0\n";
        let mut before = network(table);
        before[0].sent_bytes = 100;
        before[1].sent_bytes = 0;
        let sent: Vec<_> =
            since(&before, network(table)).into_iter().map(|it| (it.name, it.sent_bytes)).collect();
        assert_eq!(sent, [("lo".to_owned(), 400), ("none-such".to_owned(), 70)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_host() {
        let host = Host::here(2, &[]);
        assert!(host.system.starts_with("Linux ") && host.memory_bytes.unwrap() > 1 << 20);
        assert!(host.usable_cpus > 0 && !host.name.is_empty(), "{host:?}");
    }
}
