//! `--as gpus`: process ranks, each with a GPU of its own or shared with its neighbours.
//!
//! A job on this host has its GPUs found here, for all ranks at once. Under an MPI launcher each process
//! does that on its own host, for those that are there (`mpi/on_gpu.rs`).

use std::fs;
use std::path::Path;

use crate::args::Bind;
use crate::error::{Error, usage};
use crate::topology::Cpus;

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    /// By what `CUDA_VISIBLE_DEVICES` names it.
    uuid: String,
    /// The CPUs near it, where the system says which these are.
    near: Option<Cpus>,
}

/// What a job asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// These of a host, by the driver's numbers; all without it.
    pub(crate) named: Option<Cpus>,
    /// How many ranks share each.
    pub(crate) each: usize,
    /// Whether ranks run on the CPUs near their GPU, as nobody says on which.
    pub(crate) near: bool,
}

/// The GPUs of a host for a job's ranks there, and how many of these share each.
pub(crate) struct Gpus {
    all: Vec<Gpu>,
    each: usize,
}

impl Gpus {
    /// Those that the driver shows here, or of these the ones that are named.
    ///
    /// Errors: there is no driver, no GPU, or none of such a number.
    pub(crate) fn find(wanted: &Wanted) -> Result<Gpus, Error> {
        let all = visible().map_err(|why| Error::Usage(format!("--as gpus: {why}")))?;
        Gpus::among(all, wanted.named.as_ref(), wanted.each)
    }

    fn among(all: Vec<Gpu>, named: Option<&Cpus>, each: usize) -> Result<Gpus, Error> {
        if all.is_empty() {
            return usage(
                "--as gpus: the driver shows no GPU here (`nvidia-smi` lists those of the \
                 machine, CUDA_VISIBLE_DEVICES may hide them)"
                    .into(),
            );
        }
        let Some(named) = named else { return Ok(Gpus { all, each }) };
        let chosen = named.0.iter().map(|&number| {
            all.get(number).cloned().ok_or_else(|| {
                let last = all.len() - 1;
                Error::Usage(format!(
                    "--gpus: no GPU {number}; those of this machine are 0 to {last}"
                ))
            })
        });
        Ok(Gpus { all: chosen.collect::<Result<_, _>>()?, each })
    }

    /// How many ranks they are for.
    pub(crate) fn room(&self) -> usize {
        self.all.len().saturating_mul(self.each)
    }

    /// Errors: there are fewer than so many ranks need.
    pub(crate) fn check(&self, ranks: usize) -> Result<(), Error> {
        if ranks <= self.room() {
            return Ok(());
        }
        let (gpus, needed) = (self.all.len(), ranks.div_ceil(self.each));
        let shown = std::env::var("CUDA_VISIBLE_DEVICES");
        let shown =
            shown.map(|it| format!(" (CUDA_VISIBLE_DEVICES is '{it}')")).unwrap_or_default();
        usage(format!(
            "--as gpus: {ranks} ranks need {needed} GPUs, and there are {gpus}{shown}; start at most \
             {}, or have ranks share one: --ranks-per-gpu {}",
            self.room(),
            ranks.div_ceil(gpus),
        ))
    }

    /// The GPU of a rank, as `CUDA_VISIBLE_DEVICES` names it: neighbours share one.
    pub(crate) fn of(&self, rank: usize) -> &str {
        &self.all[rank / self.each].uuid
    }

    /// Each rank near its GPU, if that is known of all and this process may use some CPU there.
    pub(crate) fn binding(&self, ranks: usize, allowed: &Cpus) -> Bind {
        let near = |rank: usize| {
            let near = self.all[rank / self.each].near.as_ref()?.within(allowed);
            (near.len() > 0).then_some(near)
        };
        (0..ranks).map(near).collect::<Option<_>>().map_or(Bind::None, Bind::List)
    }
}

#[cfg(feature = "gpu")]
fn visible() -> Result<Vec<Gpu>, String> {
    let listed = spmd_gpu::devices().map_err(|error| error.to_string())?;
    let near = |pci: &str| {
        let file = Path::new("/sys/bus/pci/devices").join(pci).join("local_cpulist");
        Cpus::parse_ranks(fs::read_to_string(file).ok()?.trim()).ok()
    };
    Ok(listed.into_iter().map(|it| Gpu { near: near(&it.pci), uuid: it.uuid }).collect())
}

#[cfg(not(feature = "gpu"))]
fn visible() -> Result<Vec<Gpu>, String> {
    Err("this spmdrun was built without the feature gpu".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: usize) -> Vec<Gpu> {
        let near = |number: usize| Cpus::parse_ranks(&format!("{}-{}", 4 * number, 4 * number + 3));
        let gpu = |number| Gpu { uuid: format!("GPU-{number}"), near: near(number).ok() };
        (0..count).map(gpu).collect()
    }

    #[test]
    fn neighbours_share_a_gpu() {
        let gpus = Gpus::among(some(3), None, 2).unwrap();
        let of: Vec<&str> = (0..6).map(|rank| gpus.of(rank)).collect();
        assert_eq!(of, ["GPU-0", "GPU-0", "GPU-1", "GPU-1", "GPU-2", "GPU-2"]);
        assert!(gpus.room() == 6 && gpus.check(6).is_ok());
        let allowed = Cpus::parse_ranks("0-5").unwrap();
        let Bind::List(sets) = gpus.binding(4, &allowed) else { panic!("no binding") };
        let sets: Vec<String> = sets.iter().map(Cpus::to_string).collect();
        assert_eq!(sets, ["0-3", "0-3", "4-5", "4-5"]);
        // Of the third none may be used.
        assert_eq!(gpus.binding(5, &allowed), Bind::None);
    }

    #[test]
    fn too_few_are_told_with_both_numbers() {
        let error = Gpus::among(some(2), None, 1).unwrap().check(5).unwrap_err().to_string();
        assert!(error.contains("5 ranks need 5 GPUs, and there are 2"), "{error}");
        assert!(error.contains("--ranks-per-gpu 3"), "{error}");
        let named = Cpus::parse_ranks("1,7").unwrap();
        let error = Gpus::among(some(2), Some(&named), 1).err().unwrap().to_string();
        assert!(error.contains("no GPU 7") && error.contains("0 to 1"), "{error}");
        let error = Gpus::among(Vec::new(), None, 1).err().unwrap().to_string();
        assert!(error.contains("nvidia-smi"), "{error}");
    }
}
