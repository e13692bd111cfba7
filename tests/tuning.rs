//! Which algorithm a call takes: every one that is listed, and what a tuning file asks for. All
//! ranks of a job go by the same file, and one that makes no sense is one clear error.

#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::process::Command;

use spmd::prelude::*;
use spmd_core::internal::{Algorithm, CHOICES, Candidate, Kind, Trial};

use support::{finish, is_process_rank, processes, spmdrun, spmdrun_self};

/// Makes a small call of this kind, and looks at what it gives.
fn make(ctx: &Ctx, kind: Kind) -> Result<()> {
    let (n, me) = (ctx.size(), ctx.rank());
    let (all, up_to_me): (Vec<usize>, usize) = ((0..n).collect(), (0..=me).sum());
    let (mut one, mut many, each) = ([me], vec![me; n], vec![1; n]);
    match kind {
        Kind::Broadcast => {
            ctx.broadcast(&mut one, 1)?;
            assert_eq!(one, [1]);
        }
        Kind::Reduce => {
            let sum = ctx.reduce_value(me, Sum, 1)?;
            assert_eq!(sum, (me == 1).then_some(n * (n - 1) / 2));
        }
        Kind::Allreduce => assert_eq!(ctx.allreduce_value(me, Sum)?, n * (n - 1) / 2),
        Kind::Gather => {
            assert_eq!(ctx.gather_value(me, 0)?, (me == 0).then_some(all));
        }
        Kind::Gatherv => {
            ctx.gatherv(&one, &mut many, &each, 0)?;
            assert_eq!(many, if me == 0 { all } else { vec![me; n] });
        }
        Kind::Allgather => assert_eq!(ctx.allgather_value(me)?, all),
        Kind::Allgatherv => {
            ctx.allgatherv(&one, &mut many, &each)?;
            assert_eq!(many, all);
        }
        Kind::Scatter => {
            ctx.scatter(&all, &mut one, 0)?;
            assert_eq!(one, [me]);
        }
        Kind::Scatterv => {
            ctx.scatterv(&all, &each, &mut one, 0)?;
            assert_eq!(one, [me]);
        }
        Kind::Alltoall => {
            ctx.alltoall(&vec![me; n], &mut many)?;
            assert_eq!(many, all);
        }
        Kind::Alltoallv => {
            ctx.alltoallv(&vec![me; n], &mut many, &each, &each)?;
            assert_eq!(many, all);
        }
        Kind::ReduceScatter => {
            ctx.reduce_scatter(&all, &mut one, Sum)?;
            assert_eq!(one, [n * me]);
        }
        Kind::ReduceScatterv => {
            ctx.reduce_scatterv(&all, &mut one, &each, Sum)?;
            assert_eq!(one, [n * me]);
        }
        Kind::Scan => assert_eq!(ctx.scan_value(me, Sum)?, up_to_me),
        Kind::Exscan => {
            assert_eq!(ctx.exscan_value(me, Sum)?, (me > 0).then_some(up_to_me - me));
        }
        Kind::NeighborAllgather | Kind::NeighborAlltoall | Kind::NeighborAlltoallv => {
            return around(ctx, kind);
        }
        other => panic!("{other:?} has a choice and no test of it"),
    }
    Ok(())
}

/// The same in a ring, whose communicator is another one.
fn around(ctx: &Ctx, kind: Kind) -> Result<()> {
    let (n, me) = (ctx.size(), ctx.rank());
    let ring = ctx.cartesian(&[n], &[true])?.expect("all have a place");
    let mut got = [0; 2];
    match kind {
        Kind::NeighborAllgather => ring.neighbor_allgather(&[me], &mut got)?,
        Kind::NeighborAlltoall => ring.neighbor_alltoall(&[me; 2], &mut got)?,
        _ => ring.neighbor_alltoallv(&[me; 2], &mut got, &[1; 2], &[1; 2])?,
    }
    assert_eq!(got, [(me + n - 1) % n, (me + 1) % n]);
    assert!(ring.internals().last_choice().is_some());
    // For whoever looks at the block's own.
    ring.internals()
        .last_choice()
        .into_iter()
        .for_each(|choice| ctx.internals().note_choice(choice));
    Ok(())
}

#[test]
fn every_listed_algorithm_serves() -> Result<()> {
    for choice in CHOICES {
        for Candidate { algorithm, .. } in choice.candidates {
            let call = choice.kind.name();
            if *algorithm == Algorithm::SingleCopy {
                // Between processes only: see `single_copy.rs`.
                continue;
            }
            Spmd::new(4).virtual_ranks().force(choice.kind, *algorithm).run(|ctx| {
                make(ctx, choice.kind)?;
                assert_eq!(ctx.internals().last_choice(), Some(*algorithm), "{call}");
                Ok(())
            })?;
        }
    }
    Ok(())
}

#[test]
fn the_documentation_lists_the_same() {
    let page = include_str!("../docs/algorithms.md").replace(['*', '`'], "");
    for choice in CHOICES {
        for Candidate { algorithm, chosen, steps, bytes } in choice.candidates {
            let row = format!("| {} | {chosen} | {steps} | {bytes} |\n", algorithm.name());
            assert!(page.contains(&row), "docs/algorithms.md: {row}");
        }
    }
}

/// Another choice than the default for all that is measured here.
const FILE: &str = r#"
version = 1
[processes.3]
segment = 4096
allreduce = [{ up_to = 64, use = "tree" }, { up_to = 1024, use = "chunked" }]
broadcast = [{ use = "chunked" }]
[threads.3]
allreduce = [{ up_to = 64, use = "tree" }, { up_to = 1024, use = "chunked" }]
broadcast = [{ use = "chunked" }]
[virtual.3]
allreduce = [{ up_to = 64, use = "tree" }, { up_to = 1024, use = "chunked" }]
broadcast = [{ use = "chunked" }]
"#;

fn tuning_file(folder: &Path, text: &str) -> String {
    let path = folder.join("tuning.toml");
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("a path of text").to_owned()
}

/// What an allreduce of so many bytes takes, where there are rules.
fn taken(comm: &Comm, bytes: usize) -> Result<Option<Algorithm>> {
    let mut sum = vec![1u8; bytes];
    comm.allreduce_in_place(&mut sum, Sum)?;
    assert_eq!(sum, vec![comm.size() as u8; bytes]);
    Ok(comm.internals().last_choice())
}

fn follows_the_file(ctx: &Ctx) -> Result<()> {
    use Algorithm::*;
    let default = if ctx.mode() == spmd::Mode::Virtual { Central } else { Flat };
    for (bytes, expected) in
        [(1, Tree), (64, Tree), (65, Chunked), (1024, Chunked), (1025, default), (5000, Chunked)]
    {
        assert_eq!(taken(ctx, bytes)?, Some(expected), "{bytes} bytes, {:?}", ctx.mode());
    }
    ctx.broadcast(&mut [0], 0)?;
    assert_eq!(ctx.internals().last_choice(), Some(Chunked));
    // It says nothing of fewer ranks.
    let pair = ctx.split((ctx.rank() < 2).then_some(0), 0)?;
    pair.iter().try_for_each(|pair| {
        assert_eq!(taken(pair, 8)?, None);
        Ok(())
    })
}

#[test]
fn a_file_is_followed() -> Result<()> {
    if is_process_rank() {
        return run(|ctx| {
            if ctx.mode() == spmd::Mode::Processes {
                assert_eq!(ctx.internals().segment(), 4096);
            }
            follows_the_file(ctx)
        })
        .map(drop);
    }
    let folder = tempfile::tempdir()?;
    tuning_file(folder.path(), FILE);
    for mode in ["processes", "threads", "virtual"] {
        let mut job = spmdrun_self("a_file_is_followed", 3);
        // Relative to the launcher's directory, not to that of the ranks.
        job.env("SPMD_TUNING", "tuning.toml").env("SPMD_AS", mode).current_dir(folder.path());
        let ran = finish(&mut job);
        assert_eq!(ran.code, Some(0), "{mode}: {ran:?}");
    }
    Ok(())
}

#[test]
fn what_is_forced_wins() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = tuning_file(folder.path(), FILE);
    let settings =
        [("SPMD_TUNING", &*file), ("SPMD_FORCE", "allreduce=flat"), ("SPMD_SEGMENT", "8192")];
    processes("what_is_forced_wins", 3, &settings, |ctx| {
        assert_eq!(taken(ctx, 8)?, Some(Algorithm::Flat));
        ctx.broadcast(&mut [0], 0)?;
        assert_eq!(
            (ctx.internals().last_choice(), ctx.internals().segment()),
            (Some(Algorithm::Chunked), 8192)
        );
        Ok(())
    })?;
    processes("what_is_forced_wins", 3, &[("SPMD_TUNING", "none")], |ctx| {
        assert_eq!(taken(ctx, 8)?, None);
        Ok(())
    })
}

/// Ranks that would find different files at the default path, and one of them none.
#[test]
fn all_ranks_go_by_the_launchers_file() -> Result<()> {
    if is_process_rank() {
        return run(follows_the_file).map(drop);
    }
    let (launchers, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    std::fs::create_dir_all(launchers.path().join("spmd"))?;
    tuning_file(&launchers.path().join("spmd"), FILE);
    std::fs::create_dir_all(other.path().join("spmd"))?;
    tuning_file(&other.path().join("spmd"), "version = 1\n[processes.3]\n");
    let program = std::env::current_exe()?;
    let arguments = ["all_ranks_go_by_the_launchers_file", "--exact", "--test-threads=1"];
    let elsewhere = format!("XDG_CONFIG_HOME={}", other.path().display());
    let mut job = spmdrun(&["-n", "2"]);
    job.env("XDG_CONFIG_HOME", launchers.path()).arg(&program).args(arguments);
    job.args([":", "-n", "1", "--env", &elsewhere]).arg(&program).args(arguments);
    let ran = finish(&mut job);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    Ok(())
}

#[test]
fn programs_of_a_job_have_one_file() {
    for setting in ["SPMD_TUNING=none", "SPMD_FORCE=allreduce=tree", "SPMD_SEGMENT=4096"] {
        let job = ["-n", "1", "true", ":", "-n", "1", "--env", setting, "true"];
        let ran = finish(&mut spmdrun(&job));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("all ranks need the same value"), "{ran:?}");
        // Both have it.
        let job = ["-n", "1", "--env", setting, "true", ":", "-n", "1", "--env", setting, "true"];
        assert_eq!(finish(&mut spmdrun(&job)).code, Some(0));
    }
}

/// The program of the next test, without a launcher.
#[test]
#[ignore = "the program of another test"]
fn alone() {
    match spmd(2, |ctx| ctx.barrier()) {
        Ok(_) => println!("<ended well>"),
        Err(error) => println!("<{error}>"),
    }
}

#[test]
fn a_bad_file_is_one_error() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let bad = tuning_file(folder.path(), "version = 1\n[threads.2]\nreduce = [{ use = \"ring\" }]");
    for (file, place, why) in [
        (
            &*bad,
            ", line 3: ",
            "there is no 'ring': the algorithms of reduce are combining, flat, tree, chunked",
        ),
        ("/no/such/file", ": ", "cannot be read"),
    ] {
        let expected = format!("the tuning file {file}{place}");
        for mode in ["processes", "threads"] {
            let mut job = spmdrun(&["-n", "2", "--as", mode, "true"]);
            let ran = finish(job.env("SPMD_TUNING", file));
            assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{ran:?}");
            assert!(ran.err.contains(&expected) && ran.err.contains(why), "{ran:?}");
        }
        let mut program = Command::new(std::env::current_exe()?);
        program.args(["alone", "--exact", "--nocapture", "--include-ignored"]);
        let ran = finish(program.env("SPMD_TUNING", file));
        let line = ran.out.lines().find(|line| line.starts_with('<')).unwrap_or_default();
        assert!(line.contains(&expected) && line.contains("SPMD_TUNING=none"), "{ran:?}");
    }
    Ok(())
}

/// A measurement may try anything out; what a call does not have, it does not take.
#[test]
fn an_algorithm_of_other_calls_is_not_taken() -> Result<()> {
    if is_process_rank() {
        return Ok(());
    }
    spmd(4, |ctx| {
        for algorithm in CHOICES.iter().flat_map(|choice| choice.candidates).map(|it| it.algorithm)
        {
            // Neighbours have a communicator of their own.
            let kinds = CHOICES.iter().map(|choice| choice.kind);
            for kind in kinds.filter(|kind| !kind.name().starts_with("neighbor")) {
                let algorithm = Some((kind, algorithm));
                ctx.internals().try_out(Some(Trial { algorithm, segment: None }));
                make(ctx, kind)?;
                let mut long = vec![0u64; 50_000];
                if kind == Kind::Scan {
                    ctx.scan(&vec![1; 50_000], &mut long, Sum)?;
                    assert!(long.iter().all(|it| *it == ctx.rank() as u64 + 1));
                }
            }
        }
        ctx.internals().try_out(None);
        Ok(())
    })
    .map(drop)
}
