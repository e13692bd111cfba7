//! Jobs under an MPI launcher: with a library and launchers that these tests make up, and, where
//! there are some, with real ones.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use support::{Job, Ran, finish, spmdrun};
use tempfile::TempDir;

/// Says what a library is asked for before `MPI_Init`.
const LIBRARY: &str = r#"
#[unsafe(no_mangle)]
pub extern "C" fn MPI_Abi_get_version(major: *mut i32, minor: *mut i32) -> i32 {
    unsafe { (*major, *minor) = (ABI, 0) };
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn MPI_Get_library_version(text: *mut u8, length: *mut i32) -> i32 {
    unsafe {
        NAME.as_ptr().copy_to(text, NAME.len());
        *length = NAME.len() as i32;
    }
    0
}
"#;

/// An installation of an MPI that is made up.
struct Mpi(TempDir);

impl Mpi {
    fn new(name: &str, abi: i32) -> Mpi {
        let mpi = Mpi(tempfile::tempdir().expect("a temporary folder"));
        fs::create_dir_all(mpi.lib()).expect("writable");
        let head = format!("const NAME: &str = {name:?};\nconst ABI: i32 = {abi};\n");
        let source = mpi.0.path().join("library.rs");
        fs::write(&source, head + LIBRARY).expect("writable");
        let built = Command::new("rustc")
            .args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-o"])
            .args([mpi.file(), source])
            .status();
        assert!(built.is_ok_and(|status| status.success()), "rustc builds the library");
        mpi
    }

    fn lib(&self) -> PathBuf {
        self.0.path().join("lib")
    }

    fn file(&self) -> PathBuf {
        self.lib().join("libmpi_abi.so.1")
    }

    fn bin(&self) -> PathBuf {
        self.0.path().join("bin")
    }

    /// Adds a launcher that says its version, and otherwise what it was told.
    fn launcher(&self, name: &str, question: &str, version: &str) {
        fs::create_dir_all(self.bin()).expect("writable");
        let path = self.bin().join(name);
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = {question} ] && echo '{version}' && exit 0\necho \"$@\"\n\
             env | grep ^SPMD_ | sort\n"
        );
        fs::write(&path, script).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    }
}

/// `spmdrun` where nothing of MPI is found.
fn bare(arguments: &[&str]) -> Command {
    let mut command = spmdrun(arguments);
    for name in ["SPMD_MPI_LIB", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SLURM_JOB_ID"] {
        command.env_remove(name);
    }
    command
}

fn with(mpi: &Mpi, arguments: &[&str]) -> Command {
    let mut command = bare(arguments);
    command.env("SPMD_MPI_LIB", mpi.lib());
    command
}

#[track_caller]
fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    for word in words {
        assert!(ran.err.contains(word), "{word}: {ran:?}");
    }
}

#[test]
fn a_hybrid_job_under_hydra() {
    let mpi = Mpi::new("MPICH Version: 5.0.2", 1);
    mpi.launcher("mpiexec", "--version", "HYDRA build details: Version: 5.0.2");
    let line = ["--hostfile", "hosts", "--ranks-per-process", "8", "--tag", "--timeout", "9"];
    let hosts = mpi.0.path().join("hosts");
    fs::write(&hosts, "localhost slots=64 # here\n").expect("writable");
    let mut command = with(&mpi, &line);
    let ran = finish(command.current_dir(mpi.0.path()).args(["-n", "64", "true", "-x"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = "-genvall -bind-to none -prepend-rank -hosts localhost:8 -n 8 /";
    let first = ran.out.lines().next().unwrap_or("");
    assert!(first.starts_with(told) && first.ends_with("/true -x"), "{first}");
    let library = format!("SPMD_MPI_LIB={}", mpi.file().display());
    for variable in [
        "SPMD_TRANSPORT=mpi",
        &library,
        "SPMD_RANKS_PER_PROCESS=8",
        "SPMD_AS=threads",
        "SPMD_TIMEOUT=9",
    ] {
        assert!(ran.out.lines().any(|line| line == variable), "{variable}: {ran:?}");
    }
}

#[test]
fn a_dry_run_starts_nothing() {
    let mpi = Mpi::new("Open MPI v6.0.0", 1);
    mpi.launcher("mpirun", "--version", "mpirun (Open MPI) 6.0.0");
    let ran =
        finish(&mut with(&mpi, &["--transport", "mpi", "-n", "2", "--dry-run", "true", "a b"]));
    assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 1), "{ran:?}");
    assert!(ran.out.contains("SPMD_TRANSPORT=mpi ") && ran.out.contains("/mpirun "), "{ran:?}");
    assert!(ran.out.contains("-x SPMD_MPI_LIB -x SPMD_TRANSPORT --map-by"), "{ran:?}");
    assert!(ran.out.contains("/true 'a b' #"), "{ran:?}");
}

/// Whoever becomes a rank looks for its GPU on the host where it is.
#[test]
fn ranks_with_gpus_are_started_by_spmdrun() {
    let mpi = Mpi::new("MPICH Version: 5.0.2", 1);
    mpi.launcher("mpiexec", "--version", "HYDRA build details: Version: 5.0.2");
    let line = ["--as", "gpus", "--transport", "nccl", "--host", "localhost:4"];
    let chosen = ["--gpus", "0-2,5", "--ranks-per-gpu", "2", "true", "-x"];
    let ran = finish(with(&mpi, &line).args(chosen));
    let first = ran.out.lines().next().unwrap_or("");
    let own = env!("CARGO_BIN_EXE_spmdrun");
    let told = format!("-hosts localhost:4 -n 4 {own} --on-gpu hydra 2 0-2,5 near /");
    assert!(first.contains(&told) && first.ends_with("/true -x"), "{told}: {ran:?}");
    assert!(ran.lines().contains(&"SPMD_TRANSPORT=nccl"), "{ran:?}");
    let bound = finish(with(&mpi, &line).args(["--bind", "none", "true"]));
    assert!(bound.out.contains(" --on-gpu hydra 1 all any /"), "{bound:?}");
}

/// By somebody else than a launcher that spmdrun knows.
#[test]
fn who_is_started_in_a_ranks_place_by_mistake() {
    let by = |arguments: &[&str]| {
        let mut command = bare(arguments);
        command.env_remove("MPI_LOCALRANKID").env_remove("SPMD_ALARM");
        finish(&mut command)
    };
    refused(&by(&["--on-gpu", "hydra", "1", "all"]), &["has an MPI launcher start"]);
    refused(
        &by(&["--on-gpu", "hydra", "1", "all", "any", "true"]),
        &["does not tell which", "on "],
    );
}

/// What `srun --mpi=list` says.
const OFFERED: &str = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n\
                       specific pmix plugin versions available: pmix_v4";

/// In an allocation of three tasks, where programs are those of this MPI.
fn in_an_allocation(mpi: &Mpi, arguments: &[&str]) -> Command {
    let path = format!("{}:/usr/bin:/bin", mpi.bin().display());
    let mut command = with(mpi, arguments);
    command.env("PATH", path).env("SLURM_JOB_ID", "7").env("SLURM_NTASKS", "3");
    command.env_remove("SLURM_MPI_TYPE");
    command
}

#[test]
fn slurm_in_an_allocation() {
    let mpi = Mpi::new("MPICH Version: 5.0.2", 1);
    mpi.launcher("srun", "--mpi=list", OFFERED);
    let job = ["--transport", "mpi", "--bind", "core", "true"];
    let ran = finish(&mut in_an_allocation(&mpi, &job));
    let told = "--mpi=pmi2 --export=ALL --cpu-bind=cores --input=0 -n 3";
    assert!(ran.out.starts_with(told) && ran.err.is_empty(), "{ran:?}");
    let chosen = finish(in_an_allocation(&mpi, &job).env("SLURM_MPI_TYPE", "pmix_v4"));
    assert!(chosen.out.starts_with("--mpi=pmix_v4 "), "{chosen:?}");
    let doctor = finish(&mut in_an_allocation(&mpi, &["--doctor"]));
    says(&doctor, "MPI launcher", "ok", &["Slurm", "/bin/srun, as this", "--mpi=pmi2"]);
}

#[test]
fn an_allocation_whose_slurm_does_not_fit() {
    let mpi = Mpi::new("Open MPI v6.0.0", 1);
    mpi.launcher("srun", "--mpi=list", "MPI plugin types are...\n\tnone\n\tpmi2");
    let job = ["--transport", "mpi", "/bin/true"];
    let why = "srun offers none, pmi2 (--mpi=list), and Open MPI 6.0.0 needs pmix";
    let absent = finish(in_an_allocation(&mpi, &job).env("PATH", mpi.bin()));
    refused(&absent, &["no launcher for Open MPI 6.0.0", why, "SLURM_MPI_TYPE"]);

    mpi.launcher("mpirun", "--version", "mpirun (Open MPI) 6.0.0");
    let ran = finish(&mut in_an_allocation(&mpi, &job));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("--map-by slot:OVERSUBSCRIBE") && ran.out.contains("-n 3"), "{ran:?}");
    for words in [why, "SLURM_MPI_TYPE", "/bin/mpirun, the library's own launcher, starts the job"]
    {
        assert!(ran.err.contains(words) && ran.err.lines().count() == 1, "{words}: {ran:?}");
    }
    let doctor = finish(&mut in_an_allocation(&mpi, &["--doctor"]));
    says(&doctor, "MPI launcher", "--", &["/bin/mpirun, and not Slurm's", why]);

    fs::remove_file(mpi.bin().join("srun")).expect("ours");
    let dry = [&job[..2], &["--dry-run", "/bin/true"]].concat();
    let without = finish(in_an_allocation(&mpi, &dry).env("PATH", mpi.bin()));
    assert!(without.err.contains("there is no srun in PATH"), "{without:?}");
    assert!(without.out.contains("/bin/mpirun "), "{without:?}");
}

#[test]
fn no_library() {
    let mpi = ["--transport", "mpi", "-n", "2", "/bin/true"];
    let nowhere = finish(bare(&mpi).env("PATH", "/nowhere"));
    if nowhere.code == Some(2) {
        refused(&nowhere, &["no MPI library", "VIRTUAL_ENV", "pip install"]);
    }
    let said = finish(bare(&mpi).env("SPMD_MPI_LIB", "/nowhere"));
    refused(&said, &["SPMD_MPI_LIB=/nowhere", "libmpi_abi.so.1", "unset"]);
    let wrong = finish(bare(&mpi).env("SPMD_MPI_LIB", "/etc/passwd"));
    refused(&wrong, &["/etc/passwd", "cannot be loaded", "pip install"]);
}

#[test]
fn a_library_that_does_not_fit() {
    let line = ["--transport", "mpi", "-n", "2", "true"];
    let old = Mpi::new("MPICH Version: 4.0", 0);
    refused(&finish(&mut with(&old, &line)), &["version 0.0", "version 1", "pip install"]);
    let own = Mpi::new("MPICH Version: 5.0", -1);
    refused(&finish(&mut with(&own, &line)), &["an ABI of its own", "libmpi_abi.so.1"]);
    let stranger = Mpi::new("Tomorrow's MPI 1.0", 1);
    refused(&finish(&mut with(&stranger, &line)), &["Tomorrow's MPI", "SPMD_TRANSPORT=mpi"]);
}

#[test]
fn an_older_abi_beside() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(dir.path().join("libmpi_abi.so.0"), "").expect("writable");
    let mut command = bare(&["--transport", "mpi", "-n", "2", "true"]);
    refused(&finish(command.env("SPMD_MPI_LIB", dir.path())), &["libmpi_abi.so.0", "too old"]);
}

#[test]
fn a_launcher_that_does_not_belong() {
    let mpi = Mpi::new("MPICH Version: 5.0.2", 1);
    let line = ["--transport", "mpi", "-n", "2", "/bin/true"];
    let absent = finish(with(&mpi, &line).env("PATH", "/nowhere"));
    refused(&absent, &["no launcher for MPICH 5.0.2", "no mpiexec or mpirun", "PATH"]);
    mpi.launcher("mpirun", "--version", "mpirun (Open MPI) 5.0.11");
    let other = finish(with(&mpi, &line).env("PATH", "/nowhere"));
    refused(&other, &["no launcher for MPICH 5.0.2", "mpirun is Open MPI's", "PATH"]);
}

/// The library of [`linked_with`], of a version that no machine has where the loader looks.
const LINKED: &str = "libmpi.so.4099";

/// A program that is linked with an MPI without the standard ABI.
fn linked_with(mpi: &Mpi) -> PathBuf {
    fs::rename(mpi.file(), mpi.lib().join(LINKED)).expect("writable");
    let (source, program) = (mpi.0.path().join("app.rs"), mpi.0.path().join("app"));
    let text = "unsafe extern \"C\" { fn MPI_Get_library_version(text: *mut u8, length: *mut i32); }\n\
                fn main() { let mut text = [0; 99]; \
                unsafe { MPI_Get_library_version(text.as_mut_ptr(), &mut 0) } }";
    fs::write(&source, text).expect("writable");
    let mut build = Command::new("rustc");
    build
        .args(["--edition=2024", "-L"])
        .arg(mpi.lib())
        .arg(format!("-Clink-arg=-l:{LINKED}"))
        .arg("-o")
        .args([&program, &source]);
    assert!(build.status().is_ok_and(|status| status.success()), "rustc builds the program");
    program
}

#[test]
fn a_program_that_is_linked_with_its_library() {
    let mpi = Mpi::new("Open MPI v5.0.11, package: ours", 1);
    let program = linked_with(&mpi);
    let start = |path: &Path| {
        let mut command = bare(&["--transport", "mpi", "-n", "2"]);
        // That of other programs: it has no part in this.
        command.arg(&program).env("LD_LIBRARY_PATH", mpi.lib()).env("SPMD_MPI_LIB", "/nowhere");
        finish(command.env("PATH", path))
    };
    let other = Mpi::new("MPICH Version: 5.0.2", 1);
    other.launcher("mpiexec", "--version", "HYDRA build details: Version: 5.0.2");
    let words = ["no launcher for Open MPI 5.0.11", "with which the program is linked", "MPICH's"];
    refused(&start(&other.bin()), &words);

    mpi.launcher("mpirun", "--version", "mpirun (Open MPI) 5.0.11");
    let path = format!("{}:/usr/bin:/bin", other.bin().display());
    let ran = start(Path::new(&path));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("-x LD_LIBRARY_PATH "), "{ran:?}");
    assert!(ran.out.contains("--map-by slot:OVERSUBSCRIBE"), "{ran:?}");
    assert!(ran.out.lines().any(|line| line == "SPMD_TRANSPORT=mpi"), "{ran:?}");

    let mut lost = bare(&["--transport", "mpi", "-n", "2"]);
    let words = ["is linked with libmpi.so.4099, which", "does not find", "LD_LIBRARY_PATH"];
    refused(&finish(lost.arg(&program)), &words);
    let mut both = bare(&["--transport", "mpi", "-n", "1"]);
    both.arg(&program).args([":", "-n", "1", "/bin/true"]).env("LD_LIBRARY_PATH", mpi.lib());
    refused(&finish(&mut both), &["/app is linked with", "/bin/true with no MPI", "need the same"]);
}

/// The line of the doctor that is about this.
#[track_caller]
fn finding(ran: &Ran, what: &str) -> String {
    let line = ran.out.lines().find(|line| line.get(4..).is_some_and(|it| it.starts_with(what)));
    line.unwrap_or_else(|| panic!("{what}: {ran:?}")).to_owned()
}

#[track_caller]
fn says(ran: &Ran, what: &str, state: &str, words: &[&str]) {
    let line = finding(ran, what);
    assert!(line.starts_with(state) && words.iter().all(|word| line.contains(word)), "{line}");
}

#[test]
fn the_doctor_looks_at_mpi() {
    let mpi = Mpi::new("MPICH Version: 5.0.2\nMPICH Device: ch4:ofi\nmore", 1);
    mpi.launcher("mpiexec", "--version", "HYDRA build details: Version: 5.0.3");
    let mut command = with(&mpi, &["--doctor"]);
    let ran = finish(command.env("FI_PROVIDER", "tcp").env_remove("MPIR_CVAR_CH4_NETMOD"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    says(&ran, "MPI library", "ok", &["MPICH 5.0.2: ", mpi.file().to_str().expect("it is text")]);
    says(&ran, "MPI version", "ok", &["MPICH Version: 5.0.2"]);
    says(&ran, "MPI provider", "ok", &["abi: loaded", "ABI 1.0"]);
    says(&ran, "MPI network", "ok", &["ch4:ofi, provider tcp (FI_PROVIDER)"]);
    let own = ["MPICH 5.0.3: ", "/bin/mpiexec", "of the library's installation"];
    says(&ran, "MPI launcher", "ok", &own);
    assert!(!ran.out.contains("  program "), "{ran:?}");
}

#[test]
fn the_doctor_looks_at_programs() {
    let mpi = Mpi::new("MPICH Version: 5.0.2", 1);
    let doctor = |program: &str| finish(&mut with(&mpi, &["--doctor", program]));
    let loads = doctor("/bin/true");
    assert_eq!(loads.code, Some(0), "{loads:?}");
    says(&loads, "program", "ok", &["/bin/true, linked with no MPI", "loads the library"]);
    says(&loads, "MPI library", "ok", &["libmpi_abi.so.1"]);
    says(&loads, "MPI network", "--", &["does not say"]);

    let script = mpi.0.path().join("job.sh");
    fs::write(&script, "#!/bin/sh\n").expect("writable");
    let script = script.to_str().expect("it is text");
    says(&doctor(script), "program", "NO", &["not an executable file", "chmod +x"]);
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("ours");
    says(&doctor(script), "program", "--", &["job.sh, a script"]);
    let absent = doctor("/no/such/program");
    assert_eq!(absent.code, Some(1), "{absent:?}");
    says(&absent, "program", "NO", &["cannot find the program /no/such/program"]);
}

#[test]
fn the_doctor_looks_at_a_program_that_is_linked() {
    let mpi = Mpi::new("Open MPI v5.0.11, package: ours", 1);
    let program = linked_with(&mpi);
    mpi.launcher("mpirun", "--version", "mpirun (Open MPI) 5.0.11");
    let doctor = |command: &mut Command| {
        finish(command.arg(&program).env("SPMD_MPI_LIB", "/nowhere").env("OMPI_MCA_pml", "ob1"))
    };
    let found = doctor(bare(&["--doctor"]).env("LD_LIBRARY_PATH", mpi.lib()));
    assert_eq!(found.code, Some(0), "{found:?}");
    says(&found, "program", "ok", &["/app, linked with ", "/lib/libmpi.so.4099"]);
    says(&found, "MPI library", "ok", &["Open MPI 5.0.11: ", "/lib/libmpi.so.4099"]);
    says(&found, "MPI version", "ok", &["Open MPI v5.0.11, package: ours"]);
    says(&found, "MPI provider", "ok", &["linked: "]);
    says(&found, "MPI network", "ok", &["pml ob1 (OMPI_MCA_pml)"]);
    says(&found, "MPI launcher", "ok", &["/mpirun, of the library's installation"]);
    let lost = doctor(&mut bare(&["--doctor"]));
    assert_eq!(lost.code, Some(1), "{lost:?}");
    says(&lost, "program", "NO", &["is linked with libmpi.so.4099, which", "LD_LIBRARY_PATH"]);
}

#[test]
fn started_by_an_mpi_launcher() {
    let ran = finish(bare(&["-n", "2", "true"]).env("PMI_RANK", "0"));
    refused(&ran, &["PMI_RANK", "mpiexec -n N ./app", "--transport shm"]);
    let ran = finish(bare(&["-n", "2", "true"]).env("SLURM_STEP_NUM_TASKS", "2"));
    refused(&ran, &["SLURM_STEP_NUM_TASKS", "spmdrun alone"]);
    let ran = finish(bare(&["-n", "2", "--transport", "shm", "true"]).env("PMI_RANK", "0"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// The library folders of the MPIs below the target folder, where `cargo xtask versus` puts them.
fn real() -> Vec<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_spmdrun")).ancestors().nth(2);
    let peers = target.map(|target| target.join("peers")).unwrap_or_default();
    let folders = ["mpich", "impi"].map(|name| peers.join(name).join("lib"));
    let found: Vec<PathBuf> =
        folders.into_iter().filter(|lib| lib.join("libmpi_abi.so.1").is_file()).collect();
    if found.is_empty() {
        eprintln!("skipped: no MPI library in {}", peers.display());
    }
    found
}

#[test]
fn real_launchers() {
    for lib in real() {
        let run = |arguments: &[&str]| {
            let mut command = bare(&["--transport", "mpi"]);
            finish(command.env("SPMD_MPI_LIB", &lib).args(arguments))
        };
        // MPICH's own launcher is killed by SIGPIPE, on a busy machine in 14 of 412 starts, where its
        // ranks have ended before it is through with starting them.
        let show =
            "sleep 0.3; echo $SPMD_TRANSPORT $SPMD_RANKS_PER_PROCESS $SPMD_AS $PMI_SIZE $A $PWD";
        let hybrid = ["--ranks-per-process", "3", "--as", "virtual", "--env", "A=x y"];
        let ran = run(&[&hybrid[..], &["-n", "6", "--cwd", "/", "sh", "-c", show]].concat());
        assert_eq!((ran.code, ran.lines()), (Some(0), vec!["mpi 3 virtual 2 x y /"; 2]), "{ran:?}");
        let ran = run(&["-n", "2", "--tag", "sh", "-c", "sleep 0.3; echo $PMI_RANK"]);
        assert_eq!(ran.lines(), ["[0] 0", "[1] 1"], "{ran:?}");
        let ran = run(&["-n", "2", "sh", "-c", "sleep 0.3; exit 7"]);
        assert_eq!(ran.code, Some(7), "{ran:?}");
        assert!(ran.last_line().contains("status 7"), "{ran:?}");
        let late = |word: &str| format!("sleep 0.3; echo {word}");
        let ran =
            run(&["-n", "1", "sh", "-c", &late("one"), ":", "-n", "2", "sh", "-c", &late("two")]);
        assert_eq!(ran.lines(), ["one", "two", "two"], "{ran:?}");
        let ran = run(&["-n", "2", "--timeout", "0.5", "sleep", "60"]);
        assert_eq!(ran.code, Some(124), "{ran:?}");
        let inner = "sleep 0.3; exec \"$0\" -n 2 true";
        let ran = run(&["-n", "2", "sh", "-c", inner, env!("CARGO_BIN_EXE_spmdrun")]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
}

#[test]
fn signals_end_real_launchers_and_their_ranks() {
    for lib in real() {
        for (signal, code) in
            [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)]
        {
            let script = "echo ready; exec sleep 60";
            let mut command = bare(&["--transport", "mpi", "-n", "2", "sh", "-c", script]);
            command.env("SPMD_MPI_LIB", &lib);
            let job = Job::of(command, 2);
            job.signal(signal);
            let ran = job.end();
            assert_eq!(ran.code, code, "{signal:?}: {ran:?}");
        }
    }
}
