//! The families of MPI libraries: who made one, by what it and its launcher say of themselves.

use std::fmt;

/// Libraries whose launchers are told the same things by the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// MPICH and what is made from it, with the launcher Hydra.
    Mpich,
    /// Intel MPI, with a Hydra of its own.
    Intel,
    OpenMpi,
}

impl Family {
    /// By the text of `MPI_Get_library_version`, or of `mpiexec --version`.
    pub(crate) fn of(text: &str) -> Option<Family> {
        let known = [
            ("Intel(R) MPI", Family::Intel),
            ("Open MPI", Family::OpenMpi),
            ("OpenRTE", Family::OpenMpi),
            ("MPICH", Family::Mpich),
            ("HYDRA", Family::Mpich),
        ];
        known.into_iter().find(|(word, _)| text.contains(word)).map(|(_, family)| family)
    }

    /// Its name, with the version that such a text gives: `MPICH 5.0.2`.
    pub(crate) fn named(self, text: &str) -> String {
        match version(text) {
            Some(version) => format!("{self} {version}"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Mpich => "MPICH",
            Family::Intel => "Intel MPI",
            Family::OpenMpi => "Open MPI",
        })
    }
}

/// The version in such a text: its first word that begins as `5.0` does.
pub(crate) fn version(text: &str) -> Option<&str> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',' || c == '(');
    let words = words.map(|word| word.strip_prefix('v').unwrap_or(word));
    let mut numbers = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    numbers.find(|word| word.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_say() {
        let said = [
            ("MPICH Version:      5.0.2\nMPICH ABI:  18:2:6", Family::Mpich, "5.0.2"),
            ("Intel(R) MPI Library 2021.18.1 for Linux* OS\n", Family::Intel, "2021.18.1"),
            (
                "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626",
                Family::Intel,
                "2021.18.1",
            ),
            ("Open MPI v5.0.11, package: Open MPI root@h, ident: 5", Family::OpenMpi, "5.0.11"),
            ("mpiexec (Open MPI) 5.0.11", Family::OpenMpi, "5.0.11"),
            ("HYDRA build details:\n    Version:      4.3.0rc1", Family::Mpich, "4.3.0rc1"),
        ];
        for (text, family, number) in said {
            assert_eq!((Family::of(text), version(text)), (Some(family), Some(number)), "{text}");
        }
        assert_eq!((Family::of("prun 3"), version("prun 3")), (None, None));
    }
}
