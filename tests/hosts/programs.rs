//! The examples, the kernels and the benchmark on several hosts.

use std::fs;
use std::process::Command;
use std::time::Instant;

use spmd_conformance::full;

use crate::support::{Ran, finish, program, spmdrun};
use crate::world::World;

/// Small enough for four processes on two cores, in a build without all optimisations.
const KERNELS: [(&str, &[&str]); 7] = [
    ("prk_stencil", &["3", "200"]),
    ("prk_transpose", &["3", "240", "16"]),
    ("prk_p2p", &["2", "200", "20"]),
    ("prk_reduce", &["3", "20000"]),
    ("prk_nstream", &["3", "20000"]),
    ("prk_sparse", &["3", "6", "2"]),
    ("prk_dgemm", &["3", "100", "16"]),
];

/// The programs of `docs/quickstart.md`.
const QUICKSTART: [&str; 10] = [
    "sum",
    "scatter",
    "halo",
    "master",
    "words",
    "groups",
    "statistics",
    "arrays",
    "with_rayon",
    "anywhere",
];

fn ended_well(command: &mut Command, told: &str) -> Ran {
    let start = Instant::now();
    let ran = finish(command);
    println!("{told}: {:.1} s", start.elapsed().as_secs_f64());
    assert_eq!(ran.code, Some(0), "{told}\n{}\n{}", ran.out, ran.err);
    ran
}

/// In the canonical order, sums have the bits that they have in threads of one host.
#[test]
fn digits() {
    let mut threads = spmdrun(&["--ranks", "3", "--as", "threads"]);
    let here = ended_well(threads.arg(program("examples/digits")), "digits in threads");
    for world in World::each(3) {
        let mut job = world.spmdrun(1, 1);
        job.env("SPMD_REPRODUCIBLE", "1").arg(program("examples/digits"));
        let there = ended_well(&mut job, world.mpi.name);
        assert_eq!(there.out, here.out, "{}", world.mpi.name);
    }
}

/// The example compares the plate with that of a single rank, and that of a hidden halo.
#[test]
fn heat() {
    for world in World::each(2) {
        let mut job = world.spmdrun(2, 1);
        let picture = world.hosts.folder().join("heat.png");
        job.arg(program("examples/heat")).args(["--hidden", "60", "50"]).arg(&picture);
        let ran = ended_well(&mut job, world.mpi.name);
        assert!(ran.out.contains("with a hidden halo"), "{ran:?}");
        assert!(ran.out.contains("4 ranks") && picture.exists(), "{ran:?}");
    }
}

#[test]
fn kernels() {
    for world in World::each(2) {
        for (name, arguments) in KERNELS {
            let mut job = world.spmdrun(2, 1);
            job.arg(program(&format!("examples/{name}"))).args(arguments);
            let ran = ended_well(&mut job, &format!("{}, {name}", world.mpi.name));
            assert!(ran.out.contains("Solution validates"), "{}, {name}: {ran:?}", world.mpi.name);
        }
    }
}

/// The ten tasks find on two hosts what they find in threads of one. Ten jobs, which are started over
/// one library alone unless all is asked for.
#[test]
fn quickstart() {
    let texts = ["README.md", "docs/guide.md"];
    let texts = texts.map(|name| format!("{}/../{name}", env!("CARGO_MANIFEST_DIR")));
    for world in World::each(2).take(if full() { usize::MAX } else { 1 }) {
        for task in QUICKSTART {
            let path = program(&format!("examples/quick_{task}"));
            let arguments = if task == "words" { &texts[..] } else { &[] };
            let mut threads = spmdrun(&["--ranks", "4", "--as", "threads"]);
            let here = ended_well(threads.arg(&path).args(arguments), task);
            let mut job = world.spmdrun(2, 1);
            job.env("SPMD_REPRODUCIBLE", "1").arg(&path).args(arguments);
            let there = ended_well(&mut job, &format!("{}, {task}", world.mpi.name));
            let on_one_host = there.out.replace("2 of the ranks", "4 of the ranks");
            assert_eq!(on_one_host, here.out, "{}, {task}", world.mpi.name);
        }
    }
}

/// What MPICH uses between hosts unless told otherwise.
#[test]
fn messages_over_ucx() {
    for world in World::each(2).filter(|world| world.mpi.name == "mpich") {
        let mut job = world.spmdrun(2, 1);
        job.env("MPIR_CVAR_CH4_NETMOD", "ucx").env("SPMD_TIMEOUT", "5");
        job.arg(program("examples/prk_p2p")).args(["2", "200", "20"]);
        let ran = ended_well(&mut job, "mpich over UCX");
        assert!(ran.out.contains("Solution validates"), "{ran:?}");
    }
}

#[test]
fn benchmark() {
    for world in World::each(2) {
        let mut job = world.spmdrun(1, 1);
        job.arg(program("spmd-perf")).args(["allreduce", "--sizes", "8,64K", "--json"]);
        let ran = ended_well(&mut job, world.mpi.name);
        assert_eq!(ran.out.lines().count(), 2, "{ran:?}");
        for line in ran.out.lines() {
            assert!(line.contains("\"ranks\":2") && line.contains("\"wrong\":0"), "{line}");
        }
    }
}

/// Flat and with threads, on one host and on two; both describe themselves. Twelve jobs, which are
/// started over one library alone unless all is asked for.
#[test]
fn sweep() {
    for world in World::each(2).take(if full() { usize::MAX } else { 1 }) {
        let out = world.hosts.folder().join("sweep");
        let mut job = world.command(&program("spmd-perf"));
        job.args(["sweep", "--hosts", "alpha,beta", "--ranks-per-host", "2"]);
        job.args(["--ranks-per-process", "2", "--bench", "barrier,allreduce,latency"]);
        job.args(["--sizes", "8,64K", "--seconds", "0.05", "--out"]).arg(&out);
        let ran = ended_well(&mut job, world.mpi.name);
        assert!(ran.out.contains("12 results and 3 pictures"), "{ran:?}");
        let text = fs::read_to_string(out.join("allreduce-mpi-2x2-threads2.json"));
        let text = text.expect("it is among the results");
        let record: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        for (host, name) in ["alpha", "beta"].into_iter().enumerate() {
            let host = &record["machine"]["hosts"][host];
            assert_eq!((&host["name"], &host["ranks"]), (&name.into(), &2.into()), "{text}");
            let interfaces = host["interfaces"].as_array().expect("a list");
            let cable = interfaces.iter().find(|it| it["name"] == "eth0").expect("each has one");
            assert!(cable["sent_bytes"].as_u64() > Some(100_000), "{text}");
        }
        assert_eq!(world.hosts.running(), []);
    }
}
