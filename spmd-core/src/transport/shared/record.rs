//! The call that a rank is in, as peers and the launcher read it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::call::Call;

/// Set beside the kind of a send that waits because its receiver keeps as much as its window
/// allows.
pub(super) const BEYOND: u64 = 1 << 15;

/// What is said of such a send, after the call.
pub(super) const BEYOND_WINDOW: &str = " (its receiver keeps as many unreceived messages as \
    SPMD_WINDOW allows: receive some of them first, or allow more)";

/// A call in four words: written at every collective, read only for reports.
#[derive(Default)]
#[repr(C)]
pub(crate) struct CallRecord {
    /// The kind, above it the form, and from bit 16 on the [`Noted`] texts.
    pub(super) what: AtomicU64,
    /// The line, above it the root plus one, 0 for none.
    pub(super) place: AtomicU64,
    /// Plus one, 0 for none; from bit 48 on the text of the communicator's origin.
    pub(super) tag: AtomicU64,
    pub(super) count: AtomicU64,
}

/// The numbers of a call's texts in the caller's table, 16 bits each: the origin of the
/// communicator, the element type, the operation, the file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted(pub(super) u64);

impl Noted {
    pub(crate) fn new(dtype: u16, op: u16, file: u16) -> Noted {
        Noted(u64::from(dtype) << 16 | u64::from(op) << 32 | u64::from(file) << 48)
    }

    /// The same with this text of where the communicator was made.
    pub(crate) fn on(self, origin: u16) -> Noted {
        Noted(self.0 & !0xffff | u64::from(origin))
    }

    pub(crate) fn dtype(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub(crate) fn op(self) -> u16 {
        (self.0 >> 32) as u16
    }

    pub(crate) fn file(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

impl CallRecord {
    /// Writes a call of the owner.
    #[inline]
    pub(crate) fn write(&self, call: &Call<'_>, noted: Noted) {
        let root = call.root.map_or(0, |root| root as u64 + 1);
        let what = call.kind as u64 | (call.form as u64) << 8 | noted.0 & !0xffff;
        self.what.store(what, Relaxed);
        self.place.store(u64::from(call.site.line()) | root << 32, Relaxed);
        let tag = call.tag.map_or(0, |tag| u64::from(tag) + 1);
        self.tag.store(tag | noted.0 << 48, Relaxed);
        self.count.store(call.count as u64, Relaxed);
    }

    /// Adds that the call, a send, waits for its receiver because that has no more window.
    pub(super) fn note_window(&self) {
        self.what.fetch_or(BEYOND, Relaxed);
    }

    /// In what two calls differ that were to be the same, as far as their records tell.
    pub(crate) fn difference(&self, other: &CallRecord) -> Option<&'static str> {
        let same = |word: fn(&CallRecord) -> &AtomicU64, shift: u32, bits: u32| {
            let both = word(self).load(Relaxed) ^ word(other).load(Relaxed);
            both >> shift << (64 - bits) == 0
        };
        let names = [
            (same(|it| &it.what, 0, 8), "calls"),
            (same(|it| &it.place, 32, 32), "roots"),
            (same(|it| &it.count, 0, 64), "counts"),
        ];
        names.iter().find(|(same, _)| !same).map(|(_, name)| *name)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::call::{Form, Kind};
    use crate::element::Element;

    #[test]
    fn calls_differ_by_their_records() {
        let record = |call: Call<'_>, noted| {
            let zero = AtomicU64::default;
            let record = CallRecord { what: zero(), place: zero(), tag: zero(), count: zero() };
            record.write(&call, noted);
            record
        };
        let call = |kind| Call::new(kind, Location::caller());
        let base = record(call(Kind::Barrier), Noted::new(1, 2, 3).on(9));
        let others = [
            (call(Kind::Dup), Some("calls")),
            (call(Kind::Barrier).root(0), Some("roots")),
            (call(Kind::Barrier).data(&u8::DTYPE, 1), Some("counts")),
            (call(Kind::Barrier), None),
            (call(Kind::Barrier).form(Form::Value), None),
        ];
        for (other, difference) in others {
            assert_eq!(base.difference(&record(other, Noted::new(7, 8, 9))), difference);
        }
        let noted = Noted::new(1, 2, 65_535);
        assert_eq!((noted.dtype(), noted.op(), noted.file()), (1, 2, 65_535));
    }
}
