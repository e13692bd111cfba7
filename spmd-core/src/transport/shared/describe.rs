//! Calls on record, in words, and the texts that these are made of.

use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;

use super::member::Member;
use super::record::{BEYOND, BEYOND_WINDOW, CallRecord, Noted};
use super::world::World;
use crate::call::{Call, Description, Kind};

impl World {
    /// A call that some rank has on record, in words.
    pub(crate) fn describe(&self, rank: usize, record: &CallRecord) -> String {
        self.describe_at(rank, record, None)
    }

    /// The same for a call made at `site`, where that is known and may be another line.
    pub(crate) fn describe_at(
        &self,
        rank: usize,
        record: &CallRecord,
        site: Option<&Location<'_>>,
    ) -> String {
        let table = self.memory.text(rank);
        let what = record.what.load(Relaxed);
        let Some((kind, form)) = Kind::with_form(what & !BEYOND) else {
            return "a call that cannot be read".into();
        };
        let noted = Noted(what);
        let text = |number: u16| (number != 0).then(|| table.get(number));
        let (place, tag) = (record.place.load(Relaxed), record.tag.load(Relaxed));
        let beyond = if what & BEYOND != 0 { BEYOND_WINDOW } else { "" };
        let call = Description {
            kind,
            form,
            dtype: text(noted.dtype()).as_deref(),
            op: text(noted.op()).as_deref(),
            count: record.count.load(Relaxed) as usize,
            root: (place >> 32).checked_sub(1).map(|root| root as usize),
            tag: (tag << 16 >> 16).checked_sub(1).map(|tag| tag as u32),
            file: &site.map_or_else(|| table.get(noted.file()), |site| site.file().into()),
            line: site.map_or(place as u32, Location::line),
            origin: text((tag >> 48) as u16).as_deref(),
        }
        .to_string();
        call + beyond
    }
}

impl Member {
    /// Numbers the call that makes a communicator, as calls on that one name it.
    pub(crate) fn note_origin(&self, call: &Call<'_>) -> u16 {
        self.number_of(&format!("{} at {}:{}", call.name(), call.site.file(), call.site.line()))
    }

    /// Numbers a text of this rank.
    pub(super) fn number_of(&self, text: &str) -> u16 {
        self.interner.number_of(self.world.memory.text(self.rank), text)
    }

    /// Numbers the texts of a call in this rank's table.
    #[cold]
    pub(crate) fn note(&self, call: &Call<'_>) -> Noted {
        let table = self.world.memory.text(self.rank);
        Noted::new(
            call.dtype.map_or(0, |dtype| self.interner.number_of(table, &dtype.to_string())),
            call.op.map_or(0, |op| self.interner.number_of(table, &op.described(call.site))),
            self.interner.number(table, call.site.file()),
        )
    }
}
