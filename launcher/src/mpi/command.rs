//! The command line of an MPI launcher: one function for each thing that is asked, saying what
//! each launcher calls it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::args::{Bind, Stdin};
use crate::error::Error;
use crate::topology::Cpus;

use super::launchers::Kind;

/// What a job asks of an MPI launcher.
pub(crate) struct MatchPattern<'a> {
    /// What becomes each process, with its own words before the program; empty if the program does.
    pub(crate) starter: Vec<OsString>,
    pub(crate) apps: Vec<App<'a>>,
    /// Processes on each host, in the order of ranks; empty where no hosts were named.
    pub(crate) hosts: Vec<(String, usize)>,
    pub(crate) bind: &'a Bind,
    /// How many ranks a process holds.
    pub(crate) per_process: usize,
    pub(crate) tag: bool,
    pub(crate) report_bindings: bool,
    pub(crate) output_dir: Option<PathBuf>,
    pub(crate) stdin: Stdin,
    /// Variables that the launcher finds and must pass on.
    pub(crate) names: Vec<String>,
    pub(crate) as_root: bool,
}

/// One program of the job.
pub(crate) struct App<'a> {
    pub(crate) processes: usize,
    pub(crate) path: &'a Path,
    pub(crate) arguments: &'a [OsString],
    pub(crate) env: &'a [(String, OsString)],
    pub(crate) cwd: Option<PathBuf>,
}

/// What to start it with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) arguments: Vec<OsString>,
    /// Variables for the launcher itself.
    pub(crate) env: Vec<(String, OsString)>,
}

impl Line {
    fn word(&mut self, word: impl AsRef<OsStr>) {
        self.arguments.push(word.as_ref().to_owned());
    }

    fn words(&mut self, words: &[&str]) {
        words.iter().for_each(|word| self.word(word));
    }

    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.env.push((name.to_owned(), value.into()));
    }
}

/// The whole command line, without the launcher's own name.
///
/// Errors: the launcher has no word for what is asked.
pub(crate) fn line(kind: &Kind, wanted: &MatchPattern<'_>) -> Result<Line, Error> {
    let mut line = Line::default();
    begin(kind, wanted, &mut line);
    bind(kind, wanted, &mut line)?;
    output(kind, wanted, &mut line);
    stdin(kind, wanted, &mut line)?;
    let placed = hosts(kind, wanted, &mut line);
    programs(kind, wanted, placed, &mut line)?;
    Ok(line)
}

/// What each launcher is always told: chiefly to pass the environment on.
fn begin(kind: &Kind, wanted: &MatchPattern<'_>, line: &mut Line) {
    match kind {
        Kind::Hydra | Kind::IntelHydra => line.word("-genvall"),
        Kind::OpenMpi { .. } => {
            if wanted.as_root {
                line.word("--allow-run-as-root");
            }
            // Of a variable that is named twice it takes what comes first.
            let given = |app: &App<'_>, name: &str| app.env.iter().any(|it| it.0 == name);
            let named = |name: &&String| !wanted.apps.iter().all(|app| given(app, name));
            for name in wanted.names.iter().filter(named) {
                line.words(&["-x", name]);
            }
        }
        Kind::Srun { pmi } => line.words(&[&format!("--mpi={pmi}"), "--export=ALL"]),
    }
}

/// Without `--bind` nothing is bound, whatever a launcher does by itself. A process of several
/// ranks gets as many cores.
fn bind(kind: &Kind, wanted: &MatchPattern<'_>, line: &mut Line) -> Result<(), Error> {
    let k = wanted.per_process;
    match (kind, wanted.bind) {
        (Kind::Hydra, Bind::None) => line.words(&["-bind-to", "none"]),
        (Kind::Hydra, Bind::Core) if k == 1 => line.words(&["-bind-to", "core"]),
        (Kind::Hydra, Bind::Core) => line.words(&["-bind-to", &format!("core:{k}")]),
        (Kind::Hydra, Bind::Numa) => line.words(&["-bind-to", "numa"]),
        (Kind::Hydra, Bind::List(items)) => {
            line.words(&["-bind-to", &format!("user:{}", join(items, plus))]);
        }

        (Kind::IntelHydra, Bind::None) => line.set("I_MPI_PIN", "0"),
        (Kind::IntelHydra, Bind::Core) if k == 1 => line.set("I_MPI_PIN_DOMAIN", "core"),
        (Kind::IntelHydra, Bind::Core) => {
            line.set("I_MPI_PIN_CELL", "core");
            line.set("I_MPI_PIN_DOMAIN", k.to_string());
        }
        (Kind::IntelHydra, Bind::Numa) => line.set("I_MPI_PIN_DOMAIN", "numa"),
        (Kind::IntelHydra, Bind::List(items)) => {
            line.set("I_MPI_PIN_DOMAIN", format!("[{}]", join(items, mask)));
        }

        (Kind::OpenMpi { .. }, Bind::List(_)) => {
            return Err(Error::Usage(
                "--bind with a list is not for Open MPI's launcher; use --bind core or numa".into(),
            ));
        }
        (Kind::OpenMpi { .. }, bind) => {
            let (map, to) = match bind {
                Bind::Core if k > 1 => (format!("slot:PE={k}:OVERSUBSCRIBE"), "core"),
                Bind::Core => ("slot:OVERSUBSCRIBE".into(), "core:overload-allowed"),
                Bind::Numa => ("slot:OVERSUBSCRIBE".into(), "numa:overload-allowed"),
                _ => ("slot:OVERSUBSCRIBE".into(), "none"),
            };
            line.words(&["--map-by", &map, "--bind-to", to]);
        }

        (Kind::Srun { .. }, bind) => {
            if k > 1 {
                line.word(format!("--cpus-per-task={k}"));
            }
            let verbose = if wanted.report_bindings { "verbose," } else { "" };
            let to = match bind {
                Bind::None => "none".into(),
                Bind::Core => "cores".into(),
                Bind::Numa => "ldoms".into(),
                Bind::List(items) => {
                    format!("mask_cpu:{}", join(items, |cpus| format!("0x{}", mask(cpus))))
                }
            };
            line.word(format!("--cpu-bind={verbose}{to}"));
        }
    }
    match kind {
        Kind::Hydra if wanted.report_bindings => line.set("HYDRA_TOPO_DEBUG", "1"),
        Kind::IntelHydra if wanted.report_bindings => line.set("I_MPI_DEBUG", "4"),
        Kind::OpenMpi { major } if wanted.report_bindings => match major {
            0..5 => line.word("--report-bindings"),
            _ => line.words(&["--display", "bind"]),
        },
        _ => {}
    }
    Ok(())
}

fn join(items: &[Cpus], each: impl Fn(&Cpus) -> String) -> String {
    items.iter().map(each).collect::<Vec<_>>().join(",")
}

/// `4+5+6`
fn plus(cpus: &Cpus) -> String {
    cpus.0.iter().map(usize::to_string).collect::<Vec<_>>().join("+")
}

/// The set as a number in hexadecimal, bit i for CPU i.
fn mask(cpus: &Cpus) -> String {
    let highest = cpus.0.last().copied().unwrap_or(0) / 4;
    let digit = |place: usize| {
        (0..4).filter(|bit| cpus.contains(4 * place + bit)).map(|bit| 1 << bit).sum()
    };
    (0..=highest).rev().filter_map(|place| char::from_digit(digit(place), 16)).collect()
}

fn output(kind: &Kind, wanted: &MatchPattern<'_>, line: &mut Line) {
    let dir = wanted.output_dir.as_deref();
    let file = |dir: &Path, rank: &str, stream: &str| dir.join(format!("rank-{rank}.{stream}"));
    match kind {
        Kind::Hydra | Kind::IntelHydra => {
            if wanted.tag {
                line.word("-prepend-rank");
            }
            if let Some(dir) = dir {
                for (option, stream) in
                    [("-outfile-pattern", "stdout"), ("-errfile-pattern", "stderr")]
                {
                    line.word(option);
                    line.word(file(dir, "%r", stream));
                }
            }
        }
        Kind::OpenMpi { major: 0..5 } => {
            if wanted.tag {
                line.word("--tag-output");
            }
            if let Some(dir) = dir {
                line.word("--output-filename");
                line.word(dir);
            }
        }
        Kind::OpenMpi { .. } => {
            if wanted.tag {
                line.words(&["--output", "tag"]);
            }
            if let Some(dir) = dir {
                line.word("--output");
                line.word(format!("dir={}", dir.display()));
            }
        }
        Kind::Srun { .. } => {
            if wanted.tag {
                line.word("--label");
            }
            if let Some(dir) = dir {
                line.word(format!("--output={}", file(dir, "%t", "stdout").display()));
                line.word(format!("--error={}", file(dir, "%t", "stderr").display()));
            }
        }
    }
}

/// Rank 0 reads standard input by every launcher's own choice, Slurm's excepted; with `none` the
/// launcher itself gets none.
fn stdin(kind: &Kind, wanted: &MatchPattern<'_>, line: &mut Line) -> Result<(), Error> {
    let who = match wanted.stdin {
        Stdin::None => return Ok(()),
        Stdin::All => "all".to_owned(),
        // The launchers know processes, not the ranks within them.
        Stdin::Rank(rank) => (rank / wanted.per_process).to_string(),
    };
    match kind {
        Kind::Srun { .. } => line.word(format!("--input={who}")),
        _ if who == "0" => {}
        Kind::IntelHydra => line.words(&["-s", &who]),
        Kind::OpenMpi { .. } => line.words(&["--stdin", &who]),
        Kind::Hydra => {
            return Err(Error::Usage(
                "--stdin: MPICH's launcher gives standard input to rank 0 or to none".into(),
            ));
        }
    }
    Ok(())
}

/// Names the hosts; says whether each program's part must name its own.
fn hosts(kind: &Kind, wanted: &MatchPattern<'_>, line: &mut Line) -> bool {
    let Some((_, most)) = wanted.hosts.first() else { return false };
    let names: Vec<&str> = wanted.hosts.iter().map(|(name, _)| name.as_str()).collect();
    let counted: Vec<String> =
        wanted.hosts.iter().map(|(name, count)| format!("{name}:{count}")).collect();
    match kind {
        Kind::Hydra => line.words(&["-hosts", &counted.join(",")]),
        Kind::OpenMpi { .. } => line.words(&["--host", &counted.join(",")]),
        Kind::IntelHydra => {
            // It fills every host alike, the last as far as there are processes.
            let (last, before) = wanted.hosts.split_last().unwrap_or((&wanted.hosts[0], &[]));
            let alike = before.iter().all(|(_, count)| count == most) && last.1 <= *most;
            if !alike {
                return true;
            }
            line.words(&["-hosts", &names.join(","), "-ppn", &most.to_string()]);
        }
        Kind::Srun { .. } => {
            // A host for every process, in the order of ranks.
            let each = wanted
                .hosts
                .iter()
                .flat_map(|(name, count)| std::iter::repeat_n(name.as_str(), *count));
            let list = each.collect::<Vec<_>>().join(",");
            line.words(&["--distribution=arbitrary", &format!("--nodelist={list}")]);
        }
    }
    false
}

/// The programs, each with its number of processes, directory and variables.
fn programs(
    kind: &Kind,
    wanted: &MatchPattern<'_>,
    placed: bool,
    line: &mut Line,
) -> Result<(), Error> {
    if matches!(kind, Kind::Srun { .. }) && wanted.apps.len() > 1 {
        return Err(Error::Usage(
            "`:` is not for Slurm's launcher; start one program that branches on its rank".into(),
        ));
    }
    let mut open: Vec<(String, usize)> = wanted.hosts.clone();
    let mut first = true;
    for app in &wanted.apps {
        let mut left = app.processes;
        while left > 0 {
            let host = if placed { open.first_mut() } else { None };
            let here = host.as_ref().map_or(left, |(_, room)| left.min(*room));
            if !std::mem::take(&mut first) {
                line.word(":");
            }
            if let Some((name, room)) = host {
                line.words(&["-host", name]);
                *room -= here;
            }
            open.retain(|(_, room)| *room > 0);
            part(kind, &wanted.starter, app, here, line);
            left -= here;
        }
    }
    Ok(())
}

fn part(kind: &Kind, starter: &[OsString], app: &App<'_>, processes: usize, line: &mut Line) {
    if let Some(cwd) = &app.cwd {
        match kind {
            Kind::Hydra | Kind::IntelHydra => line.word("-wdir"),
            Kind::OpenMpi { .. } => line.word("--wdir"),
            Kind::Srun { .. } => line.word("--chdir"),
        }
        line.word(cwd);
    }
    for (name, value) in app.env {
        match kind {
            Kind::Hydra | Kind::IntelHydra => {
                line.words(&["-env", name]);
                line.word(value);
            }
            Kind::OpenMpi { .. } => {
                let mut text = OsString::from(name);
                text.push("=");
                text.push(value);
                line.word("-x");
                line.word(text);
            }
            // A comma in a value would end it in `--export`; the environment takes any.
            Kind::Srun { .. } => line.set(name, value),
        }
    }
    line.words(&["-n", &processes.to_string()]);
    line.arguments.extend_from_slice(starter);
    line.word(app.path);
    line.arguments.extend_from_slice(app.arguments);
}

#[cfg(test)]
mod tests;
