//! What a rank that is a process does for the tasks of others, and others for its own.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use parking_lot::Mutex;
use spmd_core::internal::{HelperThread, bind_to_process};
use spmd_core::{ANY, Comm, Error, Result};

use super::errand::Errand;
use super::messages::Message;
use super::spread::{MEASURED, Offer, Spread};
use crate::placement::Scope;

/// Messages that wait for the thread that sends: who has more waits until there is room. But for the thread that
/// receives, as two ranks whose threads wait would wait for each other: it adds an answer to each rank that
/// measures, what is asked of ranks for tasks that any may run, twice as many as all have workers, and one to each
/// at the end.
const OUTGOING: usize = 1024;

/// The tag of all messages, on a communicator of their own.
const TAG: u32 = 0;

pub(crate) struct Service {
    context: u64,
    rank: usize,
    size: usize,
    /// Until the rank leaves.
    outgoing: Mutex<Option<Senders>>,
    /// The thread that receives.
    receives: OnceLock<ThreadId>,
    /// How many messages wait or are being sent.
    unsent: AtomicUsize,
    pending: Mutex<Pending>,
    /// What this rank runs for others, by whom and with which number.
    served: Mutex<BTreeMap<(usize, u64), Arc<Errand>>>,
    /// Tasks that any rank may run.
    spread: Mutex<Spread<(Limits, OfAny)>>,
    part: Mutex<Part>,
    parted: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    serve: Serve,
    /// Tells the rank that it has parted.
    tell: Box<dyn Fn() + Send + Sync>,
}

/// Tasks that other ranks run.
#[derive(Default)]
struct Pending {
    next: u64,
    /// With the rank that was asked.
    waiting: BTreeMap<u64, (usize, Answered)>,
    /// Why none is answered any more.
    over: Option<Arc<Error>>,
}

/// What came of something: the value's bytes, or what that rank said.
pub(crate) type Answer = Result<Vec<u8>, Arc<Error>>;

/// Takes it, with how long it has taken there.
type Answered = Box<dyn FnOnce(Answer, Duration) + Send>;

/// How far the rank is with its part in this.
#[derive(PartialEq)]
enum Part {
    /// It measures the way to another one.
    Measures,
    /// The same, and its own tasks are over.
    Ends,
    /// It has measured.
    Runs,
}

/// Takes what came of a task that any rank may run, and is told before why which one does.
pub(crate) struct OfAny {
    pub(crate) errand: Arc<Errand>,
    pub(crate) answered: Box<dyn FnOnce(Answer) + Send>,
    pub(crate) told: Box<dyn FnOnce(String) + Send>,
}

/// A message, with the rank that it is for.
type Outgoing = (usize, Vec<u8>);

/// What gives messages to the thread that sends.
#[derive(Clone)]
struct Senders {
    usual: Sender<Outgoing>,
    of_receiver: Sender<Outgoing>,
}

/// What is done with what comes for this rank: which function, its arguments, and where it may run.
type Serve = Box<dyn Fn(&Arc<Service>, Served, (&str, &[u8]), Limits) + Send + Sync>;

/// What a rank runs for another one, or for itself: by whom and with which number.
pub(crate) type Served = ((usize, u64), Arc<Errand>);

/// Where something may run, if not everywhere.
pub(crate) type Limits = Option<Arc<Scope>>;

impl Service {
    /// Of a rank that has this communicator for it alone.
    ///
    /// Errors: the system refuses a thread.
    pub(crate) fn start(
        comm: Comm,
        workers: usize,
        serve: Serve,
        tell: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Arc<Service>> {
        let ((usual, messages), (of_receiver, more)) = (bounded(OUTGOING), unbounded());
        let service = Arc::new(Service {
            context: comm.internals().context(),
            rank: comm.rank(),
            size: comm.size(),
            outgoing: Mutex::new(Some(Senders { usual, of_receiver })),
            receives: OnceLock::new(),
            unsent: AtomicUsize::new(0),
            pending: Mutex::default(),
            served: Mutex::default(),
            spread: Mutex::new(Spread::new(comm.rank(), comm.size(), workers)),
            part: Mutex::new(Part::Measures),
            parted: AtomicBool::new(false),
            thread: Mutex::default(),
            serve,
            tell,
        });
        let runs = service.clone();
        let thread = thread::Builder::new().name("spmd-remote-out".into());
        let thread =
            thread.spawn(move || runs.run(&comm, [&messages, &more])).map_err(|error| {
                Error::user(io::Error::new(
                    error.kind(),
                    format!("a thread for remote tasks: {error}"),
                ))
            })?;
        *service.thread.lock() = Some(thread);
        service.measure(&MEASURED);
        Ok(service)
    }

    /// Measures how long so many bytes are on the way to the next rank and back, one after the other.
    fn measure(self: &Arc<Self>, lengths: &'static [usize]) {
        let Some((bytes, rest)) = lengths.split_first() else { return self.has_measured() };
        let (service, to, start) = (self.clone(), (self.rank + 1) % self.size, Instant::now());
        let answered = move |came: Answer, _: Duration| {
            if came.is_ok() {
                service.spread.lock().is_measured(*bytes, start.elapsed());
                service.measure(rest);
            }
        };
        if let Some(id) = self.awaits(to, Box::new(answered)) {
            self.put(to, &Message::Echo { id, bytes: &vec![0; *bytes] });
        }
    }

    fn has_measured(&self) {
        let before = std::mem::replace(&mut *self.part.lock(), Part::Runs);
        if before == Part::Ends {
            self.put(0, &Message::Done);
        }
    }

    /// Sends on this thread, and receives on another one.
    fn run(self: &Arc<Self>, comm: &Comm, messages: [&Receiver<Outgoing>; 2]) {
        let _counted = HelperThread::new();
        bind_to_process();
        let receiver = comm.internals().receiver();
        // That one is gone before the communicator, of which it is a half.
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("spmd-remote-in".into());
            let receives = thread.spawn_scoped(scope, move || {
                let _counted = HelperThread::new();
                let _ = self.receives.set(thread::current().id());
                self.receive(&receiver);
            });
            if let Err(error) = receives {
                self.is_over(Error::from(format!("a thread for remote tasks: {error}")));
            }
            self.send(comm, messages);
        });
    }

    /// Asks a rank to run a function. `answered` is told what came of it, or why nothing does.
    pub(crate) fn ask(
        self: &Arc<Self>,
        to: usize,
        (name, args): (&str, &[u8]),
        (limits, errand): (Limits, &Arc<Errand>),
        answered: Answered,
    ) {
        let Some(id) = self.awaits(to, answered) else { return };
        if to == self.rank {
            return (self.serve)(self, ((to, id), errand.clone()), (name, args), limits);
        }
        let scope = limits.as_deref().cloned();
        self.put(to, &Message::Run { id, name, args, scope });
        let service = Arc::downgrade(self);
        errand.is_asked(move || {
            service.upgrade().iter().for_each(|service| service.put(to, &Message::Cancel { id }));
        });
    }

    /// The number of something that this rank is about to be asked; `None` if none answers any more, of which
    /// it is told.
    fn awaits(&self, by: usize, answered: Answered) -> Option<u64> {
        let mut pending = self.pending.lock();
        if let Some(why) = pending.over.clone() {
            drop(pending);
            answered(Err(why), Duration::ZERO);
            return None;
        }
        let id = pending.next;
        pending.next += 1;
        pending.waiting.insert(id, (by, answered));
        Some(id)
    }

    /// Tells a rank what came of what it has asked for, and how long that took; `None` if it was cancelled
    /// before it began.
    pub(crate) fn answer(
        &self,
        (to, id): (usize, u64),
        outcome: Result<Vec<u8>, Option<String>>,
        ran: Duration,
    ) {
        self.served.lock().remove(&(to, id));
        if to == self.rank {
            return self.is_answered((to, id), outcome.map_err(why), ran);
        }
        let outcome = outcome.as_deref().map_err(Option::as_deref);
        self.put(to, &Message::Answer { id, ran: ran.as_nanos() as u64, outcome });
    }

    /// Has a function run by any rank.
    pub(crate) fn spread(
        self: &Arc<Self>,
        (name, args): (&str, Vec<u8>),
        limits: Limits,
        what: OfAny,
    ) {
        let ranks = limits.as_ref().and_then(|scope| scope.ranks(self.size));
        self.spread.lock().push(Offer { name: name.into(), args, ranks, what: (limits, what) });
        self.go_on();
    }

    /// Has ranks run what waits for one, as many as have room.
    fn go_on(self: &Arc<Self>) {
        loop {
            let next = self.spread.lock().next();
            let Some((offer, asked, why)) = next else { return };
            let Offer { name, args, what: (limits, what), .. } = offer;
            (what.told)(why);
            let (service, to, errand) = (self.clone(), asked.rank, what.errand);
            let answered = move |came: Answer, ran: Duration| {
                service.spread.lock().is_answered(&asked, ran);
                (what.answered)(came);
                service.go_on();
            };
            self.ask(to, (&name, &args), (limits, &errand), Box::new(answered));
        }
    }

    fn put(&self, to: usize, message: &Message<'_>) {
        // Not locked while it waits for room: there is a clone.
        let outgoing = self.outgoing.lock().clone();
        let receives = self.receives.get() == Some(&thread::current().id());
        self.unsent.fetch_add(1, SeqCst);
        let put = |senders: Senders| {
            let sender = if receives { senders.of_receiver } else { senders.usual };
            sender.send((to, message.to_bytes()))
        };
        if outgoing.is_none_or(|senders| put(senders).is_err()) {
            self.unsent.fetch_sub(1, SeqCst);
        }
    }

    /// The number of the communicator.
    pub(crate) fn context(&self) -> u64 {
        self.context
    }

    /// Whether this rank may have something sent yet.
    pub(crate) fn may_act(&self) -> bool {
        self.unsent.load(SeqCst) > 0
    }

    /// The rank's own tasks are over, and no more come.
    pub(crate) fn parts(&self) {
        let mut part = self.part.lock();
        match *part {
            // What it is yet to be answered would come when others have left.
            Part::Measures | Part::Ends => *part = Part::Ends,
            Part::Runs => {
                drop(part);
                self.put(0, &Message::Done);
            }
        }
    }

    pub(crate) fn is_parted(&self) -> bool {
        self.parted.load(Acquire)
    }

    /// The rank leaves: both threads end, as nothing comes any more, or the ranks have been stopped.
    pub(crate) fn end(&self) {
        drop(self.outgoing.lock().take());
        let thread = self.thread.lock().take();
        let _ = thread.map(JoinHandle::join);
    }

    fn send(&self, comm: &Comm, [usual, of_receiver]: [&Receiver<Outgoing>; 2]) {
        let next = || {
            // Once there are no more of one kind, those of the other.
            select! {
                recv(usual) -> message => message.or_else(|_| of_receiver.recv()),
                recv(of_receiver) -> message => message.or_else(|_| usual.recv()),
            }
        };
        while let Ok((to, bytes)) = next() {
            let sent = comm.send(&bytes, to, TAG);
            self.unsent.fetch_sub(1, SeqCst);
            sent.unwrap_or_else(|why| self.is_over(why));
        }
    }

    fn receive(self: &Arc<Self>, comm: &Comm) {
        let mut done = 0;
        loop {
            let (bytes, status) = match comm.recv_vec::<u8>(ANY, TAG) {
                Ok(received) => received,
                Err(why) => return self.is_over(why),
            };
            match Message::from_bytes(&bytes) {
                Some(Message::Run { id, name, args, scope }) => {
                    let (limits, by) = (scope.map(Arc::new), (status.source(), id));
                    let errand = Arc::<Errand>::default();
                    self.served.lock().insert(by, errand.clone());
                    (self.serve)(self, (by, errand), (name, args), limits);
                }
                Some(Message::Cancel { id }) => {
                    // It may have been answered meanwhile.
                    let errand = self.served.lock().get(&(status.source(), id)).cloned();
                    errand.iter().for_each(|errand| errand.cancel());
                }
                Some(Message::Echo { id, .. }) => {
                    self.answer((status.source(), id), Ok(Vec::new()), Duration::ZERO);
                }
                Some(Message::Answer { id, ran, outcome }) => {
                    let rank = status.source();
                    let on_rank = |text: &str| format!("on rank {rank}: {text}");
                    let outcome = outcome.map_err(|text| why(text.map(on_rank)));
                    let outcome = outcome.map(<[u8]>::to_vec);
                    self.is_answered((rank, id), outcome, Duration::from_nanos(ran));
                }
                Some(Message::Done) if self.rank == 0 => {
                    done += 1;
                    if done == self.size {
                        (0..self.size).for_each(|rank| self.put(rank, &Message::End));
                    }
                }
                Some(Message::End) if status.source() == 0 => {
                    return self.is_over("all ranks have come to their end".into());
                }
                Some(Message::Done | Message::End) | None => {
                    let rank = status.source();
                    return self.is_over(format!("rank {rank} has sent what is no message").into());
                }
            }
        }
    }

    fn is_answered(&self, (by, id): (usize, u64), outcome: Answer, ran: Duration) {
        let answered = {
            let waiting = &mut self.pending.lock().waiting;
            // What was not asked, or of another rank, needs no answer.
            let was_asked = waiting.get(&id).is_some_and(|(rank, _)| *rank == by);
            was_asked.then(|| waiting.remove(&id)).flatten()
        };
        if let Some((_, answered)) = answered {
            answered(outcome, ran);
        }
    }

    /// No rank does anything for another one any more.
    fn is_over(&self, why: Error) {
        let why = Arc::new(why);
        let mut pending = self.pending.lock();
        pending.over.get_or_insert_with(|| why.clone());
        let waiting = std::mem::take(&mut pending.waiting);
        drop(pending);
        let unasked = self.spread.lock().take();
        unasked.into_iter().for_each(|offer| (offer.what.1.answered)(Err(why.clone())));
        waiting.into_values().for_each(|(_, answered)| answered(Err(why.clone()), Duration::ZERO));
        self.parted.store(true, Release);
        (self.tell)();
    }
}

/// Why something has no value; `None` if it never began.
fn why(text: Option<String>) -> Arc<Error> {
    let never_began = || Error::cancelled(("a task of another rank".to_owned(), None));
    Arc::new(text.map_or_else(never_began, Error::from))
}
