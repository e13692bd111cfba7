//! Receives that wait for their messages while their rank does something else.
//!
//! A message that comes is matched with the receives that were posted first: in the order in which
//! they were posted, among those whose patterns it fits (MPI 5.0 section 3.5). Only then may a call
//! that waits for one have it, which was made after all of them: a communicator is used by one agent
//! at a time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::hash::mix;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering::*};
use crate::transport::message::{Envelope, MatchPattern, UnexpectedMessage};

/// A posted receive, as who brings messages and who has posted it share it.
pub(crate) struct PostedReceive {
    message: Mutex<Option<UnexpectedMessage>>,
    /// Where it is told that its message has come.
    arrivals: Arc<Arrivals>,
    /// Its number there.
    id: usize,
}

/// The numbers of an agent's receives whose messages have come.
#[derive(Default)]
pub(crate) struct Arrivals {
    some: AtomicBool,
    ids: Mutex<Vec<usize>>,
}

impl Arrivals {
    /// Those that have come since this was asked last, in order.
    pub(crate) fn take(&self) -> Vec<usize> {
        if !self.some.load(Acquire) {
            return Vec::new();
        }
        let mut ids = self.ids.lock();
        self.some.store(false, Release);
        std::mem::take(&mut ids)
    }
}

impl PostedReceive {
    pub(crate) fn new(arrivals: &Arc<Arrivals>, id: usize) -> Arc<PostedReceive> {
        Arc::new(PostedReceive { message: Mutex::default(), arrivals: arrivals.clone(), id })
    }

    /// Its message, once.
    pub(crate) fn take(&self) -> Option<UnexpectedMessage> {
        self.message.lock().take()
    }

    fn give(&self, message: UnexpectedMessage) {
        *self.message.lock() = Some(message);
        let mut ids = self.arrivals.ids.lock();
        ids.push(self.id);
        self.arrivals.some.store(true, Release);
    }
}

/// Those of one pattern, with their numbers, in order.
type OfPattern = VecDeque<(u64, Arc<PostedReceive>)>;

/// The posted receives of a rank.
#[derive(Default)]
pub(super) struct PostedReceives {
    of: HashMap<MatchPattern, OfPattern, BuildHasherDefault<Mixer>>,
    next: u64,
    /// How many there are, by whether they name a source, and a tag.
    counts: [usize; 4],
}

impl PostedReceives {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Adds one after all others, and gives its number.
    pub(super) fn post(&mut self, pattern: MatchPattern, receive: Arc<PostedReceive>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.counts[class(&pattern)] += 1;
        self.of.entry(pattern).or_default().push_back((number, receive));
        number
    }

    /// Takes the one with this number back; false if its message has come.
    pub(super) fn withdraw(&mut self, pattern: &MatchPattern, number: u64) -> bool {
        let Some(all) = self.of.get_mut(pattern) else { return false };
        let Ok(index) = all.binary_search_by_key(&number, |(number, _)| *number) else {
            return false;
        };
        all.remove(index);
        self.removed(pattern);
        true
    }

    /// Gives a message to the first that it fits; back if there is none.
    pub(super) fn offer(&mut self, message: UnexpectedMessage) -> Option<UnexpectedMessage> {
        match self.first(&message.envelope) {
            Some(receive) => receive.give(message),
            None => return Some(message),
        }
        None
    }

    /// Takes out the first that such a message fits.
    fn first(&mut self, envelope: &Envelope) -> Option<Arc<PostedReceive>> {
        let (context, source, tag) =
            (envelope.context, Some(envelope.source as usize), Some(envelope.tag));
        let patterns = [(source, tag), (source, None), (None, tag), (None, None)];
        let patterns = patterns.map(|(source, tag)| MatchPattern { context, source, tag });
        let some = patterns.iter().filter(|pattern| self.counts[class(pattern)] > 0);
        let first = some.filter_map(|pattern| Some((self.of.get(pattern)?.front()?.0, pattern)));
        let (_, pattern) = first.min_by_key(|(number, _)| *number)?;
        let (_, receive) = self.of.get_mut(pattern)?.pop_front()?;
        self.removed(pattern);
        Some(receive)
    }

    pub(super) fn len(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Whether such a message is one of theirs.
    #[inline]
    pub(super) fn wants(&self, envelope: &Envelope) -> bool {
        !self.is_empty() && self.want(envelope)
    }

    #[cold]
    fn want(&self, envelope: &Envelope) -> bool {
        let (context, source, tag) =
            (envelope.context, Some(envelope.source as usize), Some(envelope.tag));
        let patterns = [(source, tag), (source, None), (None, tag), (None, None)];
        patterns.into_iter().any(|(source, tag)| {
            let pattern = MatchPattern { context, source, tag };
            self.counts[class(&pattern)] > 0 && self.of.contains_key(&pattern)
        })
    }

    fn removed(&mut self, pattern: &MatchPattern) {
        self.counts[class(pattern)] -= 1;
        if self.of.get(pattern).is_some_and(VecDeque::is_empty) {
            self.of.remove(pattern);
        }
    }
}

fn class(pattern: &MatchPattern) -> usize {
    usize::from(pattern.source.is_none()) | usize::from(pattern.tag.is_none()) << 1
}

/// Hashes a few numbers.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::message::Data;
    #[cfg(loom)]
    use loom::thread;

    fn message(source: u32, tag: u32) -> UnexpectedMessage {
        let envelope = Envelope {
            context: 1,
            source,
            tag,
            count: 0,
            bytes: 0,
            size: 1,
            dtype: 0,
            dtype_text: 0,
            file: 0,
            line: 0,
        };
        UnexpectedMessage::new(envelope, Data::Here(vec![]))
    }

    /// Against a plain list of them.
    #[cfg(not(loom))]
    #[test]
    fn messages_go_to_the_first_posted() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut posted, arrivals) = (PostedReceives::default(), Arc::default());
        let mut list: Vec<(MatchPattern, u64, Arc<PostedReceive>)> = Vec::new();
        for id in 0..20_000 {
            match random.u8(0..10) {
                0..5 => {
                    let source = random.bool().then(|| random.usize(0..3));
                    let tag = random.bool().then(|| random.u32(0..3));
                    let pattern = MatchPattern { context: 1, source, tag };
                    let receive = PostedReceive::new(&arrivals, id);
                    let number = posted.post(pattern, receive.clone());
                    list.push((pattern, number, receive));
                }
                5 if !list.is_empty() => {
                    let (pattern, number, _) = list.remove(random.usize(0..list.len()));
                    assert!(posted.withdraw(&pattern, number));
                    assert!(!posted.withdraw(&pattern, number));
                }
                _ => {
                    let message = message(random.u32(0..4), random.u32(0..4));
                    let envelope = message.envelope;
                    let expected = list.iter().position(|(it, ..)| it.fits(&envelope));
                    assert_eq!(posted.wants(&envelope), expected.is_some());
                    assert_eq!(posted.offer(message).is_none(), expected.is_some());
                    if let Some(index) = expected {
                        let (_, _, receive) = list.remove(index);
                        assert_eq!(arrivals.take(), [receive.id]);
                        assert_eq!(receive.take().unwrap().envelope.tag, envelope.tag);
                    }
                }
            }
            assert_eq!(posted.is_empty(), list.is_empty());
        }
    }

    /// Two agents bring messages while the one that has posted receives looks for them: it finds each
    /// once, with its message, at the latest when both are through.
    #[cfg(loom)]
    #[test]
    fn loom_no_arrival_is_lost() {
        loom::model(|| {
            let (posted, arrivals) = (Arc::<Mutex<PostedReceives>>::default(), Arc::default());
            let receives = [0, 1].map(|id| PostedReceive::new(&arrivals, id));
            for (tag, receive) in (0..).zip(&receives) {
                let pattern = MatchPattern { context: 1, source: None, tag: Some(tag) };
                posted.lock().post(pattern, receive.clone());
            }
            let givers = [0, 1].map(|tag| {
                let posted = posted.clone();
                thread::spawn(move || assert!(posted.lock().offer(message(3, tag)).is_none()))
            });
            let mut found = Vec::new();
            let mut look = || {
                for id in arrivals.take() {
                    let message = receives[id].take().expect("it has come");
                    assert_eq!(message.envelope.tag, id as u32);
                    found.push(id);
                }
            };
            look();
            givers.into_iter().for_each(|giver| giver.join().unwrap());
            look();
            found.sort();
            assert_eq!(found, [0, 1]);
        });
    }

    /// A receive is taken back while its message comes: that has been given to it, or to nobody.
    #[cfg(loom)]
    #[test]
    fn loom_a_message_comes_or_the_receive_is_taken_back() {
        loom::model(|| {
            let (posted, arrivals) = (Arc::<Mutex<PostedReceives>>::default(), Arc::default());
            let receive = PostedReceive::new(&arrivals, 5);
            let pattern = MatchPattern { context: 1, source: None, tag: None };
            let number = posted.lock().post(pattern, receive.clone());
            let giver = {
                let posted = posted.clone();
                thread::spawn(move || posted.lock().offer(message(3, 4)).is_none())
            };
            let back = posted.lock().withdraw(&pattern, number);
            // Who does not get it back finds its message at once.
            assert_eq!(arrivals.take().len(), usize::from(!back));
            assert_eq!(receive.take().is_none(), back);
            assert_eq!(giver.join().unwrap(), !back);
        });
    }
}
