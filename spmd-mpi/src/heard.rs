//! What a process has said before it ends all processes: its launcher passes on nothing more after that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionread;

/// Who has taken nothing for so long does not listen.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until the launcher has taken what this process has written to its standard output and standard
/// error, where these are pipes; it passes on what it has taken before what it is asked after that.
pub fn until_taken() {
    let (out, err) = (io::stdout(), io::stderr());
    until_empty(&[out.as_fd(), err.as_fd()], PATIENCE);
}

fn until_empty(pipes: &[BorrowedFd<'_>], patience: Duration) {
    let start = Instant::now();
    while pipes.iter().any(|pipe| holds_some(*pipe)) && start.elapsed() < patience {
        thread::sleep(PAUSE);
    }
}

/// Whether there is something in it. Of what is no pipe that cannot be asked, or says what can be read from it.
fn holds_some(pipe: BorrowedFd<'_>) -> bool {
    let is_pipe = fstat(pipe).is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Fifo);
    is_pipe && ioctl_fionread(pipe).is_ok_and(|bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_for_who_reads_and_not_for_ever() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let start = Instant::now();
        until_empty(&[writer.as_fd()], 60 * SECOND);
        writer.write_all(b"said").unwrap();
        until_empty(&[writer.as_fd()], SECOND / 20);
        assert!(start.elapsed() >= SECOND / 20);
        let listener = thread::spawn(move || {
            thread::sleep(SECOND / 20);
            let mut said = [0; 4];
            reader.read_exact(&mut said).map(|()| said)
        });
        until_empty(&[writer.as_fd()], 60 * SECOND);
        assert!(!holds_some(writer.as_fd()) && start.elapsed() < 30 * SECOND);
        assert_eq!(listener.join().unwrap().unwrap(), *b"said");
    }

    #[test]
    fn does_not_wait_where_there_is_no_pipe() {
        let file = tempfile::tempfile().unwrap();
        assert!(!holds_some(file.as_fd()));
    }
}
