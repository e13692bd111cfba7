//! Jobs of process ranks that fail, and what they leave behind.
//!
//! The program of a job is the test [`PROGRAM`] of this file, started again as each rank; what a
//! rank does is in the variable [`DEED`]. Ranks say how they ended in lines that begin with
//! `<rank`.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spmd::Error;

use crate::support::spmdrun;

/// The longest that survivors may take on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(3);

/// What the ranks of a job do.
pub(crate) const DEED: &str = "SPMD_TEST_DEED";
/// By which the processes of a job are found.
const MARK: &str = "SPMD_TEST_MARK";

/// A job in progress.
pub(crate) struct Job {
    child: Child,
    mark: String,
    started: Instant,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

/// How one rank said that it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) rank: usize,
    /// Milliseconds of the system's clock.
    pub(crate) at: u128,
    pub(crate) text: String,
}

impl Job {
    /// Starts the test `program` of this binary on process ranks, with the launcher's `arguments`.
    pub(crate) fn start(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Job {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut command = spmdrun(arguments);
        command
            .arg(std::env::current_exe().expect("a test knows its own path"))
            .args([program, "--exact", "--nocapture", "--include-ignored", "--quiet"])
            .envs(variables.iter().copied())
            .env("RUST_BACKTRACE", "0")
            .env(MARK, &mark);
        Job::of(command, mark)
    }

    fn of(mut command: Command, mark: String) -> Job {
        let started = Instant::now();
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spmdrun starts");
        Job { child, mark, started }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The processes of the job that run, the launcher among them.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}", self.mark);
        let watchdog = format!("--watchdog\0{}-", self.pid());
        pids()
            .filter(|pid| {
                let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
                    || String::from_utf8_lossy(&cmdline).contains(&watchdog)
            })
            .collect()
    }

    /// Waits for the end of the launcher, then looks that nothing is left.
    pub(crate) fn end(mut self) -> Ended {
        let mut out = self.child.stdout.take().expect("piped");
        let mut err = self.child.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            err.read_to_end(&mut text).expect("a pipe can be read");
            text
        });
        let mut text = Vec::new();
        out.read_to_end(&mut text).expect("a pipe can be read");
        let errors = errors.join().expect("it does not panic");
        let code = self.child.wait().expect("a child can be waited for").code();
        let ended = Ended {
            code,
            out: String::from_utf8_lossy(&text).into_owned(),
            err: String::from_utf8_lossy(&errors).into_owned(),
            took: self.started.elapsed(),
        };
        wait_until("every process of the job is gone", || self.processes().is_empty());
        if let Some(arena) = ended.arena() {
            wait_until("nobody has the arena", || !pids().any(|pid| has(pid, &arena)));
        }
        assert_eq!(named_objects(), Vec::<String>::new());
        ended
    }
}

impl Ended {
    pub(crate) fn last_line(&self) -> &str {
        self.err.lines().last().unwrap_or("")
    }

    /// What the ranks said of their ends.
    pub(crate) fn said(&self) -> Vec<Said> {
        let mut said: Vec<Said> = self.out.lines().filter_map(parse).collect();
        said.sort_by_key(|said| said.rank);
        said
    }

    /// The arena's number, as a rank has told it.
    fn arena(&self) -> Option<String> {
        let told = self.out.split("<arena ").nth(1)?;
        told.split('>').next().map(str::to_owned)
    }
}

fn parse(line: &str) -> Option<Said> {
    let (rank, rest) = line.split("<rank ").nth(1)?.split_once(" at ")?;
    let (at, text) = rest.split_once("> ")?;
    Some(Said { rank: rank.parse().ok()?, at: at.parse().ok()?, text: text.to_owned() })
}

/// Says on standard output, in one piece, how this rank ends.
pub(crate) fn say(text: &str) {
    let rank = std::env::var("SPMD_RANK").expect("set by the launcher");
    println!("<rank {rank} at {}> {text}", now());
}

/// Says which memory file the ranks share.
pub(crate) fn say_arena() {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is there");
    let line = maps.lines().find(|line| line.contains("/memfd:spmd"));
    let number = line.and_then(|line| line.split_whitespace().nth(4)).expect("it is mapped");
    println!("<arena {number}>");
}

/// Ends this process as a program does whose `main` gives this result.
pub(crate) fn exit_with(result: Result<(), Error>) -> ! {
    if let Err(error) = result {
        say(&error.to_string());
        std::process::exit(1);
    }
    say("ended well");
    std::process::exit(0)
}

pub(crate) fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process has mapped or opened the memory file with this number.
fn has(pid: u32, arena: &str) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines()
        .any(|line| line.contains("/memfd:spmd") && line.split_whitespace().nth(4) == Some(arena))
}

/// What `spmd` might have left in the file system.
fn named_objects() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("spmd")).collect()
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < BOUND, "not in {BOUND:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
