//! What tests of `#[spmd::test]` call.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{Ctx, Result, Spmd, run};

/// Says to a process of which test it is a rank.
const RANK_OF: &str = "SPMD_TEST_RANK_OF";

/// What a rank says that has passed.
const PASSED: &str = "this rank has passed";

/// Runs a test on the ranks of a block, each of which says its error.
///
/// # Panics
///
/// With the error of the block.
#[track_caller]
pub fn block<R: Send>(block: Spmd, test: impl Fn(&Ctx) -> Result<R> + Sync) {
    let told = |ctx: &Ctx| test(ctx).inspect_err(|error| eprintln!("rank {}: {error}", ctx.rank()));
    if let Err(error) = block.run(told) {
        panic!("{error}");
    }
}

/// Runs a test on process ranks, each of which is this program once more, with this test alone.
/// `path` is the path of the test with the crate.
///
/// # Panics
///
/// With all that the ranks and the launcher said, if one did not pass.
#[track_caller]
pub fn processes<R: Send>(path: &str, ranks: usize, test: impl Fn(&Ctx) -> Result<R> + Sync) {
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    if std::env::var(RANK_OF).is_ok_and(|it| it == path) {
        as_rank(test);
    }
    let Some(launcher) = launcher() else {
        // Past what the harness keeps of a test that passes.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {name}: there is no `spmdrun` in PATH (README.md tells how to install it)"
        );
        return;
    };
    let program = std::env::current_exe().expect("a test knows its own path");
    let mut job = Command::new(launcher);
    job.args(["--ranks", &ranks.to_string()]).arg(program);
    job.args([name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    job.env(RANK_OF, path).stdin(Stdio::null());
    let output = job.output().expect("`spmdrun` starts");
    let out = String::from_utf8_lossy(&output.stdout);
    let passed = out.matches(PASSED).count();
    if !output.status.success() || passed != ranks {
        let err = String::from_utf8_lossy(&output.stderr);
        panic!("{passed} of {ranks} process ranks passed, {}\n{out}{err}", output.status);
    }
}

/// Ends the process, as what the harness says of this test, which may be to panic, is no matter of
/// one rank. A panic goes on: then the rank has not passed.
fn as_rank<R: Send>(test: impl Fn(&Ctx) -> Result<R> + Sync) -> ! {
    let status = match run(test) {
        Ok(_) => {
            println!("{PASSED}");
            0
        }
        Err(error) => {
            eprintln!("{error}");
            101
        }
    };
    std::process::exit(status)
}

fn launcher() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&folders).map(|folder| folder.join("spmdrun"));
    all.into_iter().find(|path| path.is_file())
}
