//! Command lines as text, for every launcher.

use super::*;

const HYDRA: Kind = Kind::Hydra;
const INTEL: Kind = Kind::IntelHydra;
const OPEN_4: Kind = Kind::OpenMpi { major: 4 };
const OPEN_5: Kind = Kind::OpenMpi { major: 5 };
fn srun() -> Kind {
    Kind::Srun { pmi: "pmi2".into() }
}

fn app(processes: usize) -> App<'static> {
    App { processes, path: Path::new("/app"), arguments: &[], env: &[], cwd: None }
}

fn wanted(processes: usize) -> MatchPattern<'static> {
    MatchPattern {
        starter: Vec::new(),
        apps: vec![app(processes)],
        hosts: Vec::new(),
        bind: &Bind::None,
        per_process: 1,
        tag: false,
        report_bindings: false,
        output_dir: None,
        stdin: Stdin::Rank(0),
        names: Vec::new(),
        as_root: false,
    }
}

/// Variables and words, as a shell would be given them.
fn text(kind: &Kind, wanted: &MatchPattern<'_>) -> String {
    let line = line(kind, wanted).unwrap();
    let env = line.env.iter().map(|(name, value)| format!("{name}={}", value.display()));
    let words = line.arguments.iter().map(|word| word.display().to_string());
    env.chain(words).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_least() {
    let mut wanted = wanted(4);
    assert_eq!(text(&HYDRA, &wanted), "-genvall -bind-to none -n 4 /app");
    assert_eq!(text(&INTEL, &wanted), "I_MPI_PIN=0 -genvall -n 4 /app");
    let slurm = "--mpi=pmi2 --export=ALL --cpu-bind=none --input=0 -n 4 /app";
    assert_eq!(text(&srun(), &wanted), slurm);
    wanted.names = vec!["SPMD_TRANSPORT".into(), "SPMD_JOB".into()];
    wanted.as_root = true;
    assert_eq!(
        text(&OPEN_5, &wanted),
        "--allow-run-as-root -x SPMD_TRANSPORT -x SPMD_JOB --map-by slot:OVERSUBSCRIBE --bind-to \
         none -n 4 /app"
    );
}

#[test]
fn what_the_user_sets_wins() {
    let mut wanted = wanted(4);
    wanted.names = vec!["SPMD_TRANSPORT".into(), "SPMD_JOB".into()];
    let env = [("SPMD_TRANSPORT".to_owned(), OsString::from("nccl"))];
    wanted.apps[0].env = &env;
    let told = "-x SPMD_JOB --map-by slot:OVERSUBSCRIBE --bind-to none -x SPMD_TRANSPORT=nccl";
    assert!(text(&OPEN_5, &wanted).starts_with(told), "{}", text(&OPEN_5, &wanted));
}

#[test]
fn what_becomes_the_program() {
    let mut wanted = wanted(4);
    wanted.starter = ["/spmdrun", "--on-gpu"].map(OsString::from).into();
    for kind in [HYDRA, INTEL, OPEN_5, srun()] {
        let text = text(&kind, &wanted);
        assert!(text.ends_with(" -n 4 /spmdrun --on-gpu /app"), "{text}");
    }
}

#[test]
fn hosts_of_different_size() {
    let mut wanted = wanted(5);
    wanted.hosts = vec![("a".into(), 2), ("b".into(), 3)];
    assert!(text(&HYDRA, &wanted).ends_with("-hosts a:2,b:3 -n 5 /app"));
    assert!(text(&OPEN_5, &wanted).ends_with("--host a:2,b:3 -n 5 /app"));
    assert!(text(&INTEL, &wanted).ends_with("-genvall -host a -n 2 /app : -host b -n 3 /app"));
    assert!(
        text(&srun(), &wanted).ends_with("--distribution=arbitrary --nodelist=a,a,b,b,b -n 5 /app")
    );
    wanted.hosts = vec![("a".into(), 3), ("b".into(), 2)];
    assert!(text(&INTEL, &wanted).ends_with("-hosts a,b -ppn 3 -n 5 /app"));
}

#[test]
fn two_programs() {
    let env = [("A".to_owned(), OsString::from("1,2"))];
    let arguments = ["-x".into(), "two words".into()];
    let mut wanted = wanted(1);
    wanted.apps.push(App {
        processes: 3,
        path: Path::new("/other"),
        arguments: &arguments,
        env: &env,
        cwd: Some("/tmp".into()),
    });
    let hydra = "-n 1 /app : -wdir /tmp -env A 1,2 -n 3 /other -x two words";
    assert!(text(&HYDRA, &wanted).ends_with(hydra));
    let open = "-n 1 /app : --wdir /tmp -x A=1,2 -n 3 /other -x two words";
    assert!(text(&OPEN_5, &wanted).ends_with(open));
    wanted.hosts = vec![("a".into(), 1), ("b".into(), 2), ("c".into(), 1)];
    assert!(text(&INTEL, &wanted).ends_with(
        "-genvall -host a -n 1 /app : -host b -wdir /tmp -env A 1,2 -n 2 /other -x two words : \
         -host c -wdir /tmp -env A 1,2 -n 1 /other -x two words"
    ));
    assert!(line(&srun(), &wanted).unwrap_err().to_string().contains("`:`"));
    wanted.apps.remove(0);
    assert!(text(&srun(), &wanted).starts_with("A=1,2 --mpi=pmi2"));
    assert!(text(&srun(), &wanted).ends_with("--chdir /tmp -n 3 /other -x two words"));
}

#[test]
fn binding() {
    let list = Bind::List(vec![Cpus([0, 1].into()), Cpus([4, 9].into())]);
    let cases: [(&Bind, usize, &Kind, &str); 15] = [
        (&Bind::Core, 1, &HYDRA, "-bind-to core"),
        (&Bind::Core, 8, &HYDRA, "-bind-to core:8"),
        (&Bind::Numa, 8, &HYDRA, "-bind-to numa"),
        (&list, 1, &HYDRA, "-bind-to user:0+1,4+9"),
        (&Bind::Core, 1, &INTEL, "I_MPI_PIN_DOMAIN=core"),
        (&Bind::Core, 8, &INTEL, "I_MPI_PIN_CELL=core I_MPI_PIN_DOMAIN=8"),
        (&Bind::Numa, 1, &INTEL, "I_MPI_PIN_DOMAIN=numa"),
        (&list, 1, &INTEL, "I_MPI_PIN_DOMAIN=[3,210]"),
        (&Bind::Core, 1, &OPEN_5, "--map-by slot:OVERSUBSCRIBE --bind-to core:overload-allowed"),
        (&Bind::Core, 8, &OPEN_5, "--map-by slot:PE=8:OVERSUBSCRIBE --bind-to core"),
        (&Bind::Numa, 1, &OPEN_4, "--map-by slot:OVERSUBSCRIBE --bind-to numa:overload-allowed"),
        (&Bind::Core, 1, &srun(), "--cpu-bind=cores"),
        (&Bind::Core, 8, &srun(), "--cpus-per-task=8 --cpu-bind=cores"),
        (&Bind::Numa, 1, &srun(), "--cpu-bind=ldoms"),
        (&list, 1, &srun(), "--cpu-bind=mask_cpu:0x3,0x210"),
    ];
    for (bind, per_process, kind, expected) in cases {
        let text = text(kind, &MatchPattern { bind, per_process, ..wanted(2) });
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let wanted = MatchPattern { bind: &list, ..wanted(2) };
    assert!(line(&OPEN_5, &wanted).unwrap_err().to_string().contains("--bind core"));
}

#[test]
fn output_and_input() {
    let cases = [
        (
            &HYDRA,
            "-prepend-rank -outfile-pattern /d/rank-%r.stdout -errfile-pattern /d/rank-%r.stderr",
        ),
        (
            &INTEL,
            "-prepend-rank -outfile-pattern /d/rank-%r.stdout -errfile-pattern /d/rank-%r.stderr -s all",
        ),
        (&OPEN_4, "--tag-output --output-filename /d --stdin all"),
        (&OPEN_5, "--output tag --output dir=/d --stdin all"),
        (&srun(), "--label --output=/d/rank-%t.stdout --error=/d/rank-%t.stderr --input=all"),
    ];
    for (kind, expected) in cases {
        let stdin = if *kind == HYDRA { Stdin::Rank(0) } else { Stdin::All };
        let wanted = MatchPattern { tag: true, output_dir: Some("/d".into()), stdin, ..wanted(2) };
        let text = text(kind, &wanted);
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let wanted = MatchPattern { stdin: Stdin::All, ..wanted(2) };
    assert!(line(&HYDRA, &wanted).unwrap_err().to_string().contains("--stdin"));
}

#[test]
fn reports_of_bindings() {
    let wanted = MatchPattern { report_bindings: true, ..wanted(1) };
    for (kind, expected) in [
        (&HYDRA, "HYDRA_TOPO_DEBUG=1"),
        (&INTEL, "I_MPI_DEBUG=4"),
        (&OPEN_4, "--report-bindings"),
        (&OPEN_5, "--display bind"),
        (&srun(), "--cpu-bind=verbose,none"),
    ] {
        assert!(text(kind, &wanted).contains(expected), "{expected}");
    }
}
