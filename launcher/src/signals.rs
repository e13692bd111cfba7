//! Signals to the launcher, as events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGXFSZ,
};
use signal_hook::iterator::Signals;

use crate::error::Error;
use crate::event::Event;

/// The signals that ask a job to end.
pub(crate) const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

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

/// Stops the launcher, as Ctrl-Z asks, until a SIGCONT comes. Returns how long that took.
pub(crate) fn stop() -> Duration {
    let before = Instant::now();
    // It fails for no process that signals itself.
    let _ = kill_process(getpid(), Signal::STOP);
    before.elapsed()
}

/// From now on a read of the terminal by this thread is an error while another process group is in
/// the foreground. Elsewhere it would stop the launcher and all with it.
pub(crate) fn survive_terminal_reads() {
    // SAFETY: a set of signals is plain integers, for which all zeros are a value; the calls write
    // nothing but it and this thread's mask, and only fail for what is no signal.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTTIN);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
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

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;
    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn an_ending_signal_stands_behind_few_others() {
        const MOST: usize = 4;
        let (sender, events) = bounded(MOST);
        listen(sender).unwrap();
        for _ in 0..100 {
            raise(SIGUSR1).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        raise(SIGTERM).unwrap();
        let come: Vec<Event> = (0..MOST + 3)
            .map_while(|_| events.recv_timeout(Duration::from_secs(5)).ok())
            .take_while(|event| *event != Event::Signal(SIGTERM))
            .collect();
        // Those of the channel, one that waited for room in it, and one that was pending.
        assert!(come.len() <= MOST + 2, "{come:?}");
        assert!(come.contains(&Event::Signal(SIGUSR1)), "{come:?}");
    }
}
