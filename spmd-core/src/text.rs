//! Text that travels between processes: a rank writes each string once into a table in its own
//! memory, and records refer to it by number.
//!
//! Pointers to static strings mean nothing in another process, and source lines and type names
//! must appear in the reports of peers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};

use parking_lot::Mutex;

/// Bytes of a rank's table.
pub(crate) const TABLE_BYTES: usize = 28 * 1024;
/// Strings a table holds at most.
const ENTRIES: usize = 512;
const CACHE: usize = 64;

/// A rank's table, in its own part of the arena: written by the owner, read by all.
#[repr(C)]
pub(crate) struct Table {
    /// Entry i is `offset << 16 | length`, 0 while it is empty.
    entries: [AtomicU32; ENTRIES],
    bytes: [AtomicU8; TABLE_BYTES - ENTRIES * 4],
}

impl Table {
    /// The string with this number; what a correct owner has not written reads as `?`.
    pub(crate) fn get(&self, number: u16) -> String {
        let Some(entry) = self.entries.get(number as usize) else { return "?".into() };
        let entry = entry.load(Acquire);
        let (start, len) = ((entry >> 16) as usize, (entry & 0xffff) as usize);
        match self.bytes.get(start..start + len) {
            Some(bytes) if len > 0 => {
                let bytes: Vec<u8> = bytes.iter().map(|b| b.load(Relaxed)).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => "?".into(),
        }
    }
}

/// The owner's side of a table.
pub(crate) struct Interner {
    known: Mutex<State>,
}

struct State {
    numbers: HashMap<String, u16>,
    used: usize,
    /// Direct-mapped by address and length: a string met again costs one comparison.
    cache: [(usize, usize, u16); CACHE],
}

impl Interner {
    pub(crate) fn new() -> Interner {
        // Number 0 is kept for what no longer fits; it reads as `?`.
        let state = State { numbers: HashMap::new(), used: 0, cache: [(0, 0, 0); CACHE] };
        Interner { known: Mutex::new(state) }
    }

    /// The number of `text` in `table`, which belongs to this interner alone.
    pub(crate) fn number(&self, table: &Table, text: &'static str) -> u16 {
        let key = (text.as_ptr() as usize, text.len());
        let slot = (key.0 >> 3 ^ key.0 >> 9) % CACHE;
        let mut state = self.known.lock();
        let cached = state.cache[slot];
        if (cached.0, cached.1) == key {
            return cached.2;
        }
        let number = state.insert(table, text);
        state.cache[slot] = (key.0, key.1, number);
        number
    }

    /// The same for text that is made while running.
    pub(crate) fn number_of(&self, table: &Table, text: &str) -> u16 {
        self.known.lock().insert(table, text)
    }
}

impl State {
    fn insert(&mut self, table: &Table, text: &str) -> u16 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len() + 1;
        let len = text.len().min(1024);
        if number >= ENTRIES || self.used + len > table.bytes.len() || len == 0 {
            return 0;
        }
        for (cell, byte) in table.bytes[self.used..].iter().zip(text.as_bytes()).take(len) {
            cell.store(*byte, Relaxed);
        }
        table.entries[number].store(((self.used as u32) << 16) | len as u32, Release);
        self.used += len;
        self.numbers.insert(text.to_owned(), number as u16);
        number as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_and_nonsense_is_harmless() {
        // SAFETY: a table of zeros is an empty table, and every field is an atomic integer.
        let table: Box<Table> = unsafe { Box::new_zeroed().assume_init() };
        let interner = Interner::new();
        let a = interner.number(&table, "src/main.rs");
        assert_eq!(a, interner.number(&table, "src/main.rs"));
        assert_eq!(a, interner.number_of(&table, &String::from("src/main.rs")));
        let b = interner.number(&table, "f64");
        assert_eq!((table.get(a), table.get(b)), ("src/main.rs".into(), "f64".into()));
        assert_eq!(table.get(0), "?");
        assert_eq!(table.get(60_000), "?");
        table.entries[7].store(u32::MAX, Relaxed);
        assert_eq!(table.get(7), "?");
        for i in 0..2000 {
            interner.number_of(&table, &format!("{i:0>100}"));
        }
        assert_eq!(interner.number_of(&table, &"x".repeat(1000)), 0);
    }
}
