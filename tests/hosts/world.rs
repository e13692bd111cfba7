//! Worlds on hosts that a test has made.

use std::path::Path;
use std::process::Command;

use crate::net::Hosts;
use crate::support::{self, Mpi};

/// Some hosts and the library that joins them.
pub(crate) struct World {
    pub(crate) hosts: Hosts,
    pub(crate) mpi: Mpi,
}

impl World {
    /// Such a world for each library, one after the other; none where no hosts can be made.
    pub(crate) fn each(hosts: usize) -> impl Iterator<Item = World> {
        let made = move |mpi: Mpi| {
            // What is started again in a world goes the same way through the test.
            if support::is_mpi_process() {
                return Some(World { hosts: Hosts::inside(), mpi });
            }
            match Hosts::new(hosts) {
                Ok(hosts) => Some(World { hosts, mpi }),
                Err(why) => {
                    println!("SKIPPED {hosts} hosts: {why}");
                    None
                }
            }
        };
        Mpi::all().into_iter().map_while(made)
    }

    /// `spmdrun` on the first host, for so many processes of `each` ranks on every host.
    pub(crate) fn spmdrun(&self, processes: usize, each: usize) -> Command {
        let mut command = self.command(support::spmdrun_path());
        command.args(["--host", &self.hosts.list(processes * each)]);
        if each > 1 {
            command.args(["--ranks-per-process", &each.to_string()]);
        }
        command
    }

    /// A program on the first host, with what the library needs between these hosts.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = self.hosts.command(program);
        support::free(&mut command);
        let shell = self.hosts.shell();
        command.env("SPMD_MPI_LIB", self.mpi.library());
        command.env("HYDRA_LAUNCHER", "ssh").env("HYDRA_LAUNCHER_EXEC", &shell);
        command.env("I_MPI_HYDRA_BOOTSTRAP", "ssh").env("I_MPI_HYDRA_BOOTSTRAP_EXEC", &shell);
        // There are more processes than cores.
        command.env("I_MPI_WAIT_MODE", "1").env("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1");
        // Over UCX, receives of MPICH 5.0.2 from any source may miss what has come before them.
        command.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("FI_PROVIDER", "tcp");
        match self.mpi.name {
            // Its package puts these where neither the loader nor the library looks.
            "impi" => {
                command.env("LD_LIBRARY_PATH", self.mpi.folder());
                command.env("FI_PROVIDER_PATH", self.mpi.folder());
            }
            // Open MPI 4 and 5 have their own names for the remote shell.
            "linked" => {
                command.env("OMPI_MCA_plm_rsh_agent", &shell).env("PRTE_MCA_plm_ssh_agent", &shell);
                command.env("OMPI_MCA_mpi_yield_when_idle", "1");
            }
            _ => {}
        }
        command
    }
}
