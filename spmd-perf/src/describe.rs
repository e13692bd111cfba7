//! `--describe`: what the ranks run on, each host as one of its own ranks sees it.

mod host;

use serde::{Deserialize, Serialize};
use spmd::prelude::*;

pub(crate) use host::{Host, Interface};

/// The hosts of a world and what joins them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The version of this program.
    pub(crate) spmd_perf: String,
    /// The compiler that built it.
    pub(crate) rustc: String,
    /// The MPI library, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) library: Option<String>,
    /// Files of network libraries that MPI has loaded on the first host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) network_libraries: Vec<String>,
    pub(crate) hosts: Vec<Host>,
}

/// The line of `--json` that holds it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) machine: Machine,
}

/// Whether a line of `--json` is a description, and no result.
pub(crate) fn is_description(line: &str) -> bool {
    line.starts_with(r#"{"machine":"#)
}

/// The interfaces as they were before the measurement, so that what was sent in it can be told.
pub(crate) struct Begun {
    /// The ranks of this host.
    host: Comm,
    before: Vec<Interface>,
}

/// All ranks call it before the first measurement.
pub(crate) fn begin(ctx: &Ctx) -> Result<Begun> {
    Ok(Begun { host: ctx.split_host()?, before: host::interfaces() })
}

impl Begun {
    /// All ranks call it after the last measurement; rank 0 gets the description.
    pub(crate) fn end(self, ctx: &Ctx) -> Result<Option<Machine>> {
        let speaks = self.host.rank() == 0;
        let mine = speaks.then(|| Host::here(self.host.size(), &self.before));
        let all = ctx.gather_object(&mine, 0)?;
        Ok(all.map(|all| Machine {
            spmd_perf: env!("CARGO_PKG_VERSION").into(),
            rustc: env!("SPMD_PERF_RUSTC").into(),
            library: ctx.internals().library().map(str::to_owned),
            network_libraries: host::network_libraries(),
            hosts: all.into_iter().flatten().collect(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_described_once() {
        let described = spmd(3, |ctx| begin(ctx)?.end(ctx)).unwrap();
        assert!(described[1].is_none() && described[2].is_none());
        let machine = described[0].clone().unwrap();
        assert_eq!((machine.hosts.len(), machine.hosts[0].ranks), (1, 3));
        assert!(machine.rustc.starts_with("rustc ") && machine.library.is_none());
        let line = serde_json::to_string(&Description { machine: machine.clone() }).unwrap();
        assert!(is_description(&line), "{line}");
        let read: Description = serde_json::from_str(&line).unwrap();
        assert_eq!(read.machine, machine);
    }
}
