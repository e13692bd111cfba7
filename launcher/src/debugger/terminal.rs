//! A terminal for each debugger: a window of tmux, or one of the desktop.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// Terminals that are tried where `TERMINAL` names none.
const KNOWN: [&str; 8] = [
    "x-terminal-emulator",
    "xterm",
    "gnome-terminal",
    "konsole",
    "xfce4-terminal",
    "kitty",
    "alacritty",
    "foot",
];

/// What stands before the words of a command, where it is not `-e`.
const BEFORE: [(&str, &str); 5] = [
    ("gnome-terminal", "--"),
    ("kgx", "--"),
    ("ptyxis", "--"),
    ("xfce4-terminal", "-x"),
    ("mate-terminal", "-x"),
];

#[derive(Debug, PartialEq)]
pub(super) enum Terminal {
    /// The program tmux, of whose session this is.
    Tmux(PathBuf),
    Desktop(PathBuf),
}

impl Terminal {
    /// What there is here, by these variables and programs.
    pub(super) fn find(
        variable: impl Fn(&str) -> Option<OsString>,
        program: impl Fn(&OsStr) -> Option<PathBuf>,
    ) -> Option<Terminal> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let tmux = variable("TMUX").and_then(|_| program("tmux".as_ref()));
        let desktop = variable("DISPLAY").or_else(|| variable("WAYLAND_DISPLAY"));
        let desktop = || {
            desktop?;
            let own = variable("TERMINAL").and_then(|name| program(&name));
            own.or_else(|| KNOWN.into_iter().find_map(|name| program(name.as_ref())))
        };
        tmux.map(Terminal::Tmux).or_else(|| desktop().map(Terminal::Desktop))
    }

    /// Where a rank's debugger is, for a person.
    pub(super) fn place(&self, rank: usize) -> String {
        match self {
            Terminal::Tmux(_) => format!("the window `{}` of tmux", name(rank)),
            Terminal::Desktop(path) => format!("a window of {}", path.display()),
        }
    }

    /// Opens one that runs this program. `ended` is told if it ends with an error.
    ///
    /// Errors: it cannot be started.
    pub(super) fn open(
        &self,
        rank: usize,
        program: &Path,
        arguments: &[OsString],
        ended: impl FnOnce(&str) + Send + 'static,
    ) -> Result<(), Error> {
        let mut command = match self {
            Terminal::Tmux(tmux) => {
                let mut command = Command::new(tmux);
                command.args(["new-window", "-n", &name(rank)]);
                command
            }
            Terminal::Desktop(terminal) => {
                let mut command = Command::new(terminal);
                command.arg(before(terminal));
                command
            }
        };
        command.arg(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let failed = |error| Error::system(format!("open a terminal for rank {rank}"), error);
        let mut child = command.spawn().map_err(failed)?;
        let wait = move || match child.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => ended(&status.to_string()),
            Err(error) => ended(&error.to_string()),
        };
        std::thread::Builder::new().name("terminal".into()).spawn(wait).map_err(failed)?;
        Ok(())
    }
}

fn name(rank: usize) -> String {
    format!("rank {rank}")
}

fn before(terminal: &Path) -> &'static str {
    let known = BEFORE.iter().find(|(name, _)| terminal.ends_with(name));
    known.map_or("-e", |(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With these variables set, and these programs in /bin.
    fn found(variables: &[(&str, &str)], programs: &[&str]) -> Option<Terminal> {
        let value = |name: &str| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into())
        };
        Terminal::find(value, |name| {
            programs.iter().any(|it| *it == name).then(|| Path::new("/bin").join(name))
        })
    }

    #[test]
    fn tmux_comes_before_the_desktop() {
        let [tmux, desktop] = [("TMUX", "/tmp/tmux,1,0"), ("DISPLAY", ":0")];
        let all = ["tmux", "xterm", "konsole"];
        let of = |path: &str| Some(Terminal::Desktop(path.into()));
        assert_eq!(found(&[tmux, desktop], &all), Some(Terminal::Tmux("/bin/tmux".into())));
        assert_eq!(found(&[tmux, desktop], &all[1..]), of("/bin/xterm"));
        assert_eq!(
            found(&[("WAYLAND_DISPLAY", "w"), ("TERMINAL", "konsole")], &all),
            of("/bin/konsole")
        );
        assert_eq!(found(&[desktop, ("TERMINAL", "gone")], &all), of("/bin/xterm"));
        assert_eq!(found(&[("DISPLAY", ""), ("TERMINAL", "xterm")], &all), None);
        assert_eq!(found(&[desktop], &["tmux"]), None);
    }

    #[test]
    fn each_terminal_has_its_word_for_a_command() {
        for (path, word) in [("/usr/bin/xterm", "-e"), ("/usr/bin/gnome-terminal", "--")] {
            assert_eq!(before(Path::new(path)), word);
        }
    }
}
