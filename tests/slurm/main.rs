//! Jobs under a real Slurm of one node, which the tests start (`cluster.rs`): programs under
//! `srun`, and `spmdrun` inside an allocation.
//!
//! Where Slurm is not there or cannot start, that is reported as SKIPPED, with the reason.

#![cfg(target_os = "linux")]

mod cluster;
#[allow(dead_code, reason = "Slurm needs one host, and nothing fails here")]
#[path = "../hosts/net.rs"]
mod net;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use cluster::Cluster;
use support::{Mpi, Ran, finish, program, spmdrun_path};

/// How long a batch job may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two ranks have met.
#[track_caller]
fn met(ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    both_said_hello(&ran.out);
}

#[track_caller]
fn both_said_hello(text: &str) {
    for rank in 0..2 {
        let line = format!("hello from rank {rank} of 2; my left neighbour is rank {}", 1 - rank);
        assert_eq!(text.lines().filter(|said| **said == line).count(), 1, "{text}");
    }
}

#[test]
fn programs_under_srun() {
    let Some(cluster) = Cluster::new() else { return };
    for mpi in Mpi::all() {
        let mut srun = cluster.with(&mpi, "srun");
        met(&finish(srun.args(["--mpi=pmi2", "-n", "2"]).arg(program("examples/hello"))));
    }
}

/// Without the library's process management each process is alone, and says so.
#[test]
fn programs_under_srun_that_find_nobody() {
    let Some(cluster) = Cluster::new() else { return };
    for mpi in Mpi::all() {
        let mut srun = cluster.with(&mpi, "srun");
        let ran = finish(srun.args(["--mpi=none", "-n", "2"]).arg(program("examples/hello")));
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert_eq!(
            ran.err.matches("a world of 2 processes is not available").count(),
            2,
            "{ran:?}"
        );
        assert!(ran.err.contains("--mpi=pmi2") && !ran.out.contains("hello"), "{ran:?}");
    }
}

#[test]
fn spmdrun_in_an_allocation() {
    let Some(cluster) = Cluster::new() else { return };
    for mpi in Mpi::all() {
        let mut salloc = cluster.with(&mpi, "salloc");
        salloc.args(["-n", "2"]).arg(spmdrun_path()).args(["--transport", "mpi"]);
        // As many ranks as the allocation has tasks, unless told.
        met(&finish(salloc.arg(program("examples/hello"))));
    }
}

/// Slurm has its own words for which of a node's tasks one is.
#[test]
fn ranks_with_gpus_in_an_allocation() {
    let Some(card) = support::stand_in() else { return };
    let Some(cluster) = Cluster::new() else { return };
    for mpi in Mpi::all() {
        let run = |cards: usize| {
            let mut salloc = cluster.with(&mpi, "salloc");
            support::give_cards(&mut salloc, &card, cards);
            salloc.args(["-n", "2"]).arg(spmdrun_path()).args(["--transport", "mpi"]);
            salloc.args(["--as", "gpus", "--timeout", "60", "sh", "-c"]);
            finish(salloc.arg("echo $SLURM_PROCID has $CUDA_VISIBLE_DEVICES"))
        };
        let ran = run(2);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for rank in 0..2 {
            let begin = format!("{rank} has GPU-616c7068-");
            let mut lines = ran.out.lines();
            let its =
                lines.any(|line| line.starts_with(&begin) && line.ends_with(&format!("0{rank}")));
            assert!(its, "{rank}: {ran:?}");
        }
        let few = run(1);
        assert_eq!(few.code, Some(1), "{few:?}");
        let told = "on alpha: --as gpus: 2 ranks need 2 GPUs, and there are 1; start at most 1";
        assert!(few.err.contains(told) && !few.out.contains("has"), "{few:?}");
    }
}

/// The library's own launcher then takes the nodes from Slurm, and that is said.
#[test]
fn spmdrun_where_srun_offers_nothing_that_fits() {
    let Some(cluster) = Cluster::new() else { return };
    let path = cluster.with_srun_that_offers_nothing();
    for mpi in Mpi::all() {
        let mut salloc = cluster.with(&mpi, "salloc");
        salloc.env("PATH", &path).args(["-n", "2"]).arg(spmdrun_path());
        let ran = finish(salloc.args(["--transport", "mpi"]).arg(program("examples/hello")));
        met(&ran);
        let said = "srun offers none (--mpi=list), and ";
        assert!(ran.err.contains(said) && ran.err.contains("own launcher, starts"), "{ran:?}");
    }
}

#[test]
fn spmdrun_in_a_batch_job() {
    let Some(cluster) = Cluster::new() else { return };
    for mpi in Mpi::all() {
        let (script, output) = (cluster.folder().join("job"), cluster.folder().join(mpi.name));
        let (spmdrun, hello) = (spmdrun_path().display(), program("examples/hello"));
        let text = format!(
            "#!/bin/sh\n{spmdrun} --transport mpi -n 2 {}\necho status $?\n",
            hello.display()
        );
        fs::write(&script, text).expect("our own folder");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("our own file");
        let mut sbatch = cluster.with(&mpi, "sbatch");
        let ran = finish(sbatch.args(["-n", "2", "-o"]).arg(&output).arg(&script));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let start = Instant::now();
        let text = loop {
            let text = fs::read_to_string(&output).unwrap_or_default();
            if text.contains("status ") {
                break text;
            }
            assert!(start.elapsed() < PATIENCE, "the batch job does not end: {text}");
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(text.contains("status 0"), "{text}");
        both_said_hello(&text);
    }
}

/// `spmdrun` started once for each task would start each world several times.
#[test]
fn spmdrun_under_srun() {
    let Some(cluster) = Cluster::new() else { return };
    for mpi in Mpi::all().into_iter().take(1) {
        let mut srun = cluster.with(&mpi, "srun");
        srun.args(["-n", "2"]).arg(spmdrun_path()).args(["--transport", "mpi", "-n", "2"]);
        let ran = finish(srun.arg(program("examples/hello")));
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert!(ran.err.contains("spmdrun was itself started by an MPI launcher"), "{ran:?}");
    }
}
