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

/// Where the messages of an agent's receives come, each with the receive's number there.
#[derive(Default)]
pub(crate) struct Arrivals {
    some: AtomicBool,
    come: Mutex<Vec<(usize, UnexpectedMessage)>>,
}

impl Arrivals {
    /// Whether some have come since they were taken last.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Acquire)
    }

    /// Those that have come since this was asked last, in order.
    pub(crate) fn take(&self) -> Vec<(usize, UnexpectedMessage)> {
        let mut come = self.come.lock();
        self.some.store(false, Release);
        std::mem::take(&mut come)
    }

    pub(crate) fn give(&self, id: usize, message: UnexpectedMessage) {
        let mut come = self.come.lock();
        come.push((id, message));
        self.some.store(true, Release);
    }
}

/// A receive that waits for its message.
struct PostedReceive {
    /// How many were posted before it.
    number: u64,
    /// Among the places of [`PostedReceives`], where its message is to come; its number there.
    place: usize,
    id: usize,
}

/// Where messages are to come.
struct Place {
    arrivals: Arc<Arrivals>,
    /// Of how many posted receives.
    receives: usize,
}

/// The posted receives of a rank.
#[derive(Default)]
pub(super) struct PostedReceives {
    /// Those of one pattern, in order: most programs post many receives of the same.
    one: (Option<MatchPattern>, VecDeque<PostedReceive>),
    /// Those of all others, by their patterns, in order.
    of: HashMap<MatchPattern, VecDeque<PostedReceive>, BuildHasherDefault<Mixer>>,
    /// At most as many as there were agents with posted receives at a time.
    places: Vec<Place>,
    next: u64,
    /// How many there are, by whether they name a source, and a tag.
    counts: [usize; 4],
}

impl PostedReceives {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.one.1.is_empty() && self.of.is_empty()
    }

    #[inline]
    fn with(&self, pattern: &MatchPattern) -> Option<&VecDeque<PostedReceive>> {
        if self.one.0.as_ref() == Some(pattern) {
            return Some(&self.one.1);
        }
        self.of.get(pattern)
    }

    #[inline]
    fn with_mut(&mut self, pattern: &MatchPattern) -> Option<&mut VecDeque<PostedReceive>> {
        if self.one.0.as_ref() == Some(pattern) {
            return Some(&mut self.one.1);
        }
        self.of.get_mut(pattern)
    }

    /// Adds one after all others, whose message is to come there under this number; gives its
    /// number here.
    pub(super) fn post(&mut self, pattern: MatchPattern, to: (&Arc<Arrivals>, usize)) -> u64 {
        let number = self.next;
        self.next += 1;
        self.counts[class(&pattern)] += 1;
        let receive = PostedReceive { number, place: self.place(to.0), id: to.1 };
        self.places[receive.place].receives += 1;
        // No pattern has some in both.
        if self.one.1.is_empty() && !self.of.contains_key(&pattern) {
            self.one.0 = Some(pattern);
        }
        match self.one.0 == Some(pattern) {
            true => self.one.1.push_back(receive),
            false => self.of.entry(pattern).or_default().push_back(receive),
        }
        number
    }

    fn place(&mut self, arrivals: &Arc<Arrivals>) -> usize {
        let known = |place: &Place| Arc::ptr_eq(&place.arrivals, arrivals);
        if let Some(known) = self.places.iter().position(known) {
            return known;
        }
        let new = Place { arrivals: arrivals.clone(), receives: 0 };
        match self.places.iter().position(|place| place.receives == 0) {
            Some(idle) => {
                self.places[idle] = new;
                idle
            }
            None => {
                self.places.push(new);
                self.places.len() - 1
            }
        }
    }

    /// Takes the one with this number back; false if its message has come.
    pub(super) fn withdraw(&mut self, pattern: &MatchPattern, number: u64) -> bool {
        let Some(all) = self.with_mut(pattern) else { return false };
        let Ok(index) = all.binary_search_by_key(&number, |receive| receive.number) else {
            return false;
        };
        let receive = all.remove(index);
        let left = all.len();
        receive.iter().for_each(|receive| self.places[receive.place].receives -= 1);
        self.removed(pattern, left);
        true
    }

    /// Gives a message to the first that it fits; back if there is none.
    pub(super) fn offer(&mut self, message: UnexpectedMessage) -> Option<UnexpectedMessage> {
        if self.is_empty() {
            return Some(message);
        }
        let pattern = self.pattern_of_first(&message.envelope);
        match pattern.and_then(|pattern| self.pop(&pattern)) {
            Some(receive) => self.places[receive.place].arrivals.give(receive.id, message),
            None => return Some(message),
        }
        None
    }

    /// Takes out the first that such a message fits, if its message is to come there: its number
    /// there.
    #[inline]
    pub(super) fn take_for(
        &mut self,
        envelope: &Envelope,
        arrivals: &Arc<Arrivals>,
    ) -> Option<usize> {
        let pattern = self.pattern_of_first(envelope)?;
        let first = self.with(&pattern)?.front()?;
        if !Arc::ptr_eq(&self.places[first.place].arrivals, arrivals) {
            return None;
        }
        self.pop(&pattern).map(|receive| receive.id)
    }

    /// The pattern of the first that such a message fits; or the only one that there may be.
    #[inline]
    fn pattern_of_first(&self, envelope: &Envelope) -> Option<MatchPattern> {
        let mut some = patterns(envelope).filter(|pattern| self.counts[class(pattern)] > 0);
        let only = some.next()?;
        match some.next() {
            None => Some(only),
            Some(_) => self.first(envelope).map(|(_, pattern)| pattern),
        }
    }

    /// The first that such a message fits, and its pattern.
    #[inline]
    fn first(&self, envelope: &Envelope) -> Option<(&PostedReceive, MatchPattern)> {
        let some = patterns(envelope).filter(|pattern| self.counts[class(pattern)] > 0);
        let first = some.filter_map(|pattern| Some((self.with(&pattern)?.front()?, pattern)));
        first.min_by_key(|(receive, _)| receive.number)
    }

    /// Takes out the first of this pattern.
    #[inline]
    fn pop(&mut self, pattern: &MatchPattern) -> Option<PostedReceive> {
        let all = self.with_mut(pattern)?;
        let receive = all.pop_front()?;
        let left = all.len();
        self.places[receive.place].receives -= 1;
        self.removed(pattern, left);
        Some(receive)
    }

    pub(super) fn len(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Whether such a message is one of theirs.
    #[inline]
    pub(super) fn wants(&self, envelope: &Envelope) -> bool {
        !self.is_empty() && self.first(envelope).is_some()
    }

    /// One of this pattern is gone, of which so many are left.
    fn removed(&mut self, pattern: &MatchPattern, left: usize) {
        self.counts[class(pattern)] -= 1;
        if left > 0 {
            return;
        }
        if self.one.0.as_ref() != Some(pattern) {
            self.of.remove(pattern);
        } else if self.one.1.capacity() > SPARE {
            self.one = Default::default();
        }
    }
}

/// For how many receives of a pattern there stays room when it has none any more.
const SPARE: usize = 1024;

/// The patterns that such a message fits.
fn patterns(envelope: &Envelope) -> impl Iterator<Item = MatchPattern> {
    let (context, source, tag) =
        (envelope.context, Some(envelope.source as usize), Some(envelope.tag));
    let all = [(source, tag), (source, None), (None, tag), (None, None)];
    all.into_iter().map(move |(source, tag)| MatchPattern { context, source, tag })
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
        let mut list: Vec<(MatchPattern, u64, usize)> = Vec::new();
        for id in 0..20_000 {
            match random.u8(0..10) {
                0..5 => {
                    let source = random.bool().then(|| random.usize(0..3));
                    let tag = random.bool().then(|| random.u32(0..3));
                    let pattern = MatchPattern { context: 1, source, tag };
                    list.push((pattern, posted.post(pattern, (&arrivals, id)), id));
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
                    let expected = expected.map(|index| list.remove(index).2);
                    if random.bool() {
                        assert_eq!(posted.take_for(&envelope, &Arc::default()), None);
                        assert_eq!(posted.take_for(&envelope, &arrivals), expected);
                        continue;
                    }
                    assert_eq!(posted.offer(message).is_none(), expected.is_some());
                    let come = arrivals.take();
                    let tags: Vec<_> = come.iter().map(|(id, it)| (*id, it.envelope.tag)).collect();
                    assert_eq!(tags, Vec::from_iter(expected.map(|id| (id, envelope.tag))));
                }
            }
            assert_eq!(posted.is_empty(), list.is_empty());
        }
    }

    /// Agents come and go: of those that have no receives any more nothing stays.
    #[cfg(not(loom))]
    #[test]
    fn places_are_used_again() {
        let mut posted = PostedReceives::default();
        let pattern = MatchPattern { context: 1, source: None, tag: None };
        for turn in 0..100 {
            let agents: [Arc<Arrivals>; 3] = Default::default();
            for (id, arrivals) in agents.iter().enumerate() {
                posted.post(pattern, (arrivals, id));
            }
            let last = posted.post(pattern, (&agents[1], 3));
            assert!(posted.withdraw(&pattern, last));
            assert!(posted.offer(message(0, turn)).is_none());
            assert_eq!(posted.take_for(&message(0, 0).envelope, &agents[0]), None);
            assert_eq!(posted.take_for(&message(0, 0).envelope, &agents[1]), Some(1));
            assert!(posted.offer(message(0, turn)).is_none());
            assert_eq!((agents[0].take().len(), agents[2].take().len()), (1, 1));
            assert_eq!(posted.places.len(), 3);
        }
    }

    /// Two agents bring messages while the one that has posted receives looks for them: it finds each
    /// once, with its message, at the latest when both are through.
    #[cfg(loom)]
    #[test]
    fn loom_no_arrival_is_lost() {
        loom::model(|| {
            let (posted, arrivals) = (Arc::<Mutex<PostedReceives>>::default(), Arc::default());
            for (tag, id) in (0..).zip([0, 1]) {
                let pattern = MatchPattern { context: 1, source: None, tag: Some(tag) };
                posted.lock().post(pattern, (&arrivals, id));
            }
            let givers = [0, 1].map(|tag| {
                let posted = posted.clone();
                thread::spawn(move || assert!(posted.lock().offer(message(3, tag)).is_none()))
            });
            let mut found = Vec::new();
            let mut look = || {
                for (id, message) in arrivals.take() {
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
            let pattern = MatchPattern { context: 1, source: None, tag: None };
            let number = posted.lock().post(pattern, (&arrivals, 5));
            let giver = {
                let posted = posted.clone();
                thread::spawn(move || posted.lock().offer(message(3, 4)).is_none())
            };
            let back = posted.lock().withdraw(&pattern, number);
            // Who does not get it back finds its message at once.
            assert_eq!(arrivals.take().len(), usize::from(!back));
            assert_eq!(giver.join().unwrap(), !back);
        });
    }
}
