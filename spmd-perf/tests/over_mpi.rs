//! Everything that `spmd-perf` measures, over each MPI library that is there, with a rank and with
//! two ranks in each process; and what it refuses there.

#![cfg(target_os = "linux")]

mod support;

use std::path::PathBuf;
use std::process::Output;

use support::{command, perf, said, spmdrun};

const SHAPES: [&[&str]; 2] = [&[], &["--ranks-per-process", "2"]];

/// The libraries that `cargo xtask test mpi` has put below the target folder.
fn libraries() -> Vec<PathBuf> {
    let target = perf().ancestors().nth(2).expect("a profile lies in the target folder");
    let file = |name| target.join("peers").join(name).join("lib/libmpi_abi.so.1");
    let (there, missing): (Vec<_>, Vec<_>) =
        ["mpich", "impi"].map(file).into_iter().partition(|file| file.exists());
    missing.iter().for_each(|file| println!("SKIPPED: there is no {}", file.display()));
    there
}

/// `spmd-perf` on four ranks under each of the libraries, in each shape.
fn everywhere(libraries: &[PathBuf], arguments: &[&str], check: impl Fn(&str, Output)) {
    for library in libraries {
        for shape in SHAPES {
            let mut job = command(spmdrun());
            job.args(["--transport", "mpi", "-n", "4", "--timeout", "120"]).args(shape);
            job.arg(perf()).args(arguments).env("SPMD_MPI_LIB", library);
            // There are more processes than cores.
            job.env("I_MPI_FABRICS", "shm").env("I_MPI_WAIT_MODE", "1");
            job.env("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1");
            let output = job.output().expect("it starts");
            check(&format!("{}, {shape:?}", library.display()), output);
        }
    }
}

#[test]
fn all_benchmarks() {
    let arguments = ["--all", "--sizes", "8,8K", "--iterations", "5", "--json", "--describe"];
    everywhere(&libraries(), &arguments, |place, output| {
        let text = said(&output.stdout);
        assert!(output.status.success(), "{place}: {output:?}");
        // Twenty-six of two sizes, a barrier, and a fetch-and-add.
        assert_eq!(text.matches("\"wrong\":0,").count(), 54, "{place}: {text}");
        let machine = text.lines().last().unwrap_or_default();
        assert!(machine.starts_with(r#"{"machine":"#), "{place}: {text}");
        assert!(
            machine.contains(r#""library":""#) && machine.contains(r#""ranks":4"#),
            "{machine}"
        );
    });
}

#[test]
fn what_needs_shared_memory() {
    let asked: [(&[&str], &str); 3] = [
        (&["tune", "--output", "/nowhere"], "tune ranks that share memory"),
        (&["allreduce", "--algorithm", "tree"], "--algorithm tree: between these processes"),
        (&["machine"], "machine needs two ranks that are threads"),
    ];
    // Whichever library joins the processes.
    let any: Vec<PathBuf> = libraries().into_iter().take(1).collect();
    for (arguments, words) in asked {
        everywhere(&any, arguments, |place, output| {
            let told = said(&output.stderr);
            assert!(!output.status.success() && told.contains(words), "{place}: {output:?}");
        });
    }
}
