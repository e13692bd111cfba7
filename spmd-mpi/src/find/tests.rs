//! Machines that are made up.

use super::*;

#[derive(Default)]
struct MadeUp {
    variables: Vec<(&'static str, &'static str)>,
    files: Vec<&'static str>,
    links: Vec<(&'static str, &'static str)>,
    cache: Vec<&'static str>,
}

impl Machine for MadeUp {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    fn is_file(&self, path: &Path) -> bool {
        let link = self.links.iter().any(|(from, _)| Path::new(from) == path);
        link || self.files.iter().any(|file| Path::new(file) == path)
    }

    fn real(&self, path: &Path) -> PathBuf {
        let link = self.links.iter().find(|(from, _)| Path::new(from) == path);
        link.map_or(path, |(_, to)| Path::new(to)).to_path_buf()
    }

    fn loader_cache(&self) -> Vec<PathBuf> {
        self.cache.iter().map(PathBuf::from).collect()
    }
}

#[test]
fn in_the_order_that_is_promised() {
    let mut machine = MadeUp {
        variables: vec![
            ("SPMD_MPI_LIB", "/said"),
            ("LD_LIBRARY_PATH", "/loader:"),
            ("PATH", "/empty:/links/bin"),
            ("VIRTUAL_ENV", "/venv"),
            ("CONDA_PREFIX", "/conda"),
        ],
        files: vec![
            "/said/libmpi_abi.so.1",
            "/loader/libmpi_abi.so.1",
            "/cached/libmpi_abi.so.1",
            "/usr/lib64/libmpi_abi.so.1",
            "/opt/mpi/lib64/libmpi_abi.so.1",
            "/venv/lib/libmpi_abi.so.1",
            "/conda/lib/libmpi_abi.so.1",
        ],
        links: vec![("/links/bin/mpiexec", "/opt/mpi/bin/mpiexec.hydra")],
        cache: vec!["/elsewhere/libm.so.6", "/cached/libmpi_abi.so.1"],
    };
    let expected = machine.files.clone();
    for file in expected {
        assert_eq!(library(&machine), Ok(PathBuf::from(file)));
        machine.files.retain(|known| *known != file);
        machine.cache.retain(|known| *known != file);
        machine.variables.retain(|(name, _)| *name != "SPMD_MPI_LIB");
    }
    let folders =
        ["/links/lib", "/links/lib64", "/opt/mpi/lib", "/opt/mpi/lib64", "/venv/lib", "/conda/lib"];
    let absent = |folders: &[&str], launcher: Option<&str>| {
        let folders = folders.iter().map(PathBuf::from).collect();
        Err(Absent::Nowhere { folders, launcher: launcher.map(PathBuf::from) })
    };
    assert_eq!(library(&machine), absent(&folders, Some("/links/bin/mpiexec")));
    machine.files.push("/conda/lib/libmpi_abi.so.0");
    let other = PathBuf::from("/conda/lib/libmpi_abi.so.0");
    assert_eq!(library(&machine), Err(Absent::OtherVersion(other)));
    assert_eq!(library(&MadeUp::default()), absent(&[], None));
}

#[test]
fn what_was_said_is_all_that_counts() {
    let mut machine = MadeUp {
        variables: vec![("SPMD_MPI_LIB", "/said/any.so"), ("LD_LIBRARY_PATH", "/loader")],
        files: vec!["/loader/libmpi_abi.so.1"],
        ..MadeUp::default()
    };
    assert_eq!(library(&machine), Err(Absent::NotWhereSaid("/said/any.so".into())));
    machine.files.push("/said/any.so");
    assert_eq!(library(&machine), Ok("/said/any.so".into()));
}
