//! A rank of `--as gpus` under an MPI launcher. That launcher starts `spmdrun` in the rank's place, which
//! finds the GPU of the rank among those of its own host, says by `CUDA_VISIBLE_DEVICES` that the rank is
//! to see no other, and becomes the rank. So nothing of CUDA has been called in that process before.

use std::ffi::OsString;
use std::path::PathBuf;

use super::launchers::Kind;
use crate::error::{Error, usage};
use crate::gpus::Wanted;
use crate::topology::Cpus;

const FLAG: &str = "--on-gpu";

/// What stands for all GPUs of a host.
const ALL: &str = "all";

/// What such a process is told, in four words after the flag.
struct Told {
    launcher: Launcher,
    wanted: Wanted,
    /// Whether it says which CPUs are near.
    report: bool,
}

/// Whose variables tell the processes of a host apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    Hydra,
    OpenMpi,
    Slurm,
}

impl Launcher {
    const ALL: [Launcher; 3] = [Launcher::Hydra, Launcher::OpenMpi, Launcher::Slurm];

    fn of(kind: &Kind) -> Launcher {
        match kind {
            Kind::Hydra | Kind::IntelHydra => Launcher::Hydra,
            Kind::OpenMpi { .. } => Launcher::OpenMpi,
            Kind::Srun { .. } => Launcher::Slurm,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Launcher::Hydra => "hydra",
            Launcher::OpenMpi => "openmpi",
            Launcher::Slurm => "slurm",
        }
    }
}

/// What an MPI launcher of this kind is to start before a rank's program.
///
/// Errors: this program does not know where it lies.
pub(super) fn starter(kind: &Kind, wanted: &Wanted, report: bool) -> Result<Vec<OsString>, Error> {
    let own = std::env::current_exe();
    let own: PathBuf = own.map_err(|error| Error::system("find spmdrun's own file", error))?;
    let launcher = Launcher::of(kind).word();
    let gpus = wanted.named.as_ref().map_or(ALL.to_owned(), Cpus::to_string);
    let cpus = match (wanted.near, report) {
        (false, _) => "any",
        (true, false) => "near",
        (true, true) => "told",
    };
    let each = wanted.each.to_string();
    Ok(vec![own.into(), FLAG.into(), launcher.into(), each.into(), gpus.into(), cpus.into()])
}

impl Told {
    /// Reads the words between the flag and the program.
    fn read(words: &[String]) -> Option<Told> {
        let [launcher, each, gpus, cpus] = words else { return None };
        let launcher = Launcher::ALL.into_iter().find(|known| known.word() == launcher)?;
        let named = match gpus.as_str() {
            ALL => None,
            list => Some(Cpus::parse_ranks(list).ok()?),
        };
        let each = each.parse().ok().filter(|each| *each > 0)?;
        let (near, report) = match cpus.as_str() {
            "any" => (false, false),
            "near" => (true, false),
            "told" => (true, true),
            _ => return None,
        };
        Some(Told { launcher, wanted: Wanted { named, each, near }, report })
    }
}

/// A process among those of its job on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlaceOnHost {
    number: usize,
    of: usize,
}

impl PlaceOnHost {
    /// As the launcher's variables say it.
    fn find(launcher: Launcher, variable: impl Fn(&str) -> Option<String>) -> Option<PlaceOnHost> {
        let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
        let (number, of) = match launcher {
            Launcher::Hydra => (number("MPI_LOCALRANKID")?, number("MPI_LOCALNRANKS")?),
            Launcher::OpenMpi => {
                (number("OMPI_COMM_WORLD_LOCAL_RANK")?, number("OMPI_COMM_WORLD_LOCAL_SIZE")?)
            }
            Launcher::Slurm => {
                let all = variable("SLURM_STEP_TASKS_PER_NODE")?;
                (number("SLURM_LOCALID")?, tasks(&all, number("SLURM_NODEID")?)?)
            }
        };
        (number < of).then_some(PlaceOnHost { number, of })
    }

    fn of_this_process(launcher: Launcher) -> Result<PlaceOnHost, Error> {
        PlaceOnHost::find(launcher, |name| std::env::var(name).ok()).map_or_else(
            || {
                usage(
                    "--as gpus: the MPI launcher does not tell which of its host's processes this \
                     is; use --as processes, and have ranks take the GPUs of their host in turn \
                     (`ctx.device()`)"
                        .into(),
                )
            },
            Ok,
        )
    }
}

/// How many tasks a node has, where Slurm writes `2(x3),1` for nodes of 2, 2, 2 and 1.
fn tasks(all: &str, node: usize) -> Option<usize> {
    let mut before = 0usize;
    for item in all.split(',') {
        let (tasks, nodes) = match item.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (item, 1),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return tasks.trim().parse().ok();
        }
    }
    None
}

#[cfg(unix)]
pub(crate) use unix::main;

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, ExitCode};
    use std::time::Duration;

    use super::*;
    use crate::args::Bind;
    use crate::gpus::Gpus;
    use crate::place::Affinity;
    use crate::{report, topology};

    /// How long `spmdrun` may take to end the job, once it has been told why.
    const ENDING: Duration = Duration::from_secs(5);

    /// How many words stand between the flag and the program.
    const TOLD: usize = 4;

    /// If this process was started in the place of a rank, becomes that; comes back with an exit
    /// status where it cannot.
    pub(crate) fn main() -> Option<ExitCode> {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next()? != FLAG {
            return None;
        }
        let words: Vec<OsString> = arguments.collect();
        let (told, program) = words.split_at(TOLD.min(words.len()));
        let told: Vec<String> = told.iter().map(|it| it.to_string_lossy().into_owned()).collect();
        let (Some(told), Some((program, arguments))) = (Told::read(&told), program.split_first())
        else {
            report::say(&format!("{FLAG} is for processes that spmdrun has an MPI launcher start"));
            return Some(ExitCode::from(2));
        };
        let place = PlaceOnHost::of_this_process(told.launcher);
        let Err(error) = place.and_then(|place| become_rank(&told, place, program, arguments));
        let text = format!("on {}: {error}", host());
        // The same for all of a host, mostly: `spmdrun` says it once, and ends them all.
        if spmd_core::boot::raise_alarm(&text) {
            std::thread::sleep(ENDING);
        }
        report::say(&text);
        Some(ExitCode::from(error.status()))
    }

    /// Errors: this host has too few GPUs or none; the program cannot be started.
    fn become_rank(
        told: &Told,
        place: PlaceOnHost,
        program: &OsStr,
        arguments: &[OsString],
    ) -> Result<std::convert::Infallible, Error> {
        let gpus = Gpus::find(&told.wanted)?;
        gpus.check(place.of)?;
        // Lives until this is another program: what ends it would undo it.
        let affinity = Affinity::save();
        if told.wanted.near
            && let Bind::List(near) = gpus.binding(place.of, &topology::allowed())
        {
            let cpus = &near[place.number];
            affinity.set(cpus)?;
            if told.report {
                let PlaceOnHost { number, of } = place;
                let host = host();
                report::say(&format!("process {number} of {of} on {host} is bound to CPU {cpus}"));
            }
        }
        let mut command = Command::new(program);
        command.args(arguments).env("CUDA_VISIBLE_DEVICES", gpus.of(place.number));
        let error = command.exec();
        let text = format!("cannot start {}: {error}", program.display());
        Err(match error.kind() {
            io::ErrorKind::NotFound => Error::NotFound(text),
            _ => Error::NotExecutable(text),
        })
    }

    fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_is_told() {
        let named = Cpus::parse_ranks("0,2-3").ok();
        for (named, near, report) in
            [(None, true, false), (named, false, false), (None, true, true)]
        {
            let wanted = Wanted { named, each: 2, near };
            for (kind, launcher) in [
                (Kind::Hydra, Launcher::Hydra),
                (Kind::IntelHydra, Launcher::Hydra),
                (Kind::OpenMpi { major: 5 }, Launcher::OpenMpi),
                (Kind::Srun { pmi: "pmi2".into() }, Launcher::Slurm),
            ] {
                let words = starter(&kind, &wanted, report).unwrap();
                assert_eq!(words[1], FLAG);
                let words: Vec<String> =
                    words[2..].iter().map(|it| it.to_str().unwrap().into()).collect();
                let told = Told::read(&words).unwrap();
                assert_eq!((told.launcher, told.report), (launcher, report));
                assert_eq!(told.wanted, wanted);
            }
        }
        for nonsense in ["", "hydra 1 all", "srun 1 all any", "hydra 0 all any", "hydra 1 all x"] {
            let words: Vec<String> = nonsense.split(' ').map(str::to_owned).collect();
            assert!(Told::read(&words).is_none(), "{nonsense}");
        }
    }

    #[test]
    fn places_on_a_host() {
        let place = |launcher, set: &[(&str, &str)]| {
            let variable = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
            };
            PlaceOnHost::find(launcher, variable).map(|place| (place.number, place.of))
        };
        let hydra = [("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "3")];
        assert_eq!(place(Launcher::Hydra, &hydra), Some((1, 3)));
        assert_eq!(place(Launcher::OpenMpi, &hydra), None);
        let open = [("OMPI_COMM_WORLD_LOCAL_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];
        assert_eq!(place(Launcher::OpenMpi, &open), Some((0, 2)));
        let slurm = |node, task| {
            let all = ("SLURM_STEP_TASKS_PER_NODE", "2(x2),4,1");
            place(Launcher::Slurm, &[all, ("SLURM_NODEID", node), ("SLURM_LOCALID", task)])
        };
        assert_eq!((slurm("0", "1"), slurm("1", "0")), (Some((1, 2)), Some((0, 2))));
        assert_eq!((slurm("2", "3"), slurm("3", "0")), (Some((3, 4)), Some((0, 1))));
        // There is no such node, or no such task there.
        assert_eq!((slurm("4", "0"), slurm("3", "1")), (None, None));
    }
}
