//! Running the contestants: in each round each of them once, so that what else the machine does
//! meets all of them.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::peers::Peer;
use super::programs::{Programs, measuring};
use super::rows::{Group, Row, Side};
use crate::tools;

/// A row takes at most this long; who needs longer is not asked again.
const LIMIT: Duration = Duration::from_secs(60);

/// Who takes part.
pub(super) enum Contestant {
    Peer(Peer),
    Ours {
        side: Side,
        programs: Programs,
    },
    /// Ours over a library, with so many ranks in each process, as `SPMD_AS` says.
    Over {
        peer: Peer,
        each: usize,
        mode: &'static str,
        programs: Programs,
    },
}

impl Contestant {
    pub(super) fn name(&self) -> String {
        match self {
            Contestant::Peer(peer) => peer.name.clone(),
            Contestant::Ours { side, .. } => format!("spmd, {}", side.title()),
            Contestant::Over { peer, each: 1, .. } => format!("spmd over {}", peer.name),
            Contestant::Over { peer, each, mode, .. } => {
                format!("spmd over {}, {each} ranks a process ({mode})", peer.name)
            }
        }
    }

    fn takes(&self, row: &Row) -> bool {
        match self {
            Contestant::Peer(_) | Contestant::Over { .. } => true,
            Contestant::Ours { side, .. } => row.target(*side).is_some(),
        }
    }

    fn command(&self, group: Group, rows: &[&Row]) -> Command {
        let specs: Vec<String> = rows.iter().map(|row| row.spec()).collect();
        match self {
            Contestant::Peer(peer) => peer.command(group, &specs),
            Contestant::Ours { side, programs } => programs.ours(*side, group, &specs),
            Contestant::Over { peer, each, mode, programs } => {
                let ranks: usize = group.ranks().parse().expect("a number of ranks");
                let mut command = peer.launch(group, &(ranks / each).to_string());
                command.env("SPMD_RANKS_PER_PROCESS", each.to_string()).env("SPMD_AS", mode);
                command.arg(programs.release.join("spmd-perf")).args(measuring("vec", &specs));
                command
            }
        }
    }
}

/// What a contestant did in a row: a time for each round, or why there is none.
#[derive(Clone, Default)]
pub(super) struct Score {
    pub(super) micros: Vec<f64>,
    /// What was printed in each round.
    pub(super) lines: Vec<Value>,
    pub(super) failure: Option<String>,
}

impl Score {
    /// The round whose time is the median.
    fn middle(&self) -> Option<usize> {
        let mut order: Vec<usize> = (0..self.micros.len()).collect();
        order.sort_by(|a, b| self.micros[*a].total_cmp(&self.micros[*b]));
        order.get(order.len() / 2).copied().filter(|_| self.failure.is_none())
    }

    pub(super) fn median(&self) -> Option<f64> {
        self.middle().map(|round| self.micros[round])
    }

    pub(super) fn median_line(&self) -> Option<&Value> {
        self.lines.get(self.middle()?)
    }
}

/// Measures these rows of a group with one contestant, and adds what came out to its scores.
/// Says whether there was anything to measure.
pub(super) fn measure(
    contestant: &Contestant,
    group: Group,
    rows: &[Row],
    scores: &mut [Score],
) -> bool {
    let wanted = |(index, row): &(usize, &Row)| {
        row.group == group && contestant.takes(row) && scores[*index].failure.is_none()
    };
    let chosen: Vec<(usize, &Row)> = rows.iter().enumerate().filter(wanted).collect();
    let any = !chosen.is_empty();
    let (starts, mut left): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|(_, row)| row.is_start());
    for (index, row) in starts {
        for _ in 0..row.iterations {
            match time_start(contestant.command(group, &[])) {
                Ok(micros) => scores[index].micros.push(micros),
                Err(failure) => scores[index].failure = Some(failure),
            }
        }
    }
    while !left.is_empty() {
        let specs: Vec<&Row> = left.iter().map(|(_, row)| *row).collect();
        let (lines, failure) = read_lines(contestant.command(group, &specs), specs.len());
        let done = lines.len();
        for (line, (index, _)) in lines.into_iter().zip(&left) {
            add(&mut scores[*index], line);
        }
        if let (Some(failure), Some((index, _))) = (failure, left.get(done)) {
            scores[*index].failure = Some(failure);
        }
        // After a row that failed, the rest is started anew.
        left.drain(..(done + 1).min(left.len()));
    }
    any
}

fn add(score: &mut Score, line: Value) {
    let number = |key: &str| line.get(key).and_then(Value::as_f64);
    match (number("p50_us"), number("wrong")) {
        (Some(micros), Some(0.0)) => {
            score.micros.push(micros);
            score.lines.push(line);
        }
        (_, Some(wrong)) => score.failure = Some(format!("{wrong} wrong elements")),
        _ => score.failure = Some(format!("no result: {line}")),
    }
}

/// Starts a command and reads its JSON lines, as many as there are rows. Gives fewer, and the
/// reason, if it fails or takes too long for a row.
fn read_lines(command: Command, rows: usize) -> (Vec<Value>, Option<String>) {
    let mut running = match Running::start(command) {
        Ok(running) => running,
        Err(failure) => return (Vec::new(), Some(failure)),
    };
    let mut lines = Vec::new();
    while lines.len() < rows {
        match running.lines.recv_timeout(LIMIT) {
            Ok(line) => lines.extend(serde_json::from_str(&line).ok()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                running.stop();
                return (lines, Some(format!("> {} s", LIMIT.as_secs())));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let failure = running.end().err();
    (lines, failure)
}

/// From the start of a command to its end, in µs.
fn time_start(command: Command) -> Result<f64, String> {
    let start = Instant::now();
    let running = Running::start(command)?;
    running.end()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// What a short command printed as JSON.
pub(super) fn json_of(command: Command) -> Result<Value, String> {
    let (lines, failure) = read_lines(command, 1);
    match (lines.into_iter().next(), failure) {
        (Some(line), None) => Ok(line),
        (_, failure) => Err(failure.unwrap_or("it printed nothing".into())),
    }
}

/// A command under way, in a process group of its own.
struct Running {
    name: String,
    child: Child,
    lines: mpsc::Receiver<String>,
    errors: thread::JoinHandle<String>,
    /// What lay in the shared folder before.
    before: HashSet<PathBuf>,
}

/// Where MPIs keep segments, which they leave behind when they are killed.
fn segments() -> HashSet<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name().to_string_lossy().to_lowercase();
        ["mpich", "intel_mpi", "sm_segment", "vader_segment"].iter().any(|it| name.starts_with(it))
    });
    ours.map(|entry| entry.path()).collect()
}

impl Running {
    fn start(mut command: Command) -> Result<Running, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let before = segments();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let (stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout.expect("piped")).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.as_mut().expect("piped").read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Running { name, child, lines, errors, before })
    }

    /// Waits for its end. Errors: it failed, or does not end.
    fn end(mut self) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_micros(200)),
                Ok(None) => {
                    self.stop();
                    return Err(format!("does not end within {} s", LIMIT.as_secs()));
                }
                Err(error) => return Err(format!("{}: {error}", self.name)),
            }
        };
        if status.success() {
            return Ok(());
        }
        let text = self.errors.join().unwrap_or_default();
        let first = text.lines().find(|line| line.chars().any(char::is_alphabetic)).unwrap_or("");
        Err(format!("{status}: {first}"))
    }

    /// Asks it to end, ranks and all; then makes it. Removes what it leaves.
    fn stop(&mut self) {
        self.end_by_signals();
        for left in segments().difference(&self.before) {
            let _ = std::fs::remove_file(left);
        }
    }

    fn end_by_signals(&mut self) {
        for signal in ["-TERM", "-KILL"] {
            let group = format!("-{}", self.child.id());
            let _ = tools::command("kill", &[signal, "--", &group]).status();
            let deadline = Instant::now() + Duration::from_secs(5);
            while Instant::now() < deadline {
                if matches!(self.child.try_wait(), Ok(Some(_))) {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
