//! Tuning files: where they are, and what they hold.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::format::{Key, VERSION, mode_name};
use super::read;
use super::rules::{Rule, Section};
use crate::environment::variables;
use crate::error::{Error, Result};
use crate::mode::Mode;

/// The value of `SPMD_TUNING` that reads no file.
const NONE: &str = "none";

/// The file that `SPMD_TUNING` names by this value, else that at the default path, which need not
/// be there.
pub fn path(variable: Option<&OsStr>) -> Option<PathBuf> {
    match variable.filter(|value| !value.is_empty()) {
        Some(value) if value == NONE => None,
        Some(value) => Some(value.into()),
        None => default_path(),
    }
}

/// `$XDG_CONFIG_HOME/spmd/tuning.toml`, else `~/.config/spmd/tuning.toml`.
fn default_path() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let folder = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")))?;
    Some(folder.join("spmd").join("tuning.toml"))
}

/// What a tuning file holds: a section for each place and number of ranks that was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    sections: BTreeMap<Key, Section>,
}

impl File {
    /// The file that holds for a process in which `SPMD_TUNING` has this value; nothing where there
    /// is none.
    ///
    /// Errors: it cannot be read, or makes no sense; a file that the variable names is missing.
    pub fn load(variable: Option<&OsStr>) -> Result<File> {
        let named = variable.is_some_and(|value| !value.is_empty());
        let Some(path) = path(variable) else { return Ok(File::default()) };
        Ok(File::read(&path, named)?.unwrap_or_default())
    }

    /// Reads a file; `None` if there is none and it need not be there.
    ///
    /// Errors: as [`File::load`].
    pub fn read(path: &Path, needed: bool) -> Result<Option<File>> {
        use std::io::ErrorKind::{NotFound, PermissionDenied};
        let name = variables::TUNING;
        let refused = |place: String, why: String| {
            let shown = path.display();
            let remedy = format!("mend it, measure anew with spmd-perf tune, or set {name}={NONE}");
            Err(Error::boot(format!("the tuning file {shown}{place}: {why}; {remedy}")))
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            // Where nobody has named a file, one that is another user's is none.
            Err(error) if !needed && matches!(error.kind(), NotFound | PermissionDenied) => {
                return Ok(None);
            }
            Err(error) => return refused(String::new(), format!("it cannot be read: {error}")),
        };
        match read::sections(&text) {
            Ok(sections) => Ok(Some(File { sections })),
            Err(wrong) => {
                let line = |at: usize| text.bytes().take(at).filter(|it| *it == b'\n').count() + 1;
                let place = wrong.at.map_or_else(String::new, |at| format!(", line {}", line(at)));
                refused(place, wrong.what)
            }
        }
    }

    /// What it says of so many ranks in this place.
    pub fn section(&self, mode: Mode, ranks: usize) -> Option<&Section> {
        self.sections.get(&(mode_name(mode), ranks))
    }

    /// Adds what was measured, in the place of what it said before.
    pub fn set(&mut self, mode: Mode, ranks: usize, section: Section) {
        self.sections.insert((mode_name(mode), ranks), section);
    }

    /// Writes it, so that whoever reads it at this moment finds the old file or the new one.
    ///
    /// Errors: the system refuses it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let system = |error| Error::system(format!("writing {}", path.display()), error);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(system)?;
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        std::fs::write(&beside, self.to_string()).map_err(system)?;
        std::fs::rename(&beside, path).map_err(system)
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Written by `spmd-perf tune`, which replaces a section that it measures anew."
        )?;
        writeln!(f, "version = {VERSION}")?;
        for ((place, ranks), section) in &self.sections {
            writeln!(f, "\n[{place}.{ranks}]")?;
            section.entries().iter().try_for_each(|entry| writeln!(f, "{entry}"))?;
        }
        Ok(())
    }
}

#[cfg(fuzzing)]
impl From<BTreeMap<Key, Section>> for File {
    fn from(sections: BTreeMap<Key, Section>) -> File {
        File { sections }
    }
}

impl Section {
    /// Its lines.
    fn entries(&self) -> Vec<String> {
        let rule = |rule: &Rule| {
            let limit = rule.up_to.map_or_else(String::new, |bytes| format!("up_to = {bytes}, "));
            format!("{{ {limit}use = \"{}\" }}", rule.algorithm.name())
        };
        let segment = self.segment.iter().map(|bytes| format!("segment = {bytes}"));
        let calls = self.rules.iter().map(|(kind, rules)| {
            let rules: Vec<_> = rules.iter().map(rule).collect();
            format!("{} = [{}]", kind.name(), rules.join(", "))
        });
        segment.chain(calls).collect()
    }

    /// It in one line, as the launcher hands it on.
    pub(crate) fn inline(&self) -> String {
        format!("{{ {} }}", self.entries().join(", "))
    }

    /// What [`Section::inline`] has written. Errors: what is wrong with it.
    pub(crate) fn from_inline(text: &str) -> std::result::Result<Section, String> {
        read::inline(text).map_err(|wrong| wrong.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm::*;
    use crate::call::Kind;

    fn example() -> File {
        let mut section = Section { segment: Some(1 << 17), ..Section::default() };
        let rule = |up_to, algorithm| Rule { up_to, algorithm };
        section.rules.set(Kind::Allreduce, vec![rule(Some(512), Flat), rule(None, Chunked)]);
        section.rules.set(Kind::Scan, vec![rule(None, Doubling)]);
        let mut file = File::default();
        file.set(Mode::Processes, 2, section);
        file.set(Mode::Virtual, 16, Section::default());
        file
    }

    fn read(text: &str) -> std::result::Result<File, String> {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, text).unwrap();
        let file = File::read(path.path(), true).map_err(|error| error.to_string());
        Ok(file?.unwrap())
    }

    #[test]
    fn what_is_written_is_read() {
        let file = example();
        assert_eq!(read(&file.to_string()).as_ref(), Ok(&file), "{file}");
        let section = file.section(Mode::Processes, 2).unwrap();
        assert_eq!(Section::from_inline(&section.inline()).as_ref(), Ok(section));
        assert!(!section.inline().contains('\n'));
        let chosen = |kind, bytes| section.rules.choose(kind, bytes);
        assert_eq!(chosen(Kind::Allreduce, 512), Some(Flat));
        assert_eq!(chosen(Kind::Allreduce, 513), Some(Chunked));
        assert_eq!(chosen(Kind::Reduce, 1), None);
        assert!(file.section(Mode::Threads, 2).is_none());
    }

    #[test]
    fn an_empty_list_is_no_rule() {
        let section = Section::from_inline("{ segment = 131072, reduce = [] }").unwrap();
        assert!(section.rules.is_empty());
        assert_eq!(Section::from_inline(&section.inline()), Ok(section));
    }

    #[test]
    fn what_is_wrong_has_a_line() {
        let start = "version = 1\n[threads.2]\n";
        for (text, line, words) in [
            ("version = [", ", line 1", "not TOML"),
            ("version = 2", ", line 1", "another than 1"),
            ("version = \"1\"", ", line 1", "here belongs a version"),
            ("", "", "does not say version = 1"),
            ("version = 1\n[clouds.2]", ", line 2", "'clouds' is not threads"),
            ("version = 1\nthreads = 2", ", line 2", "a section for each"),
            ("version = 1\n[threads.0]", ", line 2", "'0' is not a number of ranks"),
            ("version = 1\n\n[threads]\nx = {}", ", line 4", "'x' is not a number of ranks"),
            (&format!("{start}segment = 1"), ", line 3", "64 to 2³⁰"),
            (&format!("{start}segment = -1"), ", line 3", "a number of bytes"),
            (&format!("{start}allreduse = []"), ", line 3", "no call is named allreduse"),
            (&format!("{start}reduce = 1"), ", line 3", "reduce wants a list"),
            (&format!("{start}reduce = [{{}}]"), ", line 3", "use = NAME is missing"),
            (&format!("{start}reduce = [{{ use = 1 }}]"), ", line 3", "name of an algorithm"),
            (&format!("{start}reduce = [{{ up = 1 }}]"), ", line 3", "neither up_to nor use"),
            (
                &format!("{start}reduce = [\n  {{ use = \"ring\" }},\n]"),
                ", line 4",
                "no 'ring': the algorithms of reduce are combining, flat, tree, chunked",
            ),
            (&format!("{start}barrier = [{{ use = \"tree\" }}]"), ", line 3", "barrier has one"),
            (
                &format!("{start}reduce = [{{ use = \"tree\" }}, {{ use = \"flat\" }}]"),
                ", line 3",
                "must rise",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(&format!("{line}: ")), "{text}: {error}");
            assert!(error.contains(words) && !error.contains('\n'), "{text}: {error}");
            assert!(error.contains("SPMD_TUNING=none"), "{text}: {error}");
        }
    }
}
