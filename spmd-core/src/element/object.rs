//! What messages say of the types of objects: values that travel as bytes made by `serde`.
//!
//! A type is known by its name as the compiler writes it, of which only what makes a difference to
//! the bytes counts: one rank may send a `&str` or a `Box<[T]>`, and another receive a `String` or
//! a `Vec<T>`. In which crate and module it was declared does not count, as two programs of one job
//! may each declare it.

use super::dtype::{FNV_START, hash_byte};
use super::{DType, Element};

impl DType {
    /// What a message says that carries a `T` as bytes.
    #[doc(hidden)]
    pub fn object<T: ?Sized>() -> DType {
        let name = std::any::type_name::<T>();
        let mut id = FNV_START;
        spell(name, |text| id = text.bytes().fold(id, hash_byte));
        // Objects of a type are no elements of it.
        DType { name, id: hash_byte(id, b'#'), ..u8::DTYPE }
    }
}

/// The last segment of a path.
#[inline]
pub(crate) fn last_segment(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Gives the parts of a type's name that count: without crates, modules, references, lifetimes and
/// pointers that `serde` looks through, and of types that are borrowed, the owned ones.
pub(crate) fn spell(name: &str, mut say: impl FnMut(&str)) {
    let mut rest = name;
    // What is said at the end of each `<` that is open.
    let mut open: Vec<&str> = Vec::new();
    while let Some(first) = rest.chars().next() {
        let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let length = rest.find(|c| !in_path(c)).unwrap_or(rest.len());
        let (path, after) = rest.split_at(length);
        rest = after;
        if path.is_empty() {
            rest = &rest[first.len_utf8()..];
            match first {
                '&' | ' ' => {}
                '\'' => rest = rest.trim_start_matches(in_path).trim_start_matches(','),
                '-' if rest.starts_with('>') => {
                    say("->");
                    rest = &rest[1..];
                }
                '<' => {
                    say("<");
                    open.push(">");
                }
                '>' => say(open.pop().unwrap_or(">")),
                other => say(other.encode_utf8(&mut [0; 4])),
            }
            continue;
        }
        let inside = rest.strip_prefix('<');
        match (path, inside) {
            ("mut", _) => {}
            ("str", _) => say("String"),
            ("std::path::Path", _) => say("PathBuf"),
            ("core::ffi::c_str::CStr", _) => say("CString"),
            ("std::ffi::os_str::OsStr", _) => say("OsString"),
            ("alloc::vec::Vec", Some(inside)) => {
                say("[");
                open.push("]");
                rest = inside;
            }
            (
                "alloc::boxed::Box" | "alloc::rc::Rc" | "alloc::sync::Arc" | "alloc::borrow::Cow",
                Some(inside),
            ) => {
                open.push("");
                rest = inside;
            }
            _ => say(last_segment(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::{BTreeMap, HashMap};
    use std::ffi::{CStr, CString, OsStr, OsString};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use super::*;

    fn id<T: ?Sized>() -> u64 {
        DType::object::<T>().id
    }

    #[test]
    fn what_serde_takes_for_the_same_is_the_same() {
        assert_eq!(id::<str>(), id::<String>());
        assert_eq!(id::<&&mut str>(), id::<Box<Cow<'static, str>>>());
        assert_eq!(id::<[(&str, f64)]>(), id::<Vec<(String, f64)>>());
        assert_eq!(id::<Option<Box<[Arc<u8>]>>>(), id::<Option<Vec<u8>>>());
        assert_eq!(id::<&Path>(), id::<PathBuf>());
        assert_eq!(id::<&CStr>(), id::<CString>());
        assert_eq!(id::<Option<Box<OsStr>>>(), id::<Option<OsString>>());
        assert_eq!(id::<HashMap<&str, &[u8]>>(), id::<HashMap<String, Vec<u8>>>());
    }

    #[test]
    fn two_programs_may_declare_a_type() {
        mod master {
            pub(super) struct Task;
            pub(super) struct Kind<T>(pub(super) T);
        }
        mod worker {
            pub(super) struct Task;
            pub(super) struct Kind<T>(pub(super) T);
            pub(super) struct Job;
        }
        assert_eq!(id::<master::Task>(), id::<worker::Task>());
        assert_eq!(id::<master::Kind<&[master::Task]>>(), id::<worker::Kind<Vec<worker::Task>>>());
        assert_ne!(id::<master::Task>(), id::<worker::Job>());
        assert_ne!(id::<worker::Kind<worker::Task>>(), id::<worker::Kind<worker::Job>>());
    }

    #[test]
    fn what_it_does_not_is_not() {
        let all = [
            id::<u8>(),
            id::<u32>(),
            id::<i32>(),
            id::<Option<u32>>(),
            id::<(u32,)>(),
            id::<(u32, u32)>(),
            id::<[u32; 2]>(),
            id::<[u32; 3]>(),
            id::<Vec<u32>>(),
            id::<Vec<Vec<u32>>>(),
            id::<Vec<Option<u32>>>(),
            id::<Option<Vec<u32>>>(),
            id::<String>(),
            id::<Vec<String>>(),
            id::<HashMap<u32, u32>>(),
            id::<BTreeMap<u32, u32>>(),
            id::<fn(u32) -> u32>(),
            u8::DTYPE.id,
            u32::DTYPE.id,
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "number {at}");
        }
    }

    #[test]
    fn parts_that_make_no_difference_are_left_out() {
        let spelt = |name| {
            let mut all = String::new();
            spell(name, |text| all.push_str(text));
            all
        };
        let text = "app::Task<'_, alloc::vec::Vec<alloc::borrow::Cow<'_, str>>, &'a mut [u8; 3]>";
        assert_eq!(spelt(text), "Task<[String],[u8;3]>");
        assert_eq!(spelt("a::b::Task<c::Kind>"), spelt("d::Task<e::f::Kind>"));
        assert_eq!(spelt("fn(u8) -> Vec<u8>>>"), "fn(u8)->Vec<u8>>>");
    }
}
