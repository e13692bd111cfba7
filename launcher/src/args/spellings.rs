//! Options as other launchers spell them: `mpirun -np 4` means `-n 4`. What has no option of the same
//! meaning here is answered with what there is.

use std::ffi::OsString;

use clap::Command;

use crate::error::Error;

/// What they write, and the option that it is.
const SAME: [(&str, &str); 18] = [
    ("-np", "--ranks"),
    ("--np", "--ranks"),
    ("-host", "--host"),
    ("-hosts", "--host"),
    ("--hosts", "--host"),
    ("-hostfile", "--hostfile"),
    ("-machinefile", "--hostfile"),
    ("--machinefile", "--hostfile"),
    ("-bind-to", "--bind"),
    ("--bind-to", "--bind"),
    ("-wdir", "--cwd"),
    ("--wdir", "--cwd"),
    ("--report-binding", "--report-bindings"),
    ("-tag-output", "--tag"),
    ("--tag-output", "--tag"),
    ("-oversubscribe", "--oversubscribe"),
    ("--ntasks", "--ranks"),
    ("--chdir", "--cwd"),
];

/// What they write, and what to write here.
const OTHERWISE: [(&str, &str); 11] = [
    ("-genv", "write --env NAME=VALUE"),
    ("-env", "write --env NAME=VALUE"),
    ("-envall", "the environment is passed on in any case"),
    ("-genvall", "the environment is passed on in any case"),
    ("--mca", "write --env OMPI_MCA_NAME=VALUE"),
    ("-mca", "write --env OMPI_MCA_NAME=VALUE"),
    ("--map-by", "write --bind WHERE, and --host NAME:N for how many ranks a host takes"),
    ("--npernode", "write --host NAME:N or a hostfile for how many ranks a host takes"),
    ("-ppn", "write --host NAME:N or a hostfile for how many ranks a host takes"),
    ("-perhost", "write --host NAME:N or a hostfile for how many ranks a host takes"),
    ("--allow-run-as-root", "nothing needs to be allowed here"),
];

/// The same arguments in this launcher's words, up to the program, whose arguments are its own.
///
/// Errors: an option of another launcher that means nothing here.
pub(super) fn translated(part: &[OsString], options: &Command) -> Result<Vec<OsString>, Error> {
    let mut translated = part.to_vec();
    let mut at = 0;
    while let Some(word) = translated.get(at).and_then(|word| word.to_str()) {
        if !word.starts_with('-') || word == "--" {
            break;
        }
        let (name, value) = word.split_once('=').map_or((word, None), |(a, b)| (a, Some(b)));
        if let Some((name, instead)) = OTHERWISE.iter().find(|(theirs, _)| *theirs == name) {
            return Err(Error::Usage(format!("there is no {name} here: {instead} (see --help)")));
        }
        let ours = SAME.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours);
        let whole = value.is_some() || !takes_value(options, ours);
        let word = value.map_or(ours.to_owned(), |value| format!("{ours}={value}"));
        translated[at] = word.into();
        at += if whole { 1 } else { 2 };
    }
    Ok(translated)
}

/// Whether the value of an option is the next argument.
fn takes_value(options: &Command, word: &str) -> bool {
    let named = |argument: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        // Of several letters the last one may take a value; what follows in the same word is its value.
        None => argument.get_short_and_visible_aliases().is_some_and(|short| {
            word.chars().count() == 2 && short.contains(&word.chars().nth(1).unwrap_or_default())
        }),
    };
    let found = options.get_arguments().find(named);
    found.is_some_and(|argument| argument.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::First;
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        let told = translated(&words, &First::command()).map_err(|error| error.to_string())?;
        Ok(told.join(" ".as_ref()).into_string().expect("it was UTF-8"))
    }

    #[test]
    fn of_other_launchers() {
        for (theirs, ours) in [
            ("-np 4 app -np 5", "--ranks 4 app -np 5"),
            ("--np=4 -x HOME -machinefile f app", "--ranks=4 -x HOME --hostfile f app"),
            ("--as threads -np 2 app", "--as threads --ranks 2 app"),
            ("--tag -tag-output -H a,b app -v", "--tag --tag -H a,b app -v"),
            ("-n4 --bind-to core app", "-n4 --bind core app"),
            ("-- app -np 3", "-- app -np 3"),
            ("-n", "-n"),
        ] {
            assert_eq!(of(theirs).as_deref(), Ok(ours));
        }
        let told = of("-n 2 -genv A 1 app").expect_err("it is MPICH's");
        assert!(told.contains("--env NAME=VALUE"), "{told}");
    }
}
