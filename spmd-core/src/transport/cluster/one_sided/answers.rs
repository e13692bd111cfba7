//! The answers that ranks of this process wait for.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Answers to requests of a window, by ticket.
#[derive(Default)]
pub(crate) struct Answers(Mutex<Tickets>);

#[derive(Default)]
struct Tickets {
    last: u64,
    awaited: BTreeMap<u64, Awaited>,
}

struct Awaited {
    /// The rank of the world that waits.
    by: usize,
    /// The process that is to answer, and with how many bytes.
    from: usize,
    bytes: usize,
    into: Option<Place>,
    came: Option<Vec<u8>>,
}

/// Where an answer is to be put.
struct Place(*mut u8);

// SAFETY: an address, which is written to by one thread at a time (`Answers::expect_at`).
unsafe impl Send for Place {}

/// An answer that is awaited as long as this lives.
pub struct Ticket<'a> {
    answers: &'a Answers,
    pub(crate) number: u64,
}

impl Answers {
    /// The rank of the world `by` awaits an answer of so many bytes from a process.
    pub(crate) fn expect(&self, by: usize, from: usize, bytes: usize) -> Ticket<'_> {
        self.add(Awaited { by, from, bytes, into: None, came: None })
    }

    /// The same, of an answer that is put there, in the place of which the ticket gives nothing.
    ///
    /// # Safety
    /// So many bytes are writable there, and nobody else touches them, until the ticket is dropped.
    pub(crate) unsafe fn expect_at(
        &self,
        by: usize,
        from: usize,
        (into, bytes): (*mut u8, usize),
    ) -> Ticket<'_> {
        self.add(Awaited { by, from, bytes, into: Some(Place(into)), came: None })
    }

    fn add(&self, awaited: Awaited) -> Ticket<'_> {
        let mut tickets = self.0.lock();
        tickets.last += 1;
        let number = tickets.last;
        tickets.awaited.insert(number, awaited);
        Ticket { answers: self, number }
    }

    /// Such an answer comes: the rank that waits for it. None if nobody does.
    pub(crate) fn comes(&self, from: usize, number: u64, answer: &[u8]) -> Option<usize> {
        let mut tickets = self.0.lock();
        let awaited = tickets.awaited.get_mut(&number)?;
        if awaited.from != from || awaited.bytes != answer.len() || awaited.came.is_some() {
            return None;
        }
        let put = |place: &Place| {
            // SAFETY: so many bytes are writable there as long as the ticket is (`expect_at`), which
            // leaves under this lock; the answer lies in a packet.
            unsafe { place.0.copy_from_nonoverlapping(answer.as_ptr(), answer.len()) };
            Vec::new()
        };
        awaited.came = Some(awaited.into.as_ref().map_or_else(|| answer.to_vec(), put));
        Some(awaited.by)
    }
}

impl Ticket<'_> {
    /// The answer, once, if it has come.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        self.answers.0.lock().awaited.get_mut(&self.number)?.came.take()
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.answers.0.lock().awaited.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_if_it_is_the_one_that_is_awaited() {
        let answers = Answers::default();
        let (one, two) = (answers.expect(5, 1, 3), answers.expect(6, 2, 0));
        assert_eq!(answers.comes(2, one.number, b"abc"), None);
        assert_eq!(answers.comes(1, one.number, b"abcd"), None);
        assert_eq!(answers.comes(1, 77, b"abc"), None);
        assert_eq!(one.take(), None);
        assert_eq!(answers.comes(1, one.number, b"abc"), Some(5));
        assert_eq!(answers.comes(1, one.number, b"xyz"), None);
        assert_eq!((one.take(), one.take()), (Some(b"abc".to_vec()), None));
        let late = two.number;
        drop(two);
        assert_eq!(answers.comes(2, late, b""), None);
    }

    #[test]
    fn an_answer_is_put_where_it_is_awaited_as_long_as_it_is() {
        let (answers, mut place) = (Answers::default(), *b"....");
        // SAFETY: the array outlives the ticket, and is not touched meanwhile.
        let there = unsafe { answers.expect_at(5, 1, (place[1..].as_mut_ptr(), 2)) };
        let number = there.number;
        assert_eq!(answers.comes(1, number, b"abc"), None);
        assert_eq!(answers.comes(1, number, b"ab"), Some(5));
        assert_eq!(answers.comes(1, number, b"xy"), None);
        assert_eq!((there.take(), there.take()), (Some(vec![]), None));
        drop(there);
        assert_eq!(answers.comes(1, number, b"xy"), None);
        assert_eq!(&place, b".ab.");
    }
}
