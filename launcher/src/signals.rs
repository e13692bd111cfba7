//! Signals to the launcher, as events.

use std::sync::Arc;

use crossbeam_channel::Sender;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGXFSZ,
};
use signal_hook::iterator::Signals;

use crate::error::Error;
use crate::supervise::Event;

/// Starts to turn signals into events. Called before the first rank is started, so that none is
/// missed.
pub(crate) fn listen(events: Sender<Event>) -> Result<(), Error> {
    let failed = |error| Error::system("listen for signals", error);
    let mut wanted = vec![SIGCHLD, SIGCONT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    // `nohup` and a shell's `&` ask for these to be ignored; that holds for the launcher too.
    wanted.extend([SIGINT, SIGHUP, SIGTSTP].into_iter().filter(|&signal| !ignored(signal)));
    let mut signals = Signals::new(wanted).map_err(failed)?;
    let work = move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(work).map(drop).map_err(failed)
}

/// From now on a file that grows beyond the limit of file sizes (ulimit -f) is an error where it is
/// written, as a full disk is, and does not kill the launcher. Programs that it starts are killed,
/// as ever: what they execute does not inherit a handler.
pub(crate) fn survive_file_limits() {
    // It fails for signals that cannot be caught, of which this is none.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Whether this process was started with the signal ignored.
fn ignored(signal: i32) -> bool {
    let mask = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    mask().is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
