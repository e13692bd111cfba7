//! The launcher's own standard output and standard error: a queue in memory for each, and a thread
//! that writes it out, so that nobody else ever waits for whoever reads them.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_channel::Sender;
use rustix::fs::fstat;
use rustix::io::Errno;

use crate::error::Error;
use crate::event::Event;
use crate::report::{own_line, write_all};

/// Bytes that wait in a queue at which no more output of ranks is read: it waits in their pipes.
const ROOM: usize = 1 << 20;
/// Bytes that wait in a queue at which the launcher's own lines are dropped, too.
const MOST: usize = 8 << 20;

/// Both streams. Where they are the same file, so that lines of one could come into the middle of
/// lines of the other, they share a queue.
#[derive(Clone)]
pub(crate) struct Streams(Arc<Shared>);

struct Shared {
    queues: [Queue; 2],
    /// The queue of each stream.
    of: [usize; 2],
    /// Rung when a queue that was full has room again.
    bell: Bell,
    /// What the first output was that could not be written, and why.
    lost: Mutex<Option<String>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<Page>,
    changed: Condvar,
}

/// What waits to be written to one stream.
#[derive(Default)]
pub(crate) struct Page {
    waiting: Vec<u8>,
    /// Who has begun the line in the middle of which the text ends.
    open: Option<usize>,
    /// When a rank last printed something.
    last: Option<Instant>,
    broken: Option<Errno>,
    /// Somebody was told that there is no room.
    refused: bool,
    /// How often somebody has asked when all is written.
    asked: u64,
    /// How often that was answered.
    answered: u64,
}

/// Wakes the thread that reads the ranks' output.
pub(crate) struct Bell {
    heard: PipeReader,
    rung: PipeWriter,
}

/// The names of the streams, for errors.
const NAMES: [&str; 2] = ["standard output", "standard error"];

impl Streams {
    /// Starts the threads.
    pub(crate) fn start(events: &Sender<Event>) -> Result<Streams, Error> {
        let failed = |error| Error::system("start writing output", error);
        let of = [0, usize::from(!same_file())];
        let shared = Arc::new(Shared {
            queues: Default::default(),
            of,
            bell: Bell::new().map_err(failed)?,
            lost: Mutex::default(),
        });
        for (index, name) in NAMES.iter().enumerate().take(1 + of[1]) {
            let (shared, events) = (shared.clone(), events.clone());
            let work = move || {
                loop {
                    let turn = shared.write_out(index);
                    // The receiver is gone only when the launcher is ending.
                    let _ = events.send(Event::Written(index, turn));
                }
            };
            std::thread::Builder::new().name((*name).into()).spawn(work).map_err(failed)?;
        }
        Ok(Streams(shared))
    }

    /// Puts one line of the launcher's own on standard error, without waiting.
    pub(crate) fn say(&self, message: &str) {
        self.0.say(message);
    }

    /// Access to what waits for standard output (0) or standard error (1).
    pub(crate) fn page(&self, stream: usize) -> MutexGuard<'_, Page> {
        self.0.queue(stream).page()
    }

    /// Lets what was put on a page be written.
    pub(crate) fn send(&self, stream: usize) {
        self.0.queue(stream).changed.notify_one();
    }

    /// Notes, and says at once, that output cannot be written.
    pub(crate) fn lose(&self, what: String) {
        self.0.lose(what);
    }

    /// What was lost first, if anything was.
    pub(crate) fn lost(&self) -> Option<String> {
        lock(&self.0.lost).clone()
    }

    /// The events that come when what waits now is written, or cannot be; standard error's last.
    pub(crate) fn flush(&self) -> Vec<Event> {
        let queues = self.0.queues[..=self.last()].iter().enumerate();
        queues.map(|(index, queue)| Event::Written(index, queue.ask())).collect()
    }

    /// The number of standard error's queue, which is the last.
    pub(crate) fn last(&self) -> usize {
        self.0.of[1]
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.0.bell
    }
}

impl Shared {
    fn queue(&self, stream: usize) -> &Queue {
        &self.queues[self.of[stream]]
    }

    fn say(&self, message: &str) {
        let queue = self.queue(1);
        let mut page = queue.page();
        if page.broken.is_none() && page.waiting.len() < MOST {
            page.end_line();
            page.waiting.extend_from_slice(own_line(message).as_bytes());
            queue.changed.notify_one();
        }
    }

    fn lose(&self, what: String) {
        self.say(&what);
        lock(&self.lost).get_or_insert(what);
    }

    /// Writes what comes to one queue. Returns when all is written and somebody has asked for it,
    /// and how often.
    fn write_out(&self, index: usize) -> u64 {
        let queue = &self.queues[index];
        let mut text = Vec::new();
        loop {
            if let Some(turn) = queue.next(&mut text) {
                return turn;
            }
            self.tell_of_room(queue);
            let to = if index == 0 { rustix::stdio::stdout() } else { rustix::stdio::stderr() };
            let written = write_all(to, &text);
            text.clear();
            if let Err(error) = written {
                queue.page().give_up(error);
                if error != Errno::PIPE {
                    let (name, error) = (NAMES[index], io::Error::from(error));
                    self.lose(format!("cannot write {name}: {error}; what comes there is lost"));
                }
            }
            self.tell_of_room(queue);
        }
    }

    fn tell_of_room(&self, queue: &Queue) {
        if std::mem::take(&mut queue.page().refused) {
            self.bell.ring();
        }
    }
}

impl Queue {
    fn page(&self) -> MutexGuard<'_, Page> {
        lock(&self.state)
    }

    /// Asks when all is written. Returns how often that was asked, which the answer repeats: one to
    /// a question before is none to this.
    fn ask(&self) -> u64 {
        let mut page = self.page();
        page.asked += 1;
        self.changed.notify_one();
        page.asked
    }

    /// Waits for text and takes all of it. Where there is none and somebody has asked for that, it
    /// returns how often.
    fn next(&self, text: &mut Vec<u8>) -> Option<u64> {
        let mut page = self.page();
        while page.waiting.is_empty() && page.asked == page.answered {
            page = self.changed.wait(page).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut page.waiting, text);
        if !text.is_empty() {
            return None;
        }
        page.answered = page.asked;
        Some(page.answered)
    }
}

impl Page {
    /// Puts a part of a line of `owner`, which ends the line or does not. What `begin` puts before
    /// it comes first where the line was not begun yet, or where somebody else's came between.
    pub(crate) fn put(
        &mut self,
        owner: usize,
        begins: bool,
        begin: impl FnOnce(&mut Vec<u8>),
        part: &[u8],
        ends: bool,
    ) {
        let goes_on = self.open == Some(owner) && !begins;
        // The end alone of a line that was ended already, for somebody else's.
        let ended = !goes_on && !begins && part.is_empty();
        if self.broken.is_some() || ended {
            return;
        }
        if !goes_on {
            self.end_line();
            begin(&mut self.waiting);
        }
        self.waiting.extend_from_slice(part);
        if ends {
            self.waiting.push(b'\n');
        }
        self.open = (!ends).then_some(owner);
        self.last = Some(Instant::now());
    }

    fn end_line(&mut self) {
        if self.open.take().is_some() {
            self.waiting.push(b'\n');
        }
    }

    /// Whether more output of ranks may come; if not, the bell rings when it may.
    pub(crate) fn has_room(&mut self) -> bool {
        let full = self.waiting.len() >= ROOM;
        self.refused |= full;
        !full
    }

    /// When a rank last printed something, unless `owner` is in the middle of its line.
    pub(crate) fn disturbed(&self, owner: usize) -> Option<Instant> {
        self.last.filter(|_| self.open != Some(owner))
    }

    /// Whether nobody reads the stream any more.
    pub(crate) fn has_no_reader(&self) -> bool {
        self.broken == Some(Errno::PIPE)
    }

    fn give_up(&mut self, error: Errno) {
        self.broken = Some(error);
        self.waiting = Vec::new();
    }
}

impl Bell {
    fn new() -> io::Result<Bell> {
        let (heard, rung) = io::pipe()?;
        Ok(Bell { heard, rung })
    }

    /// Few strokes are under way at once, for which the pipe has room.
    pub(crate) fn ring(&self) {
        let _ = (&self.rung).write(&[0]);
    }

    /// Takes the strokes that have come; waits for one.
    pub(crate) fn hear(&self) {
        let _ = (&self.heard).read(&mut [0; 64]);
    }

    pub(crate) fn descriptor(&self) -> &PipeReader {
        &self.heard
    }
}

/// Whether both streams are the same pipe, terminal or file.
fn same_file() -> bool {
    let place = |fd: BorrowedFd<'_>| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    let (out, err) = (place(rustix::stdio::stdout()), place(rustix::stdio::stderr()));
    out.is_some() && out == err
}

/// What a thread that panicked has left is whole: no change is made in several steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(act: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::default();
        act(&mut page);
        String::from_utf8(page.waiting).unwrap()
    }

    #[test]
    fn an_unfinished_line_goes_on_or_is_ended_for_another() {
        let tag =
            |name: &'static str| move |out: &mut Vec<u8>| out.extend_from_slice(name.as_bytes());
        let written = text(|page| {
            page.put(0, true, tag("[0] "), b"10%", false);
            page.put(0, false, tag("[0] "), b"\r20%", false);
            page.put(1, true, tag("[1] "), b"x", true);
            page.put(0, false, tag("[0] "), b"\r30%", true);
            page.put(1, true, tag("[1] "), b"y", false);
            page.put(0, true, tag("[0] "), b"z", true);
            page.put(1, false, tag("[1] "), b"", true);
        });
        assert_eq!(written, "[0] 10%\r20%\n[1] x\n[0] \r30%\n[1] y\n[0] z\n");
    }

    #[test]
    fn an_answer_says_to_which_question_it_is() {
        let queue = Queue::default();
        let mut text = Vec::new();
        let first = queue.ask();
        assert_eq!(queue.next(&mut text), Some(first));
        queue.page().put(0, true, |_| {}, b"x", true);
        let second = queue.ask();
        assert!(queue.next(&mut text).is_none() && text == b"x\n" && second != first);
        text.clear();
        assert_eq!(queue.next(&mut text), Some(second));
    }

    #[test]
    fn a_full_queue_says_so_and_a_broken_one_takes_nothing() {
        let mut page = Page::default();
        page.put(0, true, |_| {}, &vec![b'x'; ROOM], true);
        assert!(!page.has_room() && page.refused);
        page.give_up(Errno::NOSPC);
        page.put(0, true, |_| {}, b"lost", true);
        assert!(page.has_room() && page.waiting.is_empty() && !page.has_no_reader());
    }
}
