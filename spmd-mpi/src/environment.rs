//! What launchers tell the processes that they start.

#[cfg(all(unix, target_pointer_width = "64"))]
use spmd_core::{Error, Result};

#[cfg(all(unix, target_pointer_width = "64"))]
use crate::provider::OTHER_LAUNCHER;

/// Variables that only a process under an MPI launcher has: Hydra's (MPICH, Intel MPI), Slurm's
/// with `--mpi=pmi2`, PALS' and Flux's; PMIx's (Slurm with `--mpi=pmix`, PRRTE); Open MPI's;
/// MVAPICH's.
const RANKS: [&str; 4] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"];

/// Variables that hold the number of processes. Slurm's `SLURM_NTASKS` is not one of them: a batch
/// script has it, whose programs run alone.
#[cfg(all(unix, target_pointer_width = "64"))]
const SIZES: [&str; 4] =
    ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", SLURM_STEP_TASKS];

/// The tasks of one `srun`. Of a batch script there is one, and none outside of Slurm.
const SLURM_STEP_TASKS: &str = "SLURM_STEP_NUM_TASKS";

/// Whether an MPI launcher has started the process with these variables. `srun` of several tasks
/// counts, whatever its `--mpi` says: if it joins none of them, [`check_pairing`] says so, where
/// the program would otherwise run as often as there are tasks, each alone.
pub fn launched(variable: impl Fn(&str) -> Option<String>) -> bool {
    RANKS.iter().any(|name| variable(name).is_some())
        || variable(SLURM_STEP_TASKS).is_some_and(|tasks| number(&tasks) > 1)
}

/// That MPI finds as many processes as the launcher has started. Under the launcher of another MPI
/// every process believes to be alone.
#[cfg(all(unix, target_pointer_width = "64"))]
pub fn check_pairing(
    size: usize,
    library: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<()> {
    if size != 1 {
        return Ok(());
    }
    let requests = SIZES.iter().find_map(|name| {
        let said = number(&variable(name)?);
        (said > 1).then_some((name, said))
    });
    let Some((name, said)) = requests else { return Ok(()) };
    Err(Error::unavailable(
        format!("a world of {said} processes"),
        format!(
            "the launcher has started {said} ({name}), but {library} finds this one alone, as it \
             does under the launcher of another MPI"
        ),
        format!(
            "start the program with the mpiexec of that library (Slurm: `srun --mpi=pmi2` or \
             `--mpi=pmix`, as the library was built), {OTHER_LAUNCHER}"
        ),
    ))
}

fn number(text: &str) -> usize {
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests;
