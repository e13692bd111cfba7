//! What tells an operation of the program's own from others.
//!
//! It must come out the same in every process, though two programs of one job may each declare the
//! operation, in a module of their own; and it is made at every call.

use std::panic::Location;

use crate::element::{last_segment, spell};
use crate::hash::mix;

/// Sets names that the program gives apart from names of types.
const GIVEN: u64 = 0x8bb8_4b93_962e_acc9;

/// The identity of the type of this name, as the compiler writes it, without crates and modules.
#[inline]
pub(super) fn of_type(name: &str) -> u64 {
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':') {
        return hash(last_segment(name));
    }
    let mut all = 0;
    spell(name, |part| all = mix(all ^ hash(part)));
    all
}

/// The identity of an operation to which the program has given this name.
#[inline]
pub(super) fn of_name(name: &str) -> u64 {
    mix(hash(name) ^ GIVEN)
}

/// The identity of an operation that was made here. The file counts without its folders, as builds
/// of a program may lie in different ones.
#[inline]
pub(super) fn of_place(place: &Location<'_>) -> u64 {
    let file = place.file();
    let start = file.rfind(['/', '\\']).map_or(0, |slash| slash + 1);
    let at = u64::from(place.line()) << 32 | u64::from(place.column());
    mix(hash(&file[start..]) ^ at)
}

/// Whether the name of a type says which function its values are: not so of closures, all of which
/// are called the same, nor of pointers.
#[inline]
pub(super) fn tells_function(name: &str) -> bool {
    !["{{closure}}", "fn(", "dyn "].iter().any(|part| name.contains(part))
}

/// A hash of a text, a word at a time.
#[inline]
pub(super) fn hash(text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let start = mix(text.len() as u64);
    let hash = words.iter().fold(start, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mix(hash ^ u64::from(*byte)))
}
