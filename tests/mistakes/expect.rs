//! How a wrong program is run, and what is expected of the errors that its ranks get.

use std::panic::Location;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd::{Fault, Progress};

/// The longest that a mistake may go unnoticed on a busy machine; on an idle one it takes up to half a second.
const BOUND: Duration = Duration::from_secs(5);

/// A name, and how to make ranks of that kind.
type NamedMode = (&'static str, fn(Spmd) -> Spmd);

/// Where the ranks of a test run.
pub(crate) const MODES: [NamedMode; 4] = [
    ("threads", Spmd::threads),
    ("threads, with progress threads", |spmd| spmd.threads().progress(Progress::Thread)),
    ("virtual", Spmd::virtual_ranks),
    ("virtual, one worker", |spmd| spmd.virtual_ranks().workers(1)),
];

/// What came of a wrong program, in each mode.
pub(crate) struct Mistake {
    runs: Vec<Run>,
    /// The source from the line of the test's call on, and that line's number.
    source: (String, Vec<String>, usize),
}

struct Run {
    mode: &'static str,
    /// What each rank's closure returned, if it was an error.
    errors: Vec<Option<Error>>,
    whole: Option<Error>,
}

/// Runs `program` on `n` thread ranks, alone and helped, then on `n` virtual ones, on all cores and on one.
///
/// Lines of the program that an expectation speaks of end in a comment `// <1>`, `// <2>` and so
/// on, by which [`Mistake`] finds their numbers.
#[track_caller]
pub(crate) fn mistake(n: usize, program: impl Fn(&Ctx) -> Result<()> + Sync) -> Mistake {
    let runs = MODES.into_iter().map(|(mode, place)| run(mode, place(Spmd::new(n)), n, &program));
    Mistake { runs: runs.collect(), source: source(Location::caller()) }
}

fn run(
    mode: &'static str,
    spmd: Spmd,
    n: usize,
    program: &(impl Fn(&Ctx) -> Result<()> + Sync),
) -> Run {
    let errors = Mutex::new(Vec::from_iter((0..n).map(|_| None)));
    let start = Instant::now();
    let whole = spmd.run(|ctx| {
        let outcome = program(ctx);
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => {
                let copy = copy(&error);
                errors.lock().unwrap()[ctx.rank()] = Some(error);
                Err(copy)
            }
        }
    });
    assert!(start.elapsed() < BOUND, "{mode}: it took {:?}", start.elapsed());
    Run { mode, errors: errors.into_inner().unwrap(), whole: whole.err() }
}

/// The same error once more, as far as its kind matters to the other ranks.
fn copy(error: &Error) -> Error {
    match error {
        Error::PeerFailed(peer) => Error::PeerFailed(peer.clone()),
        Error::Stopped(stopped) => Error::Stopped(stopped.clone()),
        other => Error::from(other.to_string()),
    }
}

fn source(at: &'static Location<'static>) -> (String, Vec<String>, usize) {
    // The compiler names files from the workspace's folder, the one above this package's.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("").join(at.file());
    let text = std::fs::read_to_string(file).expect("tests run where their sources are");
    let lines = text.lines().skip(at.line() as usize - 1).map(str::to_owned).collect();
    (at.file().to_owned(), lines, at.line() as usize)
}

impl Mistake {
    /// `text` with every `<1>` turned into the file and line of that mark.
    fn expand(&self, text: &str) -> String {
        let (file, lines, first) = &self.source;
        let mut text = text.to_owned();
        for mark in 1..10 {
            let mark = format!("<{mark}>");
            if text.contains(&mark) {
                let comment = format!("// {mark}");
                let place = lines.iter().position(|line| line.ends_with(&comment));
                let line = first + place.expect("the mark is in the program");
                text = text.replace(&mark, &format!("{file}:{line}"));
            }
        }
        text
    }

    #[track_caller]
    fn each(&self, ranks: &[usize], texts: &[&str], fits: impl Fn(&Error) -> bool) -> &Mistake {
        for run in &self.runs {
            for &rank in ranks {
                let error = run.errors[rank].as_ref();
                let error = error.unwrap_or_else(|| {
                    panic!("{}: rank {rank} has no error: {:?}", run.mode, run.errors)
                });
                assert!(fits(error), "{}: rank {rank} has another error: {error}", run.mode);
                for text in texts {
                    let text = self.expand(text);
                    let said = error.to_string();
                    assert!(
                        said.contains(&text),
                        "{}: rank {rank} says: {said}\nnot: {text}",
                        run.mode
                    );
                }
            }
            assert!(run.whole.is_some(), "{}: the block ended well", run.mode);
        }
        self
    }

    /// These ranks learn that calls differ; the error's text contains all of `texts`.
    #[track_caller]
    pub(crate) fn mismatch(&self, ranks: &[usize], texts: &[&str]) -> &Mistake {
        self.each(ranks, texts, |error| matches!(error.fault(), Some(Fault::Mismatch { .. })))
    }

    /// These ranks learn that they wait in a cycle.
    #[track_caller]
    pub(crate) fn deadlock(&self, ranks: &[usize], texts: &[&str]) -> &Mistake {
        self.each(ranks, texts, |error| matches!(error.fault(), Some(Fault::Deadlock { .. })))
    }

    /// These ranks learn that `left` has gone while it was waited for.
    #[track_caller]
    pub(crate) fn left(&self, ranks: &[usize], left: usize, texts: &[&str]) -> &Mistake {
        self.each(
            ranks,
            texts,
            |error| matches!(error.fault(), Some(Fault::Left { rank, .. }) if *rank == left),
        )
    }

    /// These ranks learn that `failed` has failed.
    #[track_caller]
    pub(crate) fn peer_failed(&self, ranks: &[usize], failed: usize, texts: &[&str]) -> &Mistake {
        self.each(
            ranks,
            texts,
            |error| matches!(error, Error::PeerFailed(peer) if peer.rank == failed),
        )
    }

    /// These ranks get an error of this kind.
    #[track_caller]
    pub(crate) fn error(
        &self,
        ranks: &[usize],
        fits: impl Fn(&Error) -> bool,
        texts: &[&str],
    ) -> &Mistake {
        self.each(ranks, texts, fits)
    }

    /// The block as a whole gives an error of this kind.
    #[track_caller]
    pub(crate) fn whole(&self, fits: impl Fn(&Error) -> bool, texts: &[&str]) -> &Mistake {
        for run in &self.runs {
            let error = run.whole.as_ref().expect("the block fails");
            assert!(fits(error), "{}: {error}", run.mode);
            for text in texts {
                let (text, said) = (self.expand(text), error.to_string());
                assert!(said.contains(&text), "{}: {said}\nnot: {text}", run.mode);
            }
        }
        self
    }

    /// These ranks get no error.
    #[track_caller]
    pub(crate) fn fine(&self, ranks: &[usize]) -> &Mistake {
        for run in &self.runs {
            for &rank in ranks {
                assert!(run.errors[rank].is_none(), "{}: {:?}", run.mode, run.errors[rank]);
            }
        }
        self
    }
}
